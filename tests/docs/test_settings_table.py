"""`docs/reference/settings.md` and `MemoryConfig` are one table."""

from __future__ import annotations

import ast
from typing import Any

from msgspec import UNSET

from memman import MemoryConfig
from tests.docs.pages import code, table

ROWS = table("reference/settings.md", "setting")


def _default(cell: str) -> Any:
    return UNSET if cell == "unset" else ast.literal_eval(code(cell)[0])


def test_the_table_has_every_setting_in_the_order_of_the_config() -> None:
    assert [code(row["setting"])[0] for row in ROWS] == list(MemoryConfig.__struct_fields__)


def test_each_default_is_the_one_in_the_config() -> None:
    shown = {code(row["setting"])[0]: _default(row["default"]) for row in ROWS}
    config = MemoryConfig()
    actual = {name: getattr(config, name) for name in MemoryConfig.__struct_fields__}
    assert shown == actual
    assert [type(value) for value in shown.values()] == [type(value) for value in actual.values()]


def test_each_setting_has_a_meaning_and_a_reason() -> None:
    assert all(row["meaning"] and row["why this default"] for row in ROWS)
