"""The bill of one conversation in a large window, with a trigger by share alone and with the upper bounds.

    python -m benchmarks.ceilings [--requests 400]

Each turn adds 2,000 tokens, and a request follows it. Input that the previous request began with is read
from the provider's cache, the rest is paid in full (OpenAI's rules); output, the same everywhere, is left
out. Windows are those of memman's table, prices the list prices of November 2026 with their step.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from itertools import takewhile

from benchmarks.tables import table
from benchmarks.tokens import chars4
from memman import MemoryConfig, MemoryManager
from memman.config import usable_input
from memman.counting.limits import known_limits
from memman.counting.pricing import charge_of_call
from memman.protocols import Prices, PriceTier
from memman.spend import BilledTokens

_TURN = 1_000  # tokens of each of a turn's two messages
_STEP = PriceTier(above=272_000, input=10.0, output=45.0, cache_read=1.0)
MODELS = {
    "openai/gpt-5.5": Prices(input=5.0, output=30.0, cache_read=0.5, tiers=(_STEP,)),
    "gemini/gemini-3-pro-preview": Prices(
        input=2.0,
        output=12.0,
        cache_read=0.2,
        tiers=(PriceTier(above=200_000, input=4.0, output=18.0, cache_read=0.4),),
    ),
}


def policies(model: str) -> dict[str, MemoryConfig]:
    """Return settings by name: by share alone, below the price step, the default, and a smaller trigger."""
    limits = dict(known_limits())[model].limits
    most = int(MemoryConfig().trigger_ratio * usable_input(limits))
    step = MODELS[model].tiers[0].above
    return {
        "0.8 of the window, to a half": _to_a_half(most),
        "0.8 of the price step, to a half": _to_a_half(step * 4 // 5),
        "200,000, to a half": _to_a_half(200_000),
        "default": MemoryConfig(),
        "100,000": MemoryConfig(max_tokens=100_000),
    }


def _to_a_half(max_tokens: int) -> MemoryConfig:
    return MemoryConfig(max_tokens=max_tokens, reserve_output=0, target_ratio=0.5)


def bill(model: str, config: MemoryConfig, requests: int) -> tuple[float, int, int, int]:
    """Return the dollars of a conversation's input, its compressions, its trigger and its target."""
    dollars, before = 0.0, list[str]()
    with MemoryManager(model=model, config=config, counter="chars4") as memory:
        done = list[object]()
        memory.on("compress", done.append)
        for number in range(requests):
            for role in ("user", "assistant"):
                text = f"{role} {number}: " + "some words of a long turn " * (_TURN * 4 // 26)
                memory.add_messages("s", [{"role": role, "content": text}])
            texts = [str(message) for message in memory.build_context("s").messages]
            same = takewhile(lambda pair: pair[0] == pair[1], zip(before, texts, strict=False))
            read = sum(chars4(text) for text, _ in same)
            given = sum(map(chars4, texts))
            charge = charge_of_call(BilledTokens(None, given, 0, read), MODELS[model])
            dollars, before = dollars + (charge.total if charge else 0.0), texts
        plan = memory.plan_compression("s")
        return dollars, len(done), memory.get_stats("s").max_tokens, plan.target_tokens


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ceilings", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--requests", type=int, default=400)
    options = parser.parse_args(arguments)
    lines = list[list[object]]()
    for model in MODELS:
        for name, config in policies(model).items():
            dollars, times, trigger, target = bill(model, config, options.requests)
            lines.append([model, name, trigger, target, times, f"${dollars:.2f}"])
    print(table(("model", "policy", "trigger", "target", "compressions", "input"), lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
