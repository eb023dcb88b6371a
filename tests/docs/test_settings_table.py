"""`docs/reference/settings.md` matches `MemoryConfig`."""

from __future__ import annotations

import ast
from typing import Any

import pytest
from msgspec import UNSET

from memman import MemoryConfig, compression
from memman.compression.strategies import PRESETS, stages_of
from memman.config import SETTINGS
from tests.docs.pages import code, table

ROWS = table("reference/settings.md", "setting")
PRESET_ROWS = {code(row["preset"])[0]: row for row in table("reference/settings.md", "preset")}


def _default(cell: str) -> Any:
    return UNSET if cell == "unset" else ast.literal_eval(code(cell)[0])


def test_settings_table_has_every_setting_in_order() -> None:
    assert [code(row["setting"])[0] for row in ROWS] == list(SETTINGS)


def test_defaults_match_the_config() -> None:
    shown = {code(row["setting"])[0]: _default(row["default"]) for row in ROWS}
    config = MemoryConfig()
    actual = {name: getattr(config, name) for name in SETTINGS}
    assert shown == actual
    assert [type(value) for value in shown.values()] == [type(value) for value in actual.values()]


def test_settings_have_meaning_and_reason() -> None:
    assert all(row["meaning"] and row["why this default"] for row in ROWS)


def test_presets_match_the_code() -> None:
    assert [name.removesuffix("(n)") for name in PRESET_ROWS] == list(PRESETS)


@pytest.mark.parametrize("name", PRESET_ROWS)
def test_preset_has_the_steps_of_its_row(name: str) -> None:
    steps = stages_of(name.replace("(n)", "(7)"))
    names = {id(value): name for name, value in vars(compression).items()}
    shown = [
        step if isinstance(step, str) else names.get(id(step), f"unexported {step}")
        for step in steps
    ]
    assert code(PRESET_ROWS[name]["steps"]) == shown


@pytest.mark.parametrize("name", PRESET_ROWS)
def test_preset_changes_only_the_listed_defaults(name: str) -> None:
    plain = MemoryConfig()
    config = MemoryConfig(strategy=name.replace("(n)", "(7)"))
    changed = [
        f"{setting}={getattr(config, setting)!r}"
        for setting in SETTINGS
        if setting != "strategy" and getattr(config, setting) != getattr(plain, setting)
    ]
    assert code(PRESET_ROWS[name]["its defaults"].replace("=n`", "=7`")) == changed
