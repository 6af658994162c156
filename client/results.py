"""Answers of the server as dataclasses; times in seconds, stage timings in milliseconds."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Rows = list[list[float]]


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive frames of one pass.

    Attributes:
        start: seconds from the beginning of the audio.
        scores: [frames][labels], each row adds up to 1.
        embeddings: [frames][size] where it was asked for.
    """

    start: float
    scores: Rows
    embeddings: Rows | None = None


@dataclass(frozen=True, slots=True)
class Frames:
    """Scores of every frame: `hop` seconds apart, columns named by `labels`."""

    hop: float
    labels: list[str]
    runs: list[Run]


@dataclass(frozen=True, slots=True)
class Result:
    """Emotions of one clip.

    Attributes:
        label, score: the most probable emotion and its probability.
        scores: label → probability, highest first.
        duration: length of the audio in seconds.
        embedding: mean feature vector where `embeddings=` asked for it.
        frames: every frame with `granularity="frame"`.
        warnings: what the server noticed, each with `code` and `message`.
        timings: milliseconds of each stage at the server, `total` among them.
        raw: the whole answer as it came.
    """

    label: str
    score: float
    scores: dict[str, float]
    duration: float
    embedding: list[float] | None = None
    frames: Frames | None = None
    warnings: list[dict[str, Any]] = field(default_factory=list)
    timings: dict[str, float] = field(default_factory=dict)
    raw: dict[str, Any] = field(default_factory=dict, repr=False)


def parse_result(body: Mapping[str, Any], server_timing: str = "") -> Result:
    """Result from the JSON object of `POST /v1/audio/emotions` and its `Server-Timing`.

    Raises:
        KeyError, TypeError: the object is not such an answer.
    """
    frames = body.get("frames")
    return Result(
        label=body["label"],
        score=body["score"],
        scores={item["label"]: item["score"] for item in body["scores"]},
        duration=body["duration"],
        embedding=body.get("embedding"),
        frames=None if frames is None else _parse_frames(frames),
        warnings=body.get("warnings", []),
        timings=parse_timings(server_timing),
        raw=dict(body),
    )


def _parse_frames(frames: Mapping[str, Any]) -> Frames:
    runs = [Run(run["start"], run["scores"], run.get("embeddings")) for run in frames["runs"]]
    return Frames(frames["hop"], frames["labels"], runs)


def parse_timings(server_timing: str) -> dict[str, float]:
    """Durations of a `Server-Timing` header in milliseconds; entries without one are left out."""
    found = re.findall(r"([\w-]+)(?:;[^,]*?)?;\s*dur=([\d.]+)", server_timing)
    return {name: float(duration) for name, duration in found}
