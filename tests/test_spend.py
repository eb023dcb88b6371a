"""The money of a session: each request's price, the sums, and the breaks of the provider's cache."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memman import (
    InvalidInput,
    MemmanError,
    MemoryConfig,
    MemoryManager,
    ModelInfo,
    Prices,
    PriceTier,
    ReportedTokens,
    Spend,
    StateError,
    SummaryReply,
    SummaryRequest,
    SummaryUsage,
    events,
)
from memman.counting.pricing import Earlier, breaks_cache, charge_of
from memman.records import Compressed, Cost, Record, SessionTotals, UsageReported
from memman.spend import Charge, LastRequest

AT = datetime(2026, 1, 1, tzinfo=UTC)
MODEL = "claude-sonnet-4-5"
PRICES = Prices(input=3.0, output=15.0, cache_read=0.3, cache_write=3.75, cache_write_1h=6.0)
OPENAI = Prices(input=1.25, output=10.0, cache_read=0.125)
COLD = Earlier(None, uses_cache=False, ttl=300.0)
M = 1_000_000


def report(input_tokens: int = M, **given: Any) -> UsageReported:
    return UsageReported(id="u", at=AT, model=MODEL, input_tokens=input_tokens, **given)


def warm(tokens: int, cacheable: int = 0, *, seconds: float = 60, ttl: float = 300.0) -> Earlier:
    last = LastRequest(AT - timedelta(seconds=seconds), tokens, cacheable)
    return Earlier(last, uses_cache=True, ttl=ttl)


def memory(prices: Prices | None = PRICES, **settings: Any) -> MemoryManager:
    info = ModelInfo(200_000, 200_000, 64_000, prices=prices)
    clock = iter(range(10**6))
    return MemoryManager(
        model=MODEL,
        model_info=info,
        counter="chars4",
        clock=lambda: AT + timedelta(seconds=next(clock)),
        config=MemoryConfig(**settings),
        plugins=(),  # only the prices of a test are known
    )


# ---------------------------------------------------------------- the price of a request


def test_each_part_has_its_price() -> None:
    usage = report(
        10 * M,
        cached_tokens=4 * M,
        cache_written_tokens=3 * M,
        cache_written_1h_tokens=M,
        output_tokens=M,
    )
    charge = charge_of(usage, PRICES, COLD)
    assert charge is not None
    assert (charge.input, charge.cached) == pytest.approx((9.0, 1.2))
    assert (charge.written, charge.output) == pytest.approx((2 * 3.75 + 6.0, 15.0))
    assert charge.total == pytest.approx(9.0 + 1.2 + 13.5 + 15.0)


def test_tier_prices_the_whole_request() -> None:
    tier = PriceTier(above=200_000, input=6.0, output=22.5, cache_read=0.6)
    prices = Prices(input=3.0, output=15.0, cache_read=0.3, tiers=(tier,))
    short = charge_of(report(200_000, output_tokens=1_000), prices, COLD)
    long = charge_of(report(200_001, cached_tokens=100_000, output_tokens=1_000), prices, COLD)
    assert short is not None
    assert long is not None
    assert (short.input, short.output) == pytest.approx((0.6, 0.015))
    assert (long.input, long.cached) == pytest.approx((0.600006, 0.06))
    assert long.output == pytest.approx(0.0225)


@pytest.mark.parametrize(
    "usage",
    [
        {"cached_tokens": 5},
        {"cache_written_tokens": 5},
        {"cache_written_tokens": 5, "cache_written_1h_tokens": 5},
    ],
)
def test_request_with_an_unknown_price_has_none(usage: dict[str, int]) -> None:
    prices = Prices(input=3.0, output=15.0)
    assert charge_of(report(), prices, COLD) is not None
    assert charge_of(report(**usage), prices, COLD) is None
    assert charge_of(report(), None, COLD) is None


def test_uncompressed_input_has_the_hidden_tokens() -> None:
    charge = charge_of(report(M, hidden_tokens=2 * M, output_tokens=M), PRICES, COLD)
    assert charge is not None
    assert charge.uncompressed == pytest.approx(3 * 3.0 + 15.0)


@pytest.mark.parametrize(
    ("earlier", "dollars"),
    [
        (warm(2 * M), 2 * 0.3 + 1 * 3.75),
        (warm(9 * M), 3 * 0.3),
        (warm(2 * M, seconds=301), 3 * 3.75),
        (warm(2 * M, seconds=301, ttl=3_600.0), 2 * 0.3 + 1 * 6.0),
        (COLD._replace(uses_cache=True), 3 * 3.75),
        (warm(2 * M)._replace(ttl=None), 3 * 3.0),
    ],
    ids=["warm", "shorter", "cold", "an hour", "the first", "no cache"],
)
def test_uncompressed_prefix_is_read_while_warm(earlier: Earlier, dollars: float) -> None:
    charge = charge_of(report(M, hidden_tokens=2 * M), PRICES, earlier)
    assert charge is not None
    assert charge.uncompressed == pytest.approx(dollars)


@pytest.mark.parametrize("cached", [0, M // 2, M])
@pytest.mark.parametrize("earlier", [COLD, warm(M), COLD._replace(uses_cache=True)])
def test_request_that_hides_nothing_costs_the_same(cached: int, earlier: Earlier) -> None:
    charge = charge_of(report(M, cached_tokens=cached, output_tokens=M), PRICES, earlier)
    assert charge is not None
    assert charge.uncompressed == charge.total > 15.0


def test_lost_cache_without_compression_saves_nothing() -> None:
    own = memory()
    own.add_user_message("s", "Hello")
    for cached in (0, 9_000, 0, 5_000):
        own.record_usage("s", input_tokens=10_000, cached_tokens=cached)
    assert own.get_stats("s").reported.breaks == 1
    assert spent(own).uncompressed == pytest.approx(spent(own).total)


def test_automatic_cache_bills_no_writes() -> None:
    usage = report(M, cached_tokens=M // 2, hidden_tokens=2 * M)
    charge = charge_of(usage, OPENAI, warm(2 * M))
    assert charge is not None
    assert charge.total == pytest.approx(0.625 + 0.0625)
    assert charge.uncompressed == pytest.approx(2 * 0.125 + 1.25)


# ---------------------------------------------------------------- breaks


@pytest.mark.parametrize(
    ("cached", "earlier", "breaks"),
    [
        (0, warm(9_000, 5_000), True),
        (3_975, warm(9_000, 5_000), True),
        (3_976, warm(9_000, 5_000), False),
        (0, warm(9_000, 5_000, seconds=301), False),
        (0, warm(9_000, 1_024), False),
        (0, COLD, False),
    ],
)
def test_lost_prefix_is_a_break(cached: int, earlier: Earlier, breaks: bool) -> None:
    assert breaks_cache(report(9_000, cached_tokens=cached), earlier) is breaks


def test_break_of_a_session_is_counted() -> None:
    own = memory()
    own.add_user_message("s", "Hello")
    heard: list[events.Usage] = []
    own.on(events.Usage, heard.append)
    for cached, written in ((0, 9_000), (9_000, 500), (100, 9_400), (9_500, 0)):
        own.record_usage(
            "s", input_tokens=9_500, cached_tokens=cached, cache_written_tokens=written
        )
    assert [event.broke_cache for event in heard] == [False, False, True, False]
    spend = own.get_stats("s").spend
    assert spend is not None
    reported = own.get_stats("s").reported
    assert (spend.requests, reported.requests, reported.breaks) == (4, 4, 1)
    own.clear_session("s")
    own.record_usage("s", input_tokens=9_500)
    assert heard[-1].broke_cache is False


def test_automatic_cache_is_lost_if_less_is_read() -> None:
    own = memory(OPENAI)
    own.add_user_message("s", "Hello")
    heard: list[events.Usage] = []
    own.on(events.Usage, heard.append)
    for cached in (0, 0, 8_960, 2_048, 0):  # nothing shows that the first two were cached
        own.record_usage("s", input_tokens=9_500, cached_tokens=cached)
    assert [event.broke_cache for event in heard] == [False, False, False, True, True]


# ---------------------------------------------------------------- sums


def spent(own: MemoryManager, session_id: str = "s") -> Spend:
    spend = own.get_stats(session_id).spend
    assert spend is not None
    return spend


def test_reported_requests_are_summed() -> None:
    own = memory()
    own.add_user_message("s", "Hello")
    for _ in range(3):
        own.record_usage("s", input_tokens=M, output_tokens=M)
    spend = spent(own)
    assert (spend.input, spend.output, spend.total) == pytest.approx((9.0, 45.0, 54.0))
    assert (spend.requests, spend.unpriced) == (3, 0)


def test_session_without_a_known_price_has_no_spend() -> None:
    own = memory(None)
    own.add_user_message("s", "Hello")
    own.record_usage("s", input_tokens=M)
    assert own.get_stats("s").spend is None
    assert own.get_spend() is None
    assert "spend" not in str(own.get_stats("s"))


def test_requests_without_a_price_are_counted() -> None:
    own = memory()
    own.add_user_message("s", "Hello")
    own.record_usage("s", input_tokens=M)
    own.record_usage("s", input_tokens=M, model="no-such-model")
    spend = spent(own)
    assert (spend.requests, spend.unpriced, spend.total) == (2, 1, 3.0)
    assert str(spend).endswith("$3.00 uncompressed; 1 without a known price")


def test_snapshot_of_the_model_has_its_prices() -> None:
    own = memory()
    own.add_user_message("s", "Hello")
    own.record_usage("s", input_tokens=M, model=f"anthropic/{MODEL}-20250929")
    assert spent(own).input == 3.0


def test_compression_lowers_the_cost_of_a_request() -> None:
    own = memory(max_tokens=2_000)
    for number in range(40):
        own.add_user_message("s", f"{number} " + "abc " * 400)
        tokens = own.build_context("s").tokens.tokens
        own.record_usage("s", input_tokens=tokens, output_tokens=10)
    spend, stats = spent(own), own.get_stats("s")
    assert stats.compressed_entries > 0
    assert spend.uncompressed > 3 * spend.total
    last = [item.record for item in own.feed("s") if isinstance(item.record, UsageReported)][-1]
    missing = stats.total_tokens - stats.active_tokens
    assert last.hidden_tokens == missing > 0


class Paid:
    model = MODEL

    def __init__(self, usage: SummaryUsage | None) -> None:
        self.usage = usage

    def summarize(self, request: SummaryRequest) -> SummaryReply:
        return SummaryReply(text="They talked about numbers.", model=MODEL, usage=self.usage)


def summarized(usage: SummaryUsage | None, prices: Prices | None = PRICES) -> MemoryManager:
    own = memory(prices)
    own.set_summarize_callback(Paid(usage))
    for number in range(30):
        own.add_user_message("s", f"{number} " + "abc " * 100)
    own.compress("s", summarize=True)
    return own


def test_summaries_are_priced_with_their_cache() -> None:
    usage = SummaryUsage(10 * M, M, cached_tokens=8 * M, cache_written_tokens=M)
    own = summarized(usage)
    cost = own.get_stats("s").cost
    assert (cost.calls, cost.cached_tokens, cost.cache_written_tokens) == (1, 8 * M, M)
    assert cost.dollars == pytest.approx(3.0 + 2.4 + 3.75 + 15.0)
    assert spent(own).summaries == cost.dollars
    own.clear_session("s")
    assert spent(own).summaries == cost.dollars


def test_summary_without_a_price_is_counted() -> None:
    own = summarized(SummaryUsage(M, M), None)
    assert own.get_stats("s").cost.unpriced == 1
    assert own.get_stats("s").spend is None
    assert summarized(None).get_stats("s").cost.unpriced == 0


@pytest.mark.parametrize("change", ["undo", "retract", "delete"])
def test_money_stays_spent(change: str) -> None:
    own = summarized(SummaryUsage(M, M))
    before = spent(own)
    name = own.get_entries("s")[0].id
    changes: dict[str, Callable[[], Any]] = {
        "undo": lambda: own.undo_compression("s"),
        "retract": lambda: own.retract("s", [name], reason="wrong"),
        "delete": lambda: own.delete_entries("s", [name]),
    }
    changes[change]()
    assert spent(own) == before


def test_spend_of_a_store_is_that_of_its_sessions(tmp_path: Path) -> None:
    info = ModelInfo(200_000, 200_000, 64_000, prices=PRICES)
    with MemoryManager(tmp_path / "chat.db", model=MODEL, model_info=info) as own:
        for name, tokens in (("a:1", M), ("a:2", 2 * M), ("b:1", 4 * M)):
            own.add_user_message(name, "Hello")
            own.record_usage(name, input_tokens=tokens)
    with MemoryManager(tmp_path / "chat.db") as later:
        whole, some = later.get_spend(), later.get_spend(prefix="a:")
        assert whole is not None
        assert some is not None
        assert (whole.input, whole.requests) == (21.0, 3)
        assert (some.input, some.requests) == (9.0, 2)
        assert later.get_spend(prefix="c") is None


def test_export_import_and_fork_keep_the_spend() -> None:
    own = summarized(SummaryUsage(M, M))
    own.record_usage("s", input_tokens=M, cached_tokens=M // 2)
    before = spent(own)
    own.fork_session("s", "fork")
    assert spent(own, "fork") == before
    other = MemoryManager()
    other.import_session(own.export_session("s"))
    assert spent(other) == before


# ---------------------------------------------------------------- data from elsewhere


@pytest.mark.parametrize("amount", [-1.0, 1e10, "NaN", "Infinity", "1e999", '"3"', "true"])
@pytest.mark.parametrize("field", ["input", "uncompressed"])
def test_imported_amount_must_be_dollars(field: str, amount: Any) -> None:
    own = memory()
    own.add_user_message("s", "Hello")
    own.record_usage("s", input_tokens=M)
    plain = json.loads(own.export_session("s").to_json())
    [usage] = [record for record in plain["log"] if record["kind"] == "usage"]
    usage["charge"] = {field: "AMOUNT"}
    document = json.dumps(plain).replace('"AMOUNT"', str(amount))
    other = MemoryManager()
    with pytest.raises(InvalidInput):
        other.import_session(document)
    assert other.list_sessions() == []


def test_imported_cost_must_be_dollars() -> None:
    own = summarized(SummaryUsage(M, M))
    plain = json.loads(own.export_session("s").to_json())
    [made] = [record for record in plain["log"] if record["kind"] == "compressed"]
    made["cost"]["dollars"] = -1.0
    with pytest.raises(StateError, match="US dollars"):
        MemoryManager().import_session(plain)


# ---------------------------------------------------------------- laws

AMOUNTS = st.floats(0, 1e6)
CHARGES = st.builds(Charge, AMOUNTS, AMOUNTS, AMOUNTS, AMOUNTS, AMOUNTS)
USAGES = st.builds(
    lambda charge, broke: report(charge=charge, broke_cache=broke),
    st.none() | CHARGES,
    st.booleans(),
)
COSTS = st.builds(
    lambda dollars, unpriced: Compressed(
        id="c", at=AT, replacements=(), reason="", tokens_before=1, tokens_after=1,
        cost=Cost(1, dollars=dollars, unpriced=unpriced),
    ),
    AMOUNTS,
    st.integers(0, 3),
)  # fmt: skip
RECORDS = st.lists(USAGES | COSTS, max_size=30)


def totals_after(records: list[Record]) -> SessionTotals:
    return reduce(lambda totals, each: totals.after(1, each), records, SessionTotals())


def folded(records: list[Record]) -> Spend:
    return totals_after(records).spend


@given(RECORDS)
def test_sum_of_the_parts_is_the_total(records: list[Record]) -> None:
    spend = folded(records)
    charges = [each.charge for each in records if isinstance(each, UsageReported) and each.charge]
    costs = [each.cost for each in records if isinstance(each, Compressed)]
    expected = sum(each.total for each in charges) + sum(each.dollars for each in costs)
    assert spend.total == pytest.approx(expected)
    assert spend.uncompressed == pytest.approx(sum(each.uncompressed for each in charges))
    reports = [each for each in records if isinstance(each, UsageReported)]
    unpriced = sum(each.charge is None for each in reports) + sum(each.unpriced for each in costs)
    assert (spend.requests, spend.unpriced) == (len(reports), unpriced)


@given(RECORDS)
def test_reported_tokens_are_summed_apart(records: list[Record]) -> None:
    found = totals_after(records).reported
    reports = [each for each in records if isinstance(each, UsageReported)]
    assert found == ReportedTokens(
        requests=len(reports),
        input=sum(each.input_tokens for each in reports),
        cached=sum(each.cached_tokens for each in reports),
        written=sum(each.cache_written_tokens for each in reports),
        output=sum(each.output_tokens for each in reports),
        breaks=sum(each.broke_cache for each in reports),
    )


@given(RECORDS, st.integers(0, 30))
def test_spend_of_two_parts_is_their_sum(records: list[Record], cut: int) -> None:
    first, second = folded(records[:cut]), folded(records[cut:])
    whole, both = folded(records), first.plus(second)
    for name in Spend.__struct_fields__:
        assert getattr(both, name) == pytest.approx(getattr(whole, name))


ACTIONS = st.lists(
    st.sampled_from(["add", "use", "compress", "undo", "clear", "unpriced"]), max_size=25
)


@given(ACTIONS)
def test_every_life_of_a_session_keeps_its_spend(actions: list[str]) -> None:
    own = memory()
    own.set_summarize_callback(Paid(SummaryUsage(1_000, 100)))
    own.add_user_message("s", "Hello")
    for action in actions:
        _act(own, action)
        before = own.get_stats("s").spend
        reports = [each.record for each in own.feed("s")]
        assert (before or Spend()).requests in (
            0,
            sum(isinstance(each, UsageReported) for each in reports),
        )
    other = MemoryManager()
    other.import_session(own.export_session("s"))
    own.fork_session("s", "fork")
    assert other.get_stats("s").spend == own.get_stats("s").spend == own.get_stats("fork").spend


def _act(own: MemoryManager, action: str) -> None:
    before = own.get_stats("s").spend
    match action:
        case "add":
            own.add_user_message("s", "abc " * 300)
        case "use":
            own.record_usage("s", input_tokens=5_000, cached_tokens=2_000, output_tokens=10)
        case "unpriced":
            own.record_usage("s", input_tokens=5_000, model="no-such-model")
        case "compress":
            own.compress("s", summarize=True)
        case "clear":
            own.clear_session("s")
            own.add_user_message("s", "Hello again")
        case "undo":
            with suppress(MemmanError):
                own.undo_compression("s")
            assert own.get_stats("s").spend == before
