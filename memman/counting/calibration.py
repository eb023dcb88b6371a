"""What providers' reports teach about our own counts.

A request costs what is in no entry (a system prompt, tools) plus a nearly constant ratio of what we count.
Both are learned from the reports of a session, per model. Between two reports only what was added since is
estimated, so an error in the whole does not come again with each request; after a compression the ratio
stays, and the rest is what was reported less what the ratio explains.

Measured on recorded coding conversations with `python -m benchmarks.calibration`; the figures are in
`docs/explanation/counts.md`.
"""

from __future__ import annotations

from memman.records import LEAST_RATIO, MOST_RATIO, Learned

_PRIOR_WEIGHT = 2_000.0  # tokens: what a counter's own figure weighs against the first reports
_MEMORY = (
    0.98  # of what was learned counts at the next report, so that a change of topic is followed
)
_MOST_JUMP = (
    2.0  # a step beyond this ratio, either way, is something hidden, not the counter's error
)
UNLEARNED = Learned(ratio=1.0, weight=_PRIOR_WEIGHT, overhead=0.0)


def learn(
    before: Learned | None, reported: int, estimated: int, last: tuple[int, int] | None
) -> Learned:
    """What is known after a report.

    Args:
        before: what was known.
        reported: input tokens of the request, cached or not.
        estimated: our own figure for the same request, with nothing learned in it.
        last: the two figures at the report before, None where the window changed shape since.
    """
    known = before or UNLEARNED
    ratio, weight = known.ratio, known.weight
    if last is not None:
        more, counted = reported - last[0], estimated - last[1]
        if more > 0 and counted > 0:
            step = min(max(more, counted / _MOST_JUMP), counted * _MOST_JUMP)
            old = weight * _MEMORY
            ratio = (ratio * old + step) / (old + counted)
            weight = old + counted
    ratio = min(max(ratio, LEAST_RATIO), MOST_RATIO)
    return Learned(ratio=ratio, weight=weight, overhead=reported - ratio * estimated)


def predicted(known: Learned, estimated: int, *, anchored: bool) -> int:
    """What a provider will report for a request that we count as `estimated`.

    `anchored` says that the window still has the shape that the last report was about: then even a
    negative rest is part of the figure that was reported.
    """
    overhead = known.overhead if anchored else max(0.0, known.overhead)
    return max(0, round(overhead + known.ratio * estimated))
