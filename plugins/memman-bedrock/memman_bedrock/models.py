"""Models on Bedrock by any spelling: ids for CountTokens, and the region.

A model has a base id (`anthropic.claude-sonnet-4-20250514-v1:0`) and ids of inference profiles
(`us.anthropic...`, or an ARN). CountTokens takes the base id of some models and the profile's of others,
and answers ValidationException to the wrong one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from memman.protocols import ModelRef

SPELLED: Final = 30
_SURE: Final = 20

_VENDORS: Final = (
    "ai21|amazon|anthropic|cohere|deepseek|google|luma|meta|minimax|mistral|moonshot|moonshotai|nvidia|"
    "openai|qwen|stability|twelvelabs|writer|xai|zai"
)
# "us.anthropic.claude-..."; the part before the vendor is the place of an inference profile.
_ID: Final = re.compile(
    rf"(?:[\w-]+:)?(?:(?P<geo>[a-z]+(?:-gov)?)\.)?(?P<base>(?:{_VENDORS})\.[\w.:-]+)\Z"
)
_ARN: Final = re.compile(
    r"arn:aws[\w-]*:(?:bedrock|sagemaker):(?P<region>[\w-]*):\d*:(?P<what>.+)\Z"
)
_REGION: Final = re.compile(r"[a-z]{2}(?:-gov|-iso[a-z]?)?-[a-z]+-\d\Z")
# "bedrock/NAME", "bedrock:NAME": a name that is not a Bedrock id.
_SAID: Final = re.compile(r"(?:bedrock|bedrock_converse|amazon-bedrock)[/:]", re.IGNORECASE)
# The place of a region's inference profiles, by the start of its name.
_GEOS: Final = (("us-gov-", "us-gov"), ("us-", "us"), ("ca-", "us"), ("eu-", "eu"), ("ap-", "apac"))


class BedrockModel(msgspec.Struct, frozen=True):
    """The ids to use, best first, at most two, and the region in the spelling."""

    ids: tuple[str, ...]
    region: str | None = None

    def within(self, region: str | None) -> BedrockModel:
        """Return the same for `region`: a base id alone gets the id of the region's profile second."""
        if len(self.ids) > 1 or region is None or _ID.match(self.ids[0]) is None:
            return self
        geo = next((geo for begins, geo in _GEOS if region.startswith(begins)), None)
        return BedrockModel((*self.ids, f"{geo}.{self.ids[0]}"), region) if geo else self


def match(model: ModelRef) -> int:
    """Return 30 if the spelling names Bedrock, 20 if an id has its form, else 0."""
    found = bedrock_model(model)
    if found is None:
        return 0
    return SPELLED if _says_bedrock(model) or found.ids[-1].startswith("arn:") else _SURE


def bedrock_model(model: ModelRef) -> BedrockModel | None:
    """Return the model as Bedrock knows it, or None if its spelling is not one of Bedrock's.

    An alias is read by the name of its model.
    """
    sure = _says_bedrock(model)
    for spelling in (model.given, model.name):
        found = _read(spelling.strip(), sure=sure)
        if found is not None:
            return found
    said = _SAID.match(model.given.strip())
    bare = model.given.strip()[said.end() :].rpartition("/")[2] if said else model.name
    region = model.region if _REGION.match(model.region or "") else None
    return BedrockModel((bare,), region) if sure and bare else None


def region_of(environ: Mapping[str, str]) -> str | None:
    """Return the environment's region; None leaves it to the AWS configuration file."""
    return environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION") or None


def _says_bedrock(model: ModelRef) -> bool:
    return "bedrock" in (model.provider or "") or _SAID.match(model.given) is not None


def _read(spelling: str, *, sure: bool) -> BedrockModel | None:
    """Read a spelling with an ARN or an id in it; text before an id counts only if it is `sure`."""
    arn = spelling.find("arn:aws")
    if arn >= 0:
        return _of_arn(spelling[arn:])
    *before, name = spelling.lower().split("/")
    found = _ID.match(name)
    if found is None or not (sure or all(_REGION.match(part) for part in before)):
        return None
    return BedrockModel(_ids(found), next((part for part in before if _REGION.match(part)), None))


def _of_arn(arn: str) -> BedrockModel | None:
    """Read an ARN: the base id first if it has one, then the ARN itself."""
    parts = _ARN.match(arn)
    if parts is None:
        return None
    found = _ID.match(parts["what"].rpartition("/")[2].lower())
    region = parts["region"] or None
    if found is None:  # an application's profile or a custom model: its id is opaque
        return BedrockModel((arn,), region)
    of_foundation = parts["what"].startswith("foundation-model/")
    return BedrockModel((found["base"],) if of_foundation else (found["base"], arn), region)


def _ids(found: re.Match[str]) -> tuple[str, ...]:
    base = found["base"]
    return (base, f"{found['geo']}.{base}") if found["geo"] else (base,)
