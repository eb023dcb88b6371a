"""One run of a strategy: its input, the requests of its plan, and the outcome."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from math import inf

import msgspec

from memman.compression import Goal, View
from memman.compression.summarize import (
    Answer,
    Request,
    SummaryFailure,
    SummaryOptions,
    SummaryProblem,
)
from memman.config import SUMMARISE
from memman.counting.pricing import charge_of_call
from memman.display import without_message
from memman.protocols import Prices, SummaryReply, SummaryRequest
from memman.records import NO_COST, Cost, Replacement
from memman.session.reasons import (
    Unasked,
    what_stays,
    what_was_done,
    why_few,
    why_short,
    why_summarizer,
)
from memman.session.shared import ResolvedConfig
from memman.summarizers import Asker

_MOST_TIMEOUTS = 10  # that all calls of one run may take


class RunInput(msgspec.Struct, frozen=True):
    """The input of a compression: the window at an epoch, the goal, the summarizer and the settings.

    `tokens` are those of the window with its outline.
    """

    view: View
    goal: Goal
    options: SummaryOptions
    epoch: int
    summarizer: Asker | None
    unasked: Unasked
    resolved: ResolvedConfig
    tokens: int


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
        self._left = timeout  # for the next call
        self._on_prefix = False  # the last call

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
            elif self._left is not None and self._left <= 0:
                self._answer, self._left = SummaryFailure(self.problem), self._timeout
            else:
                self._on_prefix = request.prefix is not None
                yield msgspec.structs.replace(request, timeout=self._left)

    def settle(self, after: View, outline: int) -> None:
        """Take the view with what still fits put back, and the tokens that the outline really has."""
        goal = self.given.goal
        free = goal.state_tokens - outline
        goal = msgspec.structs.replace(
            goal, tokens=goal.tokens + free, limit=goal.limit + free, state_tokens=outline
        )
        self.after, self.given = after, msgspec.structs.replace(self.given, goal=goal)

    def answer(self, answer: Answer) -> None:
        """Take the answer to the last request."""
        self._answer = answer

    def answer_summary(self, reply: object) -> None:
        """Take the summarizer's reply; anything but a reply with a text is a failure."""
        if isinstance(reply, SummaryReply) and isinstance(reply.text, str):
            self._answer = reply
        else:
            self._answer = SummaryFailure(
                f"the summarizer returned {type(reply).__name__}, not text"
            )

    def charge(self, seconds: float, prices: Callable[[str], Prices | None]) -> Cost:
        """Add and return the cost of the call that was just answered; nothing if it was not made.

        `prices` returns those of a model, None if they are unknown.
        """
        answer = self._answer
        if isinstance(answer, SummaryFailure) and answer.unasked:
            return NO_COST
        # The ordinary prompt that follows a failure on the prefix has the rest of the time.
        used = seconds if self._on_prefix and isinstance(answer, SummaryFailure) else 0.0
        self._left = None if self._timeout is None else self._timeout - used
        cost = Cost(1, seconds)
        if isinstance(answer, SummaryReply):
            cost = self._cost_of(answer, seconds, prices)
        self.cost = self.cost.plus(cost)
        return cost

    def _cost_of(
        self, reply: SummaryReply, seconds: float, prices: Callable[[str], Prices | None]
    ) -> Cost:
        usage = reply.usage
        if usage is None:
            return Cost(1, seconds, model=reply.model)
        asker = self.given.summarizer
        model = (None if asker is None else asker.model) or reply.model
        charge = charge_of_call(usage, None if model is None else prices(model))
        return Cost(
            calls=1,
            seconds=seconds,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            model=reply.model,
            cached_tokens=usage.cached_tokens,
            cache_written_tokens=usage.cache_written_tokens,
            dollars=0.0 if charge is None else charge.total,
            unpriced=int(charge is None),
        )

    # ------------------------------------------------------------ reasons

    def reason(self, trigger: str, replacements: Sequence[Replacement]) -> str:
        """Return the reason of the record: a clause for the trigger and for each step."""
        clauses = [
            trigger,
            *what_was_done(replacements),
            self._why_summarizer(replacements),
            why_short(self.after, self.given.goal, self.given.resolved.stages),
        ]
        return "; ".join(filter(None, clauses))

    def why_nothing(self) -> str:
        """Return why the plan replaces nothing."""
        given = self.given
        view, goal, stages = given.view, given.goal, given.resolved.stages
        if not stages:
            return f"nothing was changed: {self.never}"
        if goal.holds(view.tokens, view.entries) and not view.old_entries:
            why = "every entry is recent or protected"
        elif goal.holds(view.tokens, view.entries) and not goal.thorough:
            target = goal.tokens + goal.state_tokens
            why = f"the window has {given.tokens} tokens, and the target is {target}"
        else:
            why = what_stays(view, goal, stages)
        summarizer = self._why_summarizer(()) if view.old_entries else ""
        return "; ".join(filter(None, (f"nothing was changed: {why}", summarizer)))

    @property
    def never(self) -> str:
        """The reason if the strategy has no stages; else ""."""
        resolved = self.given.resolved
        name = resolved.config.strategy
        return "" if resolved.stages else f"the strategy {name!r} never compresses"

    def _why_summarizer(self, replacements: Sequence[Replacement]) -> str:
        """Return whether the summarizer was called, and why; "" if the strategy never calls one."""
        given = self.given
        if SUMMARISE not in given.resolved.stages:
            return ""
        methods = [item.method for item in replacements]
        few, problem = why_few(given.view, given.goal), without_message(self.problem)
        return why_summarizer(methods, self.cost.calls, problem, given.unasked, few)
