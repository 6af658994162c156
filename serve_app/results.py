"""The objects that API callers see, made from heard passes; the same live and from the cache."""

import base64
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson

from deployments.wire import Floats, ModelInfo
from engine.audio.types import SourceReport
from engine.emotions import mean_logits, softmax
from engine.errors import EmotionError
from engine.labels import label_name
from engine.timeline import FrameGrid, HeardPass, Segment, SpeechTimeline, WindowTimeline
from serve_app.parameters import Parameters


@dataclass(frozen=True, slots=True)
class LabelChoice:
    """Which columns of the logits count, and what they are called."""

    columns: tuple[int, ...]
    names: tuple[str, ...]


def choose_labels(tokens: Sequence[str], parameters: Parameters) -> LabelChoice:
    """The labels that the caller wants, in the checkpoint's order.

    Raises:
        EmotionError: `invalid_request` for a label that the model does not have.
    """
    names = [label_name(token, parameters.label_language) for token in tokens]
    if parameters.labels is None:
        return LabelChoice(tuple(range(len(tokens))), tuple(names))
    known: dict[str, int] = {}
    for column, token in enumerate(tokens):
        for spelling in (token, label_name(token, "en"), label_name(token, "zh")):
            known.setdefault(spelling, column)
    for wanted in parameters.labels:
        if wanted not in known:
            message = f"Parameter 'labels' has {wanted!r}; the model knows {', '.join(names)}."
            detail = {"parameter": "labels", "problem": f"{wanted!r} is unknown"}
            raise EmotionError("invalid_request", message, [detail])
    columns = sorted({known[wanted] for wanted in parameters.labels})
    return LabelChoice(tuple(columns), tuple(names[column] for column in columns))


class ChannelResult:
    """The answer for one stream of audio, built pass by pass.

    Attributes:
        model: name of the model that is said to have answered.
    """

    def __init__(self, parameters: Parameters, info: ModelInfo) -> None:
        self._parameters = parameters
        self._info = info
        self.model = info.model
        self._labels = choose_labels(info.labels, parameters)
        grid = FrameGrid(info.frame_seconds, info.receptive_field / 2 / info.sample_rate)
        self._timeline = (
            SpeechTimeline(grid)
            if parameters.segmentation == "speech"
            else WindowTimeline(parameters.window, parameters.hop or parameters.window, grid)
        )
        self._passes: list[HeardPass] = []
        self._segments: list[dict[str, Any]] = []

    def add(self, heard: HeardPass) -> list[dict[str, Any]]:
        """Take one pass; the segments that it completes."""
        self._passes.append(heard)
        if self._parameters.granularity != "segment":
            return []
        return self._keep(self._timeline.add(heard))

    def finish(self) -> list[dict[str, Any]]:
        """The segments that reach the end."""
        if self._parameters.granularity != "segment" or not self._passes:
            return []
        return self._keep(self._timeline.finish(self._passes[-1].end))

    def to_object(self, report: SourceReport, request_id: str) -> dict[str, Any]:
        """The `audio.emotions` object; numbers stay float32 until they are written."""
        parameters = self._parameters
        result: dict[str, Any] = {
            "id": request_id,
            "object": "audio.emotions",
            "model": self.model,
            "duration": report.duration,
            "granularity": parameters.granularity,
        }
        result |= self._scored(mean_logits(np.concatenate([p.frame_logits for p in self._passes])))
        if parameters.embeddings != "none":
            result["embedding"] = self._embedding(mean_embedding(self._passes))
        if parameters.granularity == "segment":
            result["segments"] = self._segments
        if parameters.granularity == "frame" or parameters.embeddings == "frame":
            result["frames"] = self._frames()
        result["source"] = self._source(report)
        result["warnings"] = [
            {"code": code, "message": text} for code, text in self._warnings(report)
        ]
        return result

    def _keep(self, segments: Iterable[Segment]) -> list[dict[str, Any]]:
        made = [self._segment(segment) for segment in segments]
        self._segments += made
        return made

    def _segment(self, segment: Segment) -> dict[str, Any]:
        made: dict[str, Any] = {"start": segment.start, "end": segment.end}
        made |= self._scored(segment.logits)
        if self._parameters.embeddings == "segment" and segment.embedding is not None:
            made["embedding"] = self._embedding(segment.embedding)
        return made

    def _scored(self, logits: Floats) -> dict[str, Any]:
        if not self._labels.columns:
            return {}
        probabilities = softmax(logits[list(self._labels.columns)])
        order = np.argsort(-probabilities, kind="stable")[: self._parameters.top_k]
        scores = [{"label": self._labels.names[i], "score": probabilities[i]} for i in order]
        return {"label": scores[0]["label"], "score": scores[0]["score"], "scores": scores}

    def _frames(self) -> dict[str, Any]:
        runs = []
        for heard in self._passes:
            run: dict[str, Any] = {"start": heard.start}
            if self._parameters.granularity == "frame":
                logits = heard.frame_logits[:, list(self._labels.columns)]
                run["scores"] = np.ascontiguousarray(softmax(logits))
            if self._parameters.embeddings == "frame" and heard.frame_embeddings is not None:
                run["embeddings"] = self._frame_embeddings(heard.frame_embeddings)
            runs.append(run)
        return {"hop": self._info.frame_seconds, "labels": list(self._labels.names), "runs": runs}

    def _embedding(self, values: Floats) -> Any:
        if self._parameters.encoding_format == "float":
            return values
        return base64.b64encode(values.astype("<f4").tobytes()).decode()

    def _frame_embeddings(self, values: Floats) -> Any:
        if self._parameters.encoding_format == "float":
            return np.ascontiguousarray(values)
        return [self._embedding(row) for row in values]

    def _speech_seconds(self) -> float | None:
        regions = [heard.speech for heard in self._passes]
        if not regions or any(found is None for found in regions):
            return None
        return sum(end - start for found in regions for start, end in found or ())

    def _source(self, report: SourceReport) -> dict[str, Any]:
        source = report.source()
        speech = self._speech_seconds()
        if speech is not None:
            source["speech_ratio"] = min(1.0, speech / report.duration)
        return source

    def _warnings(self, report: SourceReport) -> list[tuple[str, str]]:
        speech = self._speech_seconds()
        if speech is None:
            return list(report.warnings)
        # the detector knows better than the level does
        warnings = [item for item in report.warnings if item[0] != "no_speech"]
        if speech == 0:
            warnings.append(("no_speech", "No speech was found, so nothing was cut."))
        return warnings


def mean_embedding(passes: Sequence[HeardPass]) -> Floats:
    """Mean over all frames of all passes [D]."""
    weights = [len(heard.frame_logits) for heard in passes]
    stacked = np.stack([heard.embedding for heard in passes])
    return np.average(stacked, axis=0, weights=weights).astype(np.float32)


def error_object(error: EmotionError, request_id: str) -> dict[str, Any]:
    """The one body of every error."""
    body: dict[str, Any] = {
        "error": error.message,
        "error_type": error.error_type,
        "request_id": request_id,
    }
    if error.details:
        body["details"] = error.details
    return body


def to_json(value: Any) -> bytes:
    """JSON with every float32 in the shortest form that reads back as the same float32."""
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)


def to_plain(value: Any) -> Any:
    """The same numbers as in the JSON, as plain Python objects, for handle calls."""
    return orjson.loads(to_json(value))
