"""The outlines of docs/explanation/outlines.md: the wishes in them, and the beginnings of their lines."""

from __future__ import annotations

import re

import pytest

from benchmarks import outlines

WISHES = {
    "coding": (
        "Use Decimal for all money, and do not touch migrations/.",
        "Leave the old rows alone for now, the accountant corrects them by hand.",
        "Please run the whole test suite after each change, not single files.",
        "And round half up everywhere, the tax office wants that.",
    ),
    "support": (
        "Only after 5 pm, or on Saturday. And never leave it with the neighbours",
        "I have guests on 24 October and need it by then.",
        "The new address is Rosenstrasse 17, 79102 Freiburg.",
    ),
    "chinese": (
        "海拔超过三千米的地方不要去。",
        "全程坐高铁。",
        "千万不要安排菌子火锅。",
    ),
    "dialogue": ("I do not eat fish any more, so no smoked eel this time.",),
}
BEGINNING = re.compile(
    r"#\d+ |- |  |\[(end of )?memman outline, |\d+ entries, #"
    r"|(What was said and done, oldest first|Open tasks|Values in use|Other exact values):$"
)


def test_each_session_has_wishes() -> None:
    assert WISHES.keys() == outlines.BUDGETS.keys()


@pytest.mark.parametrize("name", WISHES)
def test_outline_has_wishes_whole(name: str) -> None:
    outline = outlines.outline(name)
    assert [wish for wish in WISHES[name] if wish not in outline] == []


@pytest.mark.parametrize("name", WISHES)
def test_lines_begin_as_documented(name: str) -> None:
    lines = outlines.outline(name).splitlines()
    assert [line for line in lines if not BEGINNING.match(line)] == []


def test_outline_is_empty_while_all_fits() -> None:
    assert outlines.outline("dialogue", 50_000) == ""


def test_command_prints_the_outline(capsys: pytest.CaptureFixture[str]) -> None:
    assert outlines.main(["dialogue"]) == 0
    assert "\n#21 user Tom: I do not eat fish any more" in capsys.readouterr().out
