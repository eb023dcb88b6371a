"""One run of a strategy: what it began with, the requests of its plan, and what came of them."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from math import inf

import msgspec

from memman.compression import Goal, SummaryFailure, SummaryOptions, SummaryProblem, View
from memman.compression.summarize import Answer, Request
from memman.protocols import SummaryReply, SummaryRequest, SummaryUsage
from memman.records import NO_COST, Cost
from memman.session.reasons import Unasked
from memman.summarizers import Asker

_MOST_TIMEOUTS = 10  # that all calls of one run may take


class RunInput(msgspec.Struct, frozen=True):
    """What a compression begins with: the window at an epoch, the goal, and who may be asked."""

    view: View
    goal: Goal
    options: SummaryOptions
    epoch: int
    summarizer: Asker | None
    unasked: Unasked


class CompressionRun:
    """A plan under way: it makes requests, and is given their answers."""

    def __init__(
        self, given: RunInput, plan: Generator[Request, Answer, View], timeout: float | None
    ) -> None:
        self.given = given
        self.after = given.view  # the view that the plan came to
        self.cost: Cost = NO_COST
        self.problem = ""  # the last one of the summarizer
        self.truncated = False  # a summary was too long
        self._plan = plan
        self._timeout = timeout  # of one call, in seconds
        self._answer: Answer = None

    def requests(self) -> Iterator[Request]:
        """Yield the plan's requests; each is answered, if at all, before the next."""
        while True:
            try:
                request = self._plan.send(self._answer)
            except StopIteration as end:
                self.after = end.value
                return
            self._answer = None
            if isinstance(request, SummaryProblem):
                self.problem = request.reason
                self.truncated = self.truncated or request.clipped
            if not isinstance(request, SummaryRequest):
                yield request
            elif self.cost.seconds > _MOST_TIMEOUTS * (self._timeout or inf):
                cost = self.cost
                reason = f"its {cost.calls} calls took {cost.seconds:.0f} s in all"
                self._answer = SummaryFailure(reason)
            else:
                yield msgspec.structs.replace(request, timeout=self._timeout)

    def finish(self) -> View:
        """Return the view of a plan that makes no requests, such as a dry run."""
        for request in self.requests():
            raise RuntimeError(f"this plan must not request a {type(request).__name__}")
        return self.after

    def answer(self, answer: Answer) -> None:
        """Take the answer to the last request."""
        self._answer = answer

    def answer_summary(self, reply: object) -> None:
        """Take what the summarizer returned; anything but a reply with a text is a failure."""
        if isinstance(reply, SummaryReply) and isinstance(reply.text, str):
            self._answer = reply
        else:
            self._answer = SummaryFailure(
                f"the summarizer returned {type(reply).__name__}, not text"
            )

    def charge(self, seconds: float) -> Cost:
        """Add and return the cost of the call that was just answered; nothing if it was not made."""
        answer = self._answer
        if isinstance(answer, SummaryFailure) and answer.unasked:
            return NO_COST
        usage, model = SummaryUsage(), None
        if isinstance(answer, SummaryReply):
            usage, model = answer.usage or usage, answer.model
        cost = Cost(1, seconds, usage.input_tokens, usage.output_tokens, model)
        self.cost = self.cost.plus(cost)
        return cost
