"""A question finds what it finds without the sentences before it, in any language and by any store."""

# ruff: noqa: RUF001 - letters of other scripts are the point

from __future__ import annotations

from typing import Any

import pytest

from memman import MemoryManager

# A statement, a question about it, and sentences about other subjects, which precede the question.
SAID = {
    "English": (
        "The staging server answers on port 7412 since Monday.",
        "On which port does the staging server answer?",
        "We talked about the garden and the new curtains for a long time yesterday evening.",
    ),
    "German": (
        "Die Rechnung der Tischlerei liegt im blauen Ordner.",
        "In welchem Ordner liegt die Rechnung der Tischlerei?",
        "Gestern haben wir lange über den Garten und die neuen Vorhänge gesprochen.",
    ),
    "French": (
        "Le serrurier viendra changer la serrure du garage.",
        "Qui doit changer la serrure du garage ?",
        "Hier soir nous avons longuement parlé du jardin et des nouveaux rideaux.",
    ),
    "Spanish": (
        "La contraseña del trastero está debajo de la maceta.",
        "¿Dónde está la contraseña del trastero?",
        "Ayer por la tarde hablamos mucho tiempo del jardín y de las cortinas nuevas.",
    ),
    "Russian": (
        "Ключ от подвала лежит у соседки на третьем этаже.",
        "У кого лежит ключ от подвала?",
        "Вчера вечером мы долго говорили о саде и о новых занавесках.",
    ),
    "Turkish": (
        "Bodrumun anahtarı üçüncü kattaki komşuda duruyor.",
        "Bodrumun anahtarı kimde duruyor?",
        "Dün akşam uzun uzun bahçeden ve yeni perdelerden konuştuk.",
    ),
    "Finnish": (
        "Kellarin avain on naapurilla kolmannessa kerroksessa.",
        "Kenellä kellarin avain on?",
        "Eilen illalla puhuimme pitkään puutarhasta ja uusista verhoista.",
    ),
    "Chinese": (
        "地下室的钥匙放在三楼邻居那里。",
        "地下室的钥匙放在哪里?",
        "昨天晚上我们聊了很久花园和新窗帘的事情,还说到了周末的旅行计划。",
    ),
    "Japanese": (
        "地下室の鍵は三階の隣人に預けてあります。",
        "地下室の鍵は誰に預けましたか?",
        "昨日の夜は庭と新しいカーテンのことを長い時間話しました。",
    ),
    "Korean": (
        "지하실 열쇠는 삼층 이웃에게 맡겨 두었습니다.",
        "지하실 열쇠를 누구에게 맡겼습니까?",
        "어제저녁에 우리는 정원과 새 커튼에 대해 오랫동안 이야기했습니다.",
    ),
    "Thai": (
        "กุญแจห้องใต้ดินอยู่กับเพื่อนบ้านชั้นสาม",
        "กุญแจห้องใต้ดินอยู่กับใคร",
        "เมื่อคืนเราคุยกันเรื่องสวนและผ้าม่านใหม่เป็นเวลานาน",
    ),
}


def memory_of(store: Any, language: str) -> MemoryManager:
    """Return a memory in which the fact is one of forty messages, and each other sentence is said often."""
    memory = MemoryManager(store)
    said, _, other = SAID[language]
    for number in range(40):
        memory.add_user_message("s", said if number == 11 else f"{other} ({number})")
    return memory


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("language", SAID)
def test_question_is_found_behind_other_sentences(language, stored, tmp_path):
    said, question, other = SAID[language]
    with memory_of(tmp_path / "chat.db" if stored else None, language) as memory:
        for before in range(5):
            hits = memory.search("s", f"{other} " * before + question, limit=3)
            assert said in [hit.entry.content for hit in hits], before


@pytest.mark.parametrize("stored", [False, True])
def test_korean_word_is_found_with_another_particle(stored, tmp_path):
    with MemoryManager(tmp_path / "chat.db" if stored else None) as memory:
        memory.add_user_message("s", "냉장고에 우유가 있습니다.")
        memory.add_user_message("s", "오늘은 날씨가 좋습니다.")
        hits = memory.search("s", "냉장고를 열었다")
        assert [hit.entry.content for hit in hits] == ["냉장고에 우유가 있습니다."]


@pytest.mark.parametrize("stored", [False, True])
def test_end_of_a_very_long_query_is_read(stored, tmp_path):
    with memory_of(tmp_path / "chat.db" if stored else None, "English") as memory:
        query = " ".join(f"word{number}" for number in range(5_000)) + " staging server port"
        assert memory.search("s", query, limit=1)[0].entry.content == SAID["English"][0]
