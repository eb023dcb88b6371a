"""Write the JSON Schemas of the session document, its records, and the answers of commands.

    python .ci/generate_schemas.py docs/reference/schemas

The schemas are made from the types; a test fails if the files are stale.
"""

from __future__ import annotations

import functools
import inspect
import operator
import sys
import types
import typing
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec
from memman_cli import answers

from memman.archive.document import SessionState
from memman.records import Record

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_NULL: Final = {"type": "null"}
_ZONED: Final = Annotated[datetime, msgspec.Meta(tz=True)]
ANSWERS: Final[dict[str, tuple[type[answers.Answer], ...]]] = {
    "demo": (answers.DemoAnswer,),
    "import": (
        answers.ImportFileAnswer,
        answers.ImportAnswer,
        answers.ImportDatabaseAnswer,
    ),
    "sessions": (answers.SessionsAnswer,),
    "follow": (answers.FollowAnswer,),
    "stats": (answers.StatsAnswer,),
    "show": (answers.ShowAnswer, answers.EntryAnswer, answers.BlockAnswer),
    "search": (answers.SearchAnswer,),
    "compress": (answers.CompressAnswer, answers.PlanAnswer),
    "plan": (answers.PlanAnswer,),
    "diff": (answers.DiffAnswer,),
    "why": (answers.WhyAnswer,),
    "undo": (answers.UndoAnswer,),
    "export": (answers.ExportAnswer, answers.ArchiveAnswer),
    "verify": (answers.VerifyAnswer,),
    "report": (answers.ReportAnswer,),
    "check": (answers.CheckAnswer,),
    "formats": (answers.FormatsAnswer,),
    "count": (answers.CountAnswer, answers.CountsAnswer),
    "counters": (answers.CountersAnswer, answers.ExplainCounterAnswer),
    "models": (answers.ModelsAnswer, answers.CheckedModelsAnswer),
    "plugins": (answers.PluginsAnswer, answers.CheckedPluginAnswer, answers.ScaffoldAnswer),
}
"""The types of each command's documents; the first is that of the command without further options."""


def schemas() -> dict[str, dict[str, Any]]:
    """Return every published schema by the name of its file."""
    made = {
        "session": _schema("A session of memman as a document", (SessionState,)),
        "record": _schema("A record of a session's log", typing.get_args(Record)),
    }
    for command, kinds in ANSWERS.items():
        made[f"{command}-answer"] = _schema(f"The answer of `memman {command} --json`", kinds)
    return made


def file_content(schema: dict[str, Any]) -> bytes:
    """Return the content of a schema's file."""
    return msgspec.json.format(msgspec.json.encode(schema), indent=2) + b"\n"


def _schema(title: str, kinds: tuple[type, ...]) -> dict[str, Any]:
    twins = [_twin(kind) for kind in kinds]
    found, named = msgspec.json.schema_components(twins, ref_template="#/$defs/{name}")
    body = found[0] if len(kinds) == 1 else {"anyOf": list(found)}
    made: dict[str, Any] = _as_every_release({"$schema": DIALECT, "title": title, **body, "$defs": named})
    return made


def _as_every_release(schema: Any) -> Any:
    """Return the schema without what depends on msgspec's release.

    The release decides the place of null among alternatives. From 0.23 on it lists the keys of an object.
    """
    if isinstance(schema, list):
        return [_as_every_release(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    plain = {
        key: _as_every_release(value) for key, value in schema.items() if key != "propertyNames"
    }
    if "anyOf" in plain:
        plain["anyOf"].sort(key=lambda kind: kind == _NULL)
    return plain


@functools.cache
def _twin(kind: Any) -> Any:
    """Return the type with `msgspec.Raw` as any value: msgspec makes no schema of its defaults."""
    if kind is msgspec.Raw:
        return Any
    if kind in (datetime, _ZONED):
        return _ZONED  # all of ours have a zone
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return _struct(kind)
    arguments = tuple(_twin(each) for each in typing.get_args(kind))
    if not arguments or typing.get_origin(kind) is Literal:
        return kind
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return functools.reduce(operator.or_, arguments)
    return typing.get_origin(kind)[arguments]


def _struct(kind: type[msgspec.Struct]) -> Any:
    config = kind.__struct_config__
    fields = [_field(field) for field in msgspec.structs.fields(kind)]
    return msgspec.defstruct(
        kind.__name__,
        fields,
        namespace={"__doc__": inspect.getdoc(kind)},
        module=kind.__module__,
        tag=config.tag,
        tag_field=config.tag_field,
        array_like=config.array_like,
        rename={field.name: field.encode_name for field in msgspec.structs.fields(kind)},
        kw_only=True,
    )


def _field(field: Any) -> tuple[str, Any, Any]:
    twin = _twin(field.type)
    if field.required:
        return field.name, twin, msgspec.NODEFAULT
    if field.type is msgspec.Raw:
        return field.name, twin, msgspec.UNSET
    if field.default is not msgspec.NODEFAULT:
        return field.name, twin, field.default
    return field.name, twin, msgspec.field(default_factory=field.default_factory)


def main(folder: Path) -> None:
    """Write every schema into the folder, and delete the old ones."""
    for old in folder.glob("*.json"):
        old.unlink()
    for name, schema in schemas().items():
        (folder / f"{name}.json").write_bytes(file_content(schema))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
