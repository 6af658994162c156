"""The parameters of a request, the same in query, JSON, form and handle call."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from engine.errors import EmotionError


class Parameters(BaseModel):
    """What the caller wants to know about the audio."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    granularity: Literal["utterance", "frame"] = Field(
        "utterance", description="one answer for the clip, or one for every frame as well"
    )
    top_k: int | None = Field(None, ge=1, le=1000, description="only the k most probable labels")
    embeddings: Literal["none", "utterance", "frame"] = Field(
        "none", description="the encoder's features too: their mean, or those of every frame"
    )


def parse_parameters(values: Mapping[str, Any]) -> Parameters:
    """Check names and values.

    Raises:
        EmotionError: `invalid_request` that names the parameter and what it may be.
    """
    try:
        return Parameters.model_validate(dict(values))
    except ValidationError as error:
        details = [
            {"parameter": str(fault["loc"][0]), "problem": _problem(fault)}
            for fault in error.errors(include_url=False)
        ]
        first = details[0]
        raise EmotionError(
            "invalid_request", f"parameter {first['parameter']!r} {first['problem']}", details
        ) from None


def _problem(fault: Mapping[str, Any]) -> str:
    value = str(fault.get("input"))[:50]
    if fault["type"] == "extra_forbidden":
        return f"is unknown; known are {', '.join(Parameters.model_fields)}"
    message = str(fault["msg"])
    return f"is {value!r}: {message[0].lower()}{message[1:]}"


def merge_parameters(*sources: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """One mapping of several lists of pairs; the same name twice is refused."""
    merged: dict[str, Any] = {}
    for source in sources:
        for name, value in source:
            if name in merged:
                raise EmotionError(
                    "invalid_request",
                    f"parameter {name!r} is given twice",
                    [{"parameter": name, "problem": "given twice"}],
                )
            merged[name] = value
    return merged
