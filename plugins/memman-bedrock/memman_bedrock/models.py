"""A model on Bedrock from its spelling: the ids that CountTokens may know it by, and its region.

A model has a base id (`anthropic.claude-sonnet-4-20250514-v1:0`) and ids of inference profiles
(`us.anthropic...`, or an ARN). CountTokens takes the base id of some models and the profile's of others,
and answers ValidationException to the wrong one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from memman.ports import ModelRef

SPELLED: Final = 30
_SURE: Final = 20

_VENDORS: Final = (
    "ai21|amazon|anthropic|cohere|deepseek|google|luma|meta|minimax|mistral|moonshot|moonshotai|nvidia|"
    "openai|qwen|stability|twelvelabs|writer|zai"
)
# "us.anthropic.claude-..."; the part before the vendor says where an inference profile runs it.
_ID: Final = re.compile(rf"(?:(?P<geo>[a-z]+(?:-gov)?)\.)?(?P<base>(?:{_VENDORS})\.[\w.:-]+)\Z")
_ARN: Final = re.compile(
    r"arn:aws[\w-]*:(?:bedrock|sagemaker):(?P<region>[\w-]*):\d*:(?P<what>.+)\Z"
)
_REGION: Final = re.compile(r"[a-z]{2}(?:-gov|-iso[a-z]?)?-[a-z]+-\d\Z")
# Of a spelling such as litellm's "bedrock/converse/us-east-1/anthropic...".
_SAID: Final = re.compile(r"(?:bedrock|bedrock_converse|amazon-bedrock)[/:]", re.IGNORECASE)
_ROUTES: Final = ("converse", "invoke", "converse_like")
# Where a region's inference profiles run, by how its name begins.
_GEOS: Final = (("us-gov-", "us-gov"), ("us-", "us"), ("ca-", "us"), ("eu-", "eu"), ("ap-", "apac"))


class BedrockModel(msgspec.Struct, frozen=True):
    """The ids to ask for, best first, at most two, and the region that the spelling names."""

    ids: tuple[str, ...]
    region: str | None = None

    def within(self, region: str | None) -> BedrockModel:
        """The same asked for in `region`: a base id alone gets the id of the region's profile second."""
        if len(self.ids) > 1 or region is None or _ID.match(self.ids[0]) is None:
            return self
        geo = next((geo for begins, geo in _GEOS if region.startswith(begins)), None)
        return BedrockModel((*self.ids, f"{geo}.{self.ids[0]}"), region) if geo else self


def match(model: ModelRef) -> int:
    """How surely `model` is Bedrock's: 30 where the spelling says so, 20 by the form of its id, or 0."""
    found = bedrock_model(model)
    if found is None:
        return 0
    return SPELLED if _says_bedrock(model) or found.ids[-1].startswith("arn:") else _SURE


def bedrock_model(model: ModelRef) -> BedrockModel | None:
    """The model as Bedrock knows it, or None where its spelling is not one of Bedrock's.

    An alias is read by the name that it stands for.
    """
    for spelling in (model.given, model.name):
        said = _SAID.match(spelling)
        bare = spelling[said.end() :] if said else spelling
        found = _read(bare.strip(), sure=said is not None)
        if found is not None:
            return found
    sure = _says_bedrock(model) and model.name
    return BedrockModel((model.name,)) if sure else None


def region_of(environ: Mapping[str, str]) -> str | None:
    """The region that the environment names; None leaves it to the AWS configuration file."""
    return environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION") or None


def _says_bedrock(model: ModelRef) -> bool:
    return "bedrock" in (model.provider or "") or _SAID.match(model.given) is not None


def _read(spelling: str, *, sure: bool) -> BedrockModel | None:
    arn = spelling.find("arn:aws")
    if arn >= 0:
        return _of_arn(spelling[arn:])
    *before, name = spelling.split("/")
    region = next((part.lower() for part in before if _REGION.match(part.lower())), None)
    known = all(_REGION.match(part.lower()) or part.lower() in _ROUTES for part in before)
    found = _ID.match(name.lower()) if known else None
    if found is not None:
        return BedrockModel(_ids(found), region)
    return BedrockModel((name,), region) if sure and known and name else None


def _of_arn(arn: str) -> BedrockModel | None:
    """Of an ARN: the base id first where it shows, then the ARN itself."""
    parts = _ARN.match(arn)
    if parts is None:
        return None
    found = _ID.match(parts["what"].rpartition("/")[2].lower())
    region = parts["region"] or None
    if found is None:  # an application's profile or a custom model: its id says nothing
        return BedrockModel((arn,), region)
    of_foundation = parts["what"].startswith("foundation-model/")
    return BedrockModel((found["base"],) if of_foundation else (found["base"], arn), region)


def _ids(found: re.Match[str]) -> tuple[str, ...]:
    base = found["base"]
    return (base, found[0]) if found["geo"] else (base,)
