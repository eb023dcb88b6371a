"""Calibration of our counts by the tokens that providers report.

A request costs the tokens of no entry (a system prompt, tools) plus a nearly constant ratio of our count.
Both are learned from the reports of a session, per model. Between two reports only additions are
estimated, so an error in the whole does not recur with each request. A compression keeps the ratio; the
overhead is the report minus the part that the ratio explains.

Measured on recorded coding conversations with `python -m benchmarks.calibration`;
`docs/explanation/counts.md` has the figures.
"""

from __future__ import annotations

from memman.records import LEAST_RATIO, MOST_RATIO, Learned

_PRIOR_WEIGHT = 2_000.0  # tokens: the weight of a counter's own figure against the first reports
_MEMORY = 0.98  # of the past counts at the next report, so that the ratio follows a change of topic
# A step beyond this ratio, either way, has a hidden cause and is not the counter's error.
_MOST_JUMP = 2.0
UNLEARNED = Learned(ratio=1.0, weight=_PRIOR_WEIGHT, overhead=0.0)


def learn(
    before: Learned | None, reported: int, estimated: int, last: tuple[int, int] | None
) -> Learned:
    """Return the calibration after a report.

    Args:
        before: the calibration so far.
        reported: input tokens of the request, cached or not.
        estimated: our figure for the same request, without calibration.
        last: the two figures of the previous report, None if the window changed shape since.
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
    """Return the tokens that a provider will report for a request that we count as `estimated`.

    `anchored`: the window still has the shape of the last report, so a negative overhead counts, too.
    """
    overhead = known.overhead if anchored else max(0.0, known.overhead)
    return max(0, round(overhead + known.ratio * estimated))
