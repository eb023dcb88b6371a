"""What in a text carries its meaning: its words, in any language, and its exact values.

A value is what nobody can guess or put into other words: a path, an identifier, a number, a date, an address. A
word is a run of letters and digits; where a script writes no spaces each two neighbouring characters are
one. Words that only hold sentences together are left out: those of the languages below by list, since they
would otherwise be the best covered of all.
"""

from __future__ import annotations

import re
from typing import Final

_LEAST_VALUE: Final = 4
_MOST_VALUE: Final = 120  # a longer one is a blob, not something that anybody types again
_CHUNK: Final = re.compile(r"[^\s\"'`<>(){}\[\],;|*]{4,}")
_ASCII: Final = re.compile(r"[!-~]{4,}")
_EDGES: Final = ".:!?=&#-+"
_DIGIT: Final = re.compile(r"\d")
_NAMED: Final = re.compile(r"\w_\w|[a-z][A-Z]|\w@\w|[^\W\d_]{2}\.[^\W\d_]{2}|[A-Z]{4}")
_LEAST_CHARS: Final = 3
_WORD: Final = re.compile(r"[^\W_]+")
# Thai and Lao, Burmese, Khmer, Japanese kana, Chinese characters.
_SPACELESS: Final = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]+"
)

# English, German, French, Spanish, Portuguese, Italian, Dutch, Russian: of three letters and more.
_HOLDING: Final = frozenset(
    """
    the and for are but not you all any can had her was one our out has him his how its may new now old see two way
    who did get got let say she too use that with have this will your from they know want been good much some time
    very when come here just like long make many more only over such take than them well were what about after again
    also another because before being below between both came could does doing done down each even ever every few
    first give given going gone great hers herself himself into itself less made me might mine most must myself
    need never nor off often once other others ours ourselves own quite rather really said same saw seem seen shall
    should since still than thank thanks their theirs themselves then there these thing things think this those though
    through told took toward under until upon used using was way went where whether which while whom whose why within
    without would yes yet yours yourself always anyone anything around back best better can't couldn't didn't doesn't
    don't hadn't hasn't haven't isn't it's i'm i've let's lot lots maybe okay part per perhaps please put sure tell
    that's there's they're try wasn't we're weren't won't wouldn't you're hey wow yeah isn aren wasn weren don didn
    doesn couldn wouldn shouldn won ain haven hasn hadn

    aber alle allem allen aller alles als also auch auf aus bei bin bis bist damit dann das dass dein deine dem den der
    des dich die dies diese diesem diesen dieser dieses dir doch dort durch ein eine einem einen einer eines
    euch euer für gegen habe haben hat hatte hier hinter ich ihm ihn ihnen ihr ihre im in ist jede jeder jedes jetzt
    kann kein keine können könnte man mehr mein meine mich mir mit muss nach nicht noch nur ob oder ohne sehr sein
    seine sich sie sind soll sollte über und uns unser unter vom von vor war waren warum was weil welche wenn wer
    werden wie wieder will wir wird wo wurde zu zum zur zwischen

    alors après aucun aussi autre avant avec avoir bien car ce cela ces cet cette ceux chaque ci comme comment dans
    depuis des deux dont du elle elles encore entre est et était être eux fait faire fois font ici ils juste leur leurs
    lui mais mes moi moins mon même ne nos notre nous on ont ou où par parce pas peut peu plus pour pourquoi
    quand que quel quelle qui quoi sa sans ses seulement si son sont sous sur ta tes ton tous tout toute très
    une vers vos votre vous

    algo antes aquí así aun aunque bien cada casi como con cual cuando cuándo del desde donde dónde dos ella ellas
    ellos entonces entre era eran ese esa eso esos esta está están estar estas este esto estos fue fueron hace hacer
    hacia hasta hay las les los más menos mientras mis mucho muy nada nos nosotros otra otro para pero poco por porque
    puede pues qué quien quién ser será siempre sin sobre son soy sus también tan tanto tiene tienen toda todo todos
    una uno unos usted ustedes vez

    ainda algum antes aos aquela aquele aqui até cada com como da das dela dele deles depois do dos elas eles em entre
    essa esse esta estão estava este eu foi foram isso isto já mais mas mesmo meu minha muito não nas nem nos nós nossa
    nosso num numa onde para pela pelo pode por porque quais qual quando quem sem seu seus sido sob sobre sua suas
    também tem ter todos tudo uma umas você vocês

    abbiamo alla alle allo anche ancora avere aveva bene che chi ci come con cosa così cui dal dalla dei del della delle
    dello dopo dove due ecco era essere fatto fra gli hanno loro lui mai meno mentre mio molto nei nel nella
    noi non nostro ogni ora per perché però più poi poco prima proprio può qualche quale quando quanto quella quelle
    quello questa queste questi questo qui sarà sei senza siamo sia sono sopra sotto stato stata sua sul sulla suo
    tra tutti tutto una uno vostro

    aan alleen als ander andere bij daar dan dat deze die dit doen door een eens elk en er geen haar had heb hebben
    heeft hem het hier hij hoe hun iets ik ja je jij kan kon maar meer men met mij mijn moet naar niet niets nog nu
    omdat ons onze ook op over reeds te tegen toch toen tot uit uw van veel voor waar wat we wel welke werd wij wil
    worden wordt zal ze zei zelf zich zij zijn zo zonder zou

    без более был была были было быть вам вас ведь весь вот все всего всех где даже для его если есть ещё еще здесь
    или как какой когда кто который которая которые лишь между меня мне может можно надо нам нас него нее неё нет
    них ним ничего новый она они оно очень под после потом потому почему при про раз сам свой себе себя сейчас так
    также такой там тебя тем теперь тогда того тоже только том тот тут уже хотя чего чем через что чтобы чуть эта
    эти это этого этой этот
    """.split()
)


def words_of(text: str) -> frozenset[str]:
    """The words of a text that carry its meaning, in lower case."""
    words = {word for word in _WORD.findall(text.lower()) if len(word) >= _LEAST_CHARS}
    words -= _HOLDING
    if not text.isascii():
        for run in _SPACELESS.findall(text):
            words.discard(run)
            words.update([run[at : at + 2] for at in range(len(run) - 1)])
    return frozenset(words)


def exact_values(text: str) -> list[str]:
    """The exact values of a text, each once, in the order in which they first stand."""
    found: dict[str, None] = {}
    for chunk in dict.fromkeys(_CHUNK.findall(text)):
        if chunk.isascii():
            value = _value_in(chunk)
            if value:
                found[value] = None
        else:
            for run in _ASCII.findall(chunk):
                value = _value_in(run)
                if value:
                    found[value] = None
    return list(found)


def _value_in(chunk: str) -> str:
    """The value that a run of characters holds, or ""."""
    if "=" in chunk and "://" not in chunk:
        chunk = chunk.rpartition("=")[2]
    value = chunk.strip(_EDGES) if not chunk.startswith((".", "/", "~")) else chunk.rstrip(_EDGES)
    if not _LEAST_VALUE <= len(value) <= _MOST_VALUE:
        return ""
    named = _DIGIT.search(value) or _NAMED.search(value) or _is_path(value)
    return value if named else ""


def _is_path(value: str) -> bool:
    if "/" not in value:
        return False
    inside = value.strip("/")
    return bool(inside) and (value[0] in "/~." or inside.count("/") > 1)
