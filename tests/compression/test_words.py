"""Words and exact values of texts in any language."""

from __future__ import annotations

import json
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memman.compression.words import JOINTS, exact_values, stands_alone, sure_values, words_of
from memman.compression.working_set import paths_of


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("\u4ed6\u5728\u4e0a\u6d77\u5de5\u4f5c\u3002", "\u4e0a\u6d77"),
        ("M\u00fcnchen ist sch\u00f6n.", "m\u00fcnchen"),
    ],
)
def test_words_are_found_in_scripts_with_and_without_spaces(text: str, word: str) -> None:
    assert word in words_of(text)


def test_function_words_are_left_out() -> None:
    assert words_of("They would have been there, und das ist nicht alles.") == frozenset()


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("see src/memman/window.py and ./run.sh", ["src/memman/window.py", "./run.sh"]),
        (
            "/home/j\u00f6rg/a_1.txt of jo\u0308rg@example.org",
            ["/home/j\u00f6rg/a_1.txt", "jo\u0308rg@example.org"],
        ),
        (
            "\u043f\u0443\u0442\u044c \u043e\u0442\u0447\u0451\u0442.txt",
            ["\u043e\u0442\u0447\u0451\u0442.txt"],
        ),
        ("\u6587\u4ef6/etc/a.yaml\uff0c\u7aef\u53e38080\u3002", ["/etc/a.yaml", "8080"]),
        ("\ud3ec\ud2b8\ub294 8080\uc740 \u201ev1.2\u201c", ["8080", "v1.2"]),
        ("at https://example.org/a?b=1, by a.b@c.de", ["https://example.org/a?b=1", "a.b@c.de"]),
        ("on 2026-11-21 for $1,200.50", ["2026-11-21", "$1,200.50"]),
        ("user_id and camelCase and HTTP", ["user_id", "camelCase", "HTTP"]),
        ("--limit=4000 or so", ["4000"]),
        ("and/or, self-made, well... no", []),
        ("a.py:1 a.py:2 a.py:3 db.example.org:5433", ["a.py", "db.example.org:5433"]),
        ("\u7528\u6237ORD-4711\u5728", ["ORD-4711"]),
        ("Yes! Sure, Nobody: knows.", []),
        ("one,ORD-4711,two", ["ORD-4711"]),
        (r'{"code": "\nfoo_1\nimport x_yz\n\t\u003cA1B2\u003e"}', ["foo_1", "x_yz", "A1B2"]),
        (r'{"say": "the \"id_17\" of', ["id_17"]),
        (r'["cat /etc/hosts\n", {"path": "C:\\new\\t_1"}]', ["/etc/hosts", r"C:\\new\\t_1"]),
        (r"in C:\new\t_1 there", [r"C:\new\t_1"]),
    ],
)
def test_exact_values(text: str, values: list[str]) -> None:
    assert exact_values(text) == values


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("配置文件在/etc/应用/设置.toml。端口8080", ["/etc/应用/设置.toml", "8080"]),
        ("อยู่ที่ /srv/แอป/config.toml และ id_17", ["/srv/แอป/config.toml", "id_17"]),
        ("फ़ाइल /srv/साझा/टिप्पणी में है", ["/srv/साझा/टिप्पणी"]),
        ('{"path": "/home/사용자/문서"}', ["/home/사용자/문서"]),
        ("في /home/أحمد/ملف.txt، و https://ar.wikipedia.org/wiki/القاهرة.",
         ["/home/أحمد/ملف.txt", "https://ar.wikipedia.org/wiki/القاهرة"]),
        ("log=/var/日志/a_1.log:12在", ["/var/日志/a_1.log:12"]),
        ("在/etc/应用/里", []),
        ("在/etc/应用服务器上运行\uff0c请看/etc/b.yaml", ["/etc/b.yaml"]),
        ("/etc/a.yaml和/etc/b.yaml", ["/etc/a.yaml", "/etc/b.yaml"]),
        ("/etc/应用/a.yaml和/etc/b.yaml", ["/etc/应用/a.yaml", "/etc/b.yaml"]),
        ("日期2024/11/21/星期四", ["2024/11/21/"]),
        ("读/写/执行 user_id/用户编号在", ["user_id/"]),
    ],
)  # fmt: skip
def test_path_in_another_script_is_whole_or_left_out(text: str, values: list[str]) -> None:
    assert exact_values(text) == values
    assert sure_values(text, 1_000) == values


def test_long_text_is_read_at_both_ends_without_torn_values() -> None:
    text = " ".join(f"id-{number:06d}" for number in range(1_000))
    found = sure_values(text, 200)
    assert found[0] == "id-000000"
    assert found[-1] == "id-000999"
    assert len(found) < 25
    assert set(found) <= set(exact_values(text))
    assert sure_values("a1b2" * 500, 200) == []  # one run without a visible end


def test_the_end_of_a_long_json_text_is_read_as_json_too() -> None:
    text = '{"text": "' + "nothing here " * 100 + r'\nid_17\nid_18"}'
    assert sure_values(text, 200) == ["id_17", "id_18"]


@given(st.text("ab1_./@ ,:-", max_size=80))
def test_sure_values_are_the_exact_ones_that_have_a_mark(text: str) -> None:
    marked = [value for value in exact_values(text) if set(value) & set("1_@/")]
    assert sure_values(text, 1_000) == marked


def test_a_path_in_two_scripts_is_found_in_linear_time() -> None:
    def seconds(piece: str, times: int) -> float:
        began = process_time()
        exact_values(piece * times)
        return process_time() - began

    for piece in ("a/应", "/应", "/应-", "应.a", "/a.应", "应/a/", "a-"):
        assert seconds(piece, 20_000) < 1


@given(
    st.text(max_size=200)
    | st.text('{["\\nu01a_ ', max_size=60)
    | st.text("a1_/. ,=-\u5e94\u0e01", max_size=40),
    st.integers(0, 100),
)
def test_value_is_in_its_text_without_blank_or_bracket(text: str, most: int) -> None:
    sure = sure_values(text, most)
    assert set(sure) <= set(exact_values(text)) or len(text) > most
    for value in [*exact_values(text), *sure]:
        assert value in text
        assert not set(value) & set(" \n\t;[]()<>{}|\"'`")


def test_json_within_json_has_its_escapes_taken_out_too() -> None:
    inner = json.dumps({"cmd": 'cat src/one.py\nrun\tsrc/two.py\n"src/three.py"'})
    assert "one.py\\nrun" in inner
    found = ["src/one.py", "src/two.py", "src/three.py"]
    assert exact_values(inner) == exact_values(json.dumps({"input": inner})) == found


def test_backslash_before_a_letter_is_not_a_json_escape() -> None:
    assert exact_values(json.dumps({"path": "C:\\new\\table.txt"})) == [r"C:\\new\\table.txt"]


@pytest.mark.parametrize(
    ("value", "text", "expected"),
    [
        ("src/a.py", "see src/a.py.", True),
        ("src/a.py", "\u6253\u5f00src/a.py\u6587\u4ef6", True),
        ("src/a.py", "src/a.pyi, then src/a.py", True),
        ("src/a.py", "lib/src/a.py", False),
        ("src/a.py", "src/a.py.bak", False),
        ("ORD-4", "ORD-4/19", False),
        ("ORD-4", "ORD-4-1", False),
        ("2.3", "1.2.3", False),
        ("ORD-9/1", "ORD-9/12", False),
    ],
)
def test_value_stands_alone_unless_something_goes_on_with_it(
    value: str, text: str, expected: bool
) -> None:
    assert stands_alone(value, text, JOINTS) is expected


def test_numbers_for_each_of_something_are_no_paths() -> None:
    rates = "198\u5143/\u665a 5km/h \u8f6630\u5143/\u4eba"
    paths = ["./src", "../docs/a.md", ".git/hooks", "2024/docs.md", "src/a.py"]
    assert list(paths_of(f"{rates} {' '.join(paths)}")) == paths
