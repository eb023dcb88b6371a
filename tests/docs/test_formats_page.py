"""`docs/reference/formats.md` matches the formats of the code."""

from __future__ import annotations

import content_types
import pytest
from memman_cli.log_formats import IMPORT_FORMATS

from memman import MemoryManager
from memman.formats import builtin_formats
from memman.formats.rules import RULES
from memman.formats.wire.tables import kinds_of
from tests.docs.pages import DOCS, code, table

PAGE = "reference/formats.md"
MESSAGES = {code(row["name"])[0]: row for row in table(PAGE, "name")}
FORMATS = {form.name: form for form in builtin_formats()}
TEXT = (DOCS / PAGE).read_text(encoding="utf-8")


def test_formats_page_has_every_message_format() -> None:
    assert set(MESSAGES) == set(FORMATS)


def test_formats_page_has_every_read_only_log() -> None:
    rows = TEXT.partition("## Logs")[2].split("\n")
    named = [code(row)[0] for row in rows if row.startswith("| `")]
    assert sorted(named) == sorted(form.name for form in IMPORT_FORMATS)


def test_formats_page_has_only_existing_formats() -> None:
    mended = [name for row in table(PAGE, "what") for name in code(row["in"])]
    assert mended
    assert set(mended) <= set(FORMATS)


@pytest.mark.parametrize("name", MESSAGES)
def test_system_prompt_is_at_the_documented_place(name: str) -> None:
    memory = MemoryManager()
    memory.add_system_message("s", "You fix builds.")
    memory.add_user_message("s", "Why is it red?")
    context = memory.build_context("s", format=name)
    assert (context.system is not None) == (MESSAGES[name]["system prompt"] == "apart")


@pytest.mark.parametrize("name", sorted(set(MESSAGES) - {"text"}))
def test_turns_are_merged_as_documented(name: str) -> None:
    memory = MemoryManager()
    memory.add_user_message("s", "One.")
    memory.add_user_message("s", "Two.")
    merged = len(memory.build_context("s", format=name).messages) == 1
    assert merged == (MESSAGES[name]["turns"] == "alternate, merged")


def test_every_provider_format_has_rules() -> None:
    assert set(RULES) == set(FORMATS) - {"text"}


def test_page_of_content_types_is_that_of_the_table() -> None:
    assert content_types.main(["--check"]) == 0, "run python .ci/content_types.py"


def test_page_of_content_types_has_every_type() -> None:
    text = content_types.PAGE.read_text(encoding="utf-8")
    for form, title in content_types.TITLES.items():
        section = text.partition(f"## {title}\n")[2].partition("\n## ")[0]
        rows = [code(line)[0] for line in section.split("\n") if line.startswith("| `")]
        assert rows == list(kinds_of(form))
