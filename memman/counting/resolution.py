"""The counter of a model, with the reasons for the choice.

It is found once per model. The most specific match whose factory works wins; among equals the more
accurate, then the first registered. The estimator matches every model and comes last.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import msgspec

from memman.counting.validation import check_ready, is_plugin_error, make
from memman.display import known_names, safe_repr, warn_once
from memman.errors import CounterUnavailable, PluginNotFound
from memman.protocols import CounterSpec, ModelRef

logger = logging.getLogger("memman.counting")
_ACCURACY = {"high": 2, "medium": 1, "low": 0}


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A counter that was considered: `chosen`, or the `reason` it was not."""

    name: str
    match: int
    accuracy: str
    remote: bool
    chosen: bool = False
    reason: str = ""


class Resolution(msgspec.Struct, frozen=True, kw_only=True):
    """The counter of a model, and every candidate in the order tried."""

    model: ModelRef
    spec: CounterSpec
    counter: Any
    candidates: tuple[Candidate, ...]


def resolve(model: ModelRef, specs: Sequence[CounterSpec], name: str | None = None) -> Resolution:
    """Return the counter for `model`, or the one called `name`.

    Raises `PluginNotFound` if no counter has that name, and `CounterUnavailable` if it cannot work or
    counts whole requests over a network. Without a name, an unavailable counter is skipped.
    """
    if name is not None:
        return _by_name(model, specs, name)
    local = [spec for spec in specs if not spec.remote]
    ranked = sorted(
        ((_match(spec, model), spec) for spec in local),
        key=lambda pair: (pair[0], _ACCURACY[pair[1].accuracy]),
        reverse=True,
    )
    tried: list[Candidate] = []
    for match, spec in ranked:
        if match <= 0:
            tried.append(_candidate(spec, match, reason=_why_not(match)))
            continue
        try:
            counter = make(spec, model)
        except CounterUnavailable as error:
            tried.append(_candidate(spec, match, reason=error.reason))
            continue
        tried.append(_candidate(spec, match, chosen=True, reason=getattr(counter, "note", "")))
        rest = ranked[len(tried) :]
        tried += [_candidate(other, m, reason=_why_not(m)) for m, other in rest]
        return Resolution(model=model, spec=spec, counter=counter, candidates=tuple(tried))
    raise CounterUnavailable(
        "no counter answers, not even an estimator: "
        + "; ".join(f"{candidate.name}: {candidate.reason}" for candidate in tried)
    )


def resolve_remote(model: ModelRef, specs: Sequence[CounterSpec]) -> tuple[CounterSpec, Any] | None:
    """Return the most specific remote counter that works here, with its spec; None if there is none."""
    remote = [spec for spec in specs if spec.remote and _match(spec, model) > 0]
    for spec in sorted(remote, key=lambda spec: _match(spec, model), reverse=True):
        try:
            return spec, make(spec, model)
        except CounterUnavailable as error:
            warn_once(logger.name, f"remote counter {spec.name} cannot work here: {error.reason}")
    return None


def explain(model: ModelRef, specs: Sequence[CounterSpec]) -> tuple[Candidate, ...]:
    """Return every counter considered for a model: local ones in the order tried, then remote ones.

    A remote counter is never `chosen`: it prices whole contexts, if the policy allows it.
    """
    tried = resolve(model, specs).candidates
    remote = [(_match(spec, model), spec) for spec in specs if spec.remote]
    remote.sort(key=lambda pair: pair[0], reverse=True)
    asked = False
    for match, spec in remote:
        reason = _why_not(match) if match <= 0 or asked else missing(spec, model)
        if not reason:
            asked, reason = True, "prices whole contexts with count_policy='confirm'"
        tried += (_candidate(spec, match, reason=reason),)
    return tried


def missing(spec: CounterSpec, model: ModelRef) -> str:
    """Return the reason a counter cannot work here, "" if it can. This makes the counter."""
    try:
        check_ready(make(spec, model))
    except CounterUnavailable as error:
        return error.reason
    return ""


def _why_not(match: int) -> str:
    return "a better one was chosen" if match > 0 else "does not know this model"


def _by_name(model: ModelRef, specs: Sequence[CounterSpec], name: str) -> Resolution:
    for spec in specs:
        if spec.name == name:
            if spec.remote:
                raise CounterUnavailable(
                    f"{name} counts whole requests over a network, not texts: name a local counter or "
                    "none, and set count_policy='confirm' to use it"
                )
            counter = make(spec, model)
            chosen = _candidate(spec, _match(spec, model), chosen=True, reason="asked for by name")
            return Resolution(model=model, spec=spec, counter=counter, candidates=(chosen,))
    known = sorted(spec.name for spec in specs)
    raise PluginNotFound(f"no token counter is called {safe_repr(name)}{known_names(name, known)}")


def _match(spec: CounterSpec, model: ModelRef) -> int:
    try:
        return int(spec.match(model))
    except BaseException as error:
        if not is_plugin_error(error):
            raise
        logger.exception("counter %s failed to match %s", spec.name, model.name)
        return 0


def _candidate(spec: CounterSpec, match: int, *, reason: str, chosen: bool = False) -> Candidate:
    return Candidate(
        name=spec.name,
        match=match,
        accuracy=spec.accuracy,
        remote=spec.remote,
        chosen=chosen,
        reason=reason,
    )
