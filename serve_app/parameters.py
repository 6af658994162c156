"""The parameters of a request, the same in query, JSON, form and handle call."""

from collections.abc import Iterable, Mapping
from reprlib import Repr
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from engine.audio.types import PcmFormat
from engine.errors import EmotionError


def _channel(value: object) -> object:
    # a query carries numbers as text
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
        return int(value)
    return value


def _name_list(value: object) -> object:
    return [part.strip() for part in value.split(",")] if isinstance(value, str) else value


_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxlong = _SHORT.maxother = 50

MAX_SECONDS = 1e9
"""Beyond any audio, and small enough to be counted in samples."""


class Parameters(BaseModel):
    """What the caller wants to know about the audio. Times in seconds."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    granularity: Literal["utterance", "segment", "frame"] = Field(
        "utterance", description="how fine the answer is"
    )
    window: float = Field(10.0, ge=0.1, le=30, description="length of a segment")
    hop: float | None = Field(
        None, ge=0.02, le=30, description="from one segment's start to the next (default: window)"
    )
    segmentation: Literal["window", "speech"] = Field(
        "window", description="segments of fixed length, or regions of speech"
    )
    trim_silence: bool = Field(False, description="drop leading and trailing non-speech")
    denoise: bool = Field(False, description="spectral-gating noise reduction")
    channels: Annotated[
        Literal["mix", "split"] | Annotated[int, Field(ge=0, le=254)], BeforeValidator(_channel)
    ] = Field("mix", description="mono mix, one result per channel, or the number of one channel")
    start: float | None = Field(None, ge=0, le=MAX_SECONDS, description="analyse from here")
    end: float | None = Field(None, gt=0, le=MAX_SECONDS, description="analyse up to here")
    top_k: int | None = Field(None, ge=1, le=1000, description="only the k most probable labels")
    labels: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=100)], ...] | None,
        Field(min_length=1, max_length=100),
        BeforeValidator(_name_list),
    ] = Field(None, description="only these labels, re-normalised; comma-separated")
    label_language: Literal["en", "zh"] = Field("en", description="language of the label names")
    embeddings: Literal["none", "utterance", "segment", "frame"] = Field(
        "none", description="the encoder's features too: their mean, per segment or per frame"
    )
    encoding_format: Literal["float", "base64"] = Field(
        "float", description="embeddings as numbers, or base64 of little-endian float32"
    )
    strict: bool = Field(False, description="a damaged file is an error instead of a warning")
    encoding: Literal["pcm_s16le", "pcm_f32le"] | None = Field(
        None, description="headerless PCM; only with sample_rate and num_channels"
    )
    sample_rate: int | None = Field(None, ge=1, description="Hz, of headerless PCM")
    num_channels: int | None = Field(None, ge=1, le=255, description="of headerless PCM")
    response_format: Literal["json", "ndjson", "csv", "vtt", "textgrid"] = Field(
        "json", description="how the answer is written"
    )
    stream: bool = Field(False, description="Server-Sent Events instead of one answer")

    @model_validator(mode="after")
    def _fit_together(self) -> "Parameters":
        if self.hop is not None and self.hop > self.window:
            raise ValueError(f"hop {self.hop:g} is above window {self.window:g}")
        if self.start is not None and self.end is not None and self.end <= self.start:
            raise ValueError(f"end {self.end:g} is not after start {self.start:g}")
        pcm = (self.encoding, self.sample_rate, self.num_channels)
        if any(value is not None for value in pcm) and None in pcm:
            raise ValueError("encoding, sample_rate and num_channels go together, all three")
        if self.embeddings == "segment" and self.granularity != "segment":
            raise ValueError("embeddings=segment goes with granularity=segment")
        if self.stream and self.response_format != "json":
            raise ValueError("stream goes with response_format=json")
        return self

    @property
    def pcm(self) -> PcmFormat | None:
        """The format of a headerless body."""
        if self.encoding is None or self.sample_rate is None or self.num_channels is None:
            return None
        return PcmFormat(self.encoding, self.sample_rate, self.num_channels)

    @property
    def needs_frame_embeddings(self) -> bool:
        """Whether the features of single frames are needed."""
        return self.embeddings in ("segment", "frame")

    def needs_speech(self, always: bool) -> bool:
        """Whether voice activity detection runs."""
        return always or self.trim_silence or self.segmentation == "speech"

    def heard_key(self) -> tuple[Any, ...]:
        """Everything that changes what the model hears, for the cache's key."""
        return (
            self.start,
            self.end,
            self.channels,
            self.trim_silence,
            self.denoise,
            self.strict,
            self.encoding,
            self.sample_rate,
            self.num_channels,
        )


def parse_parameters(values: Mapping[str, Any]) -> Parameters:
    """Check names and values.

    Raises:
        EmotionError: `invalid_request` that names the parameter and what it may be.
    """
    try:
        return Parameters.model_validate(dict(values))
    except ValidationError as error:
        details = [_detail(fault) for fault in error.errors(include_url=False)]
        first = details[0]
        subject = f"parameter {first['parameter']!r} " if "parameter" in first else ""
        sentence = subject + first["problem"] + "."
        raise EmotionError("invalid_request", sentence[0].upper() + sentence[1:], details) from None


def _detail(fault: Mapping[str, Any]) -> dict[str, str]:
    message = str(fault["msg"]).removeprefix("Value error, ")
    if not fault["loc"]:
        return {"problem": message}
    name = str(fault["loc"][0])[:100]
    if fault["type"] == "extra_forbidden":
        return {
            "parameter": name,
            "problem": f"is unknown; known are {', '.join(Parameters.model_fields)}",
        }
    # abbreviated: a list in its place may be as long as the body
    value = fault.get("input")
    value = value[:50] if isinstance(value, str) else _SHORT.repr(value)[:50]
    return {"parameter": name, "problem": f"is {value!r}: {message[0].lower()}{message[1:]}"}


def merge_parameters(*sources: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """One mapping of several lists of pairs; the same name twice is refused."""
    merged: dict[str, Any] = {}
    for source in sources:
        for name, value in source:
            if name in merged:
                raise EmotionError(
                    "invalid_request",
                    f"Parameter {name[:100]!r} is given twice.",
                    [{"parameter": name[:100], "problem": "given twice"}],
                )
            merged[name] = value
    return merged
