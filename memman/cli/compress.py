"""`memman compress`: a session made smaller, its originals kept in its log."""

from __future__ import annotations

from collections import Counter

import click

from memman.cli.answers import CompressAnswer, answer
from memman.cli.fitting import check_fit
from memman.cli.options import (
    budget_option,
    force_option,
    json_option,
    keep_option,
    model_option,
    note,
    output_options,
    session_argument,
    summarizer_option,
    target_option,
)
from memman.cli.plan import aim, show_plan
from memman.cli.problems import UnusableError
from memman.cli.session_files import check_target, load, target_of, write
from memman.cli.strictness import strict_option, strictly
from memman.events import CompressionResult
from memman.stores import without_password


@click.command()
@session_argument
@model_option
@budget_option("The window in tokens; the session's own if none. It becomes the session's.")
@target_option
@keep_option
@summarizer_option
@click.option("--dry-run", is_flag=True, help="Only say what would happen, as `memman plan` does.")
@output_options
@force_option
@strict_option
@json_option
def compress(
    session: str,
    model: str | None,
    budget: int | None,
    target: int | None,
    keep: int | None,
    summarizer: str | None,
    dry_run: bool,
    output: str | None,
    in_place: bool,
    force: bool,
    strict: bool,
    as_json: bool,
) -> None:
    """Compresses the session S, or a log, now.

    Without --summarizer no model is asked, whatever S itself names: summaries are digests, offline.
    """
    to = _target(session, output, in_place, dry_run, as_json)
    opened = load(session, model, to=to)
    if to not in (None, session):
        check_target(to, opened.id, force)
    if summarizer is not None:
        opened.memory.set_summarize_callback(summarizer)
    aim(opened, budget, target, keep)
    if to is None:
        show_plan(opened, target, as_json)
        return
    with strictly(opened.memory, strict):
        done = opened.memory.compress(opened.id, target_tokens=target)
    write(opened, session, to, force)
    if as_json:
        answer(CompressAnswer(session_file=without_password(to), result=done))
    else:
        note(_told(done))
    check_fit(opened.memory, opened.id, target)


def _target(
    session: str, output: str | None, in_place: bool, dry_run: bool, as_json: bool
) -> str | None:
    """Where the result goes, None for a dry run."""
    if not dry_run:
        return target_of(session, output, in_place, as_json)
    if in_place or output is not None:
        raise UnusableError("--dry-run writes nothing: leave out -o and --in-place")
    return None


def _told(done: CompressionResult) -> str:
    if done.compression_id is None:
        return f"nothing was compressed: {done.reason.removeprefix('nothing was changed: ')}"
    methods = Counter[str]()
    for item in done.replacements:
        methods[item.method] += len(item.ids)
    did = ", ".join(f"{count:,} by {method}" for method, count in methods.items())
    return f"{done.tokens_before:,} -> {done.tokens_after:,} tokens, entries replaced: {did}"
