"""From the passes' scores to the answer: the objects that API callers see."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson

from deployments.wire import Floats, ModelInfo, Scored
from engine.emotions import mean_logits, softmax
from engine.errors import EmotionError
from engine.labels import label_name
from serve_app.parameters import Parameters


@dataclass(frozen=True, slots=True)
class ScoredPass:
    """Scores of one pass and where it begins, in seconds of the file."""

    start: float
    scored: Scored


@dataclass(frozen=True, slots=True)
class Heard:
    """What one stream of audio (a mix or a channel) gave."""

    passes: Sequence[ScoredPass]
    duration: float
    source: dict[str, Any]
    warnings: Sequence[tuple[str, str]]


def score_list(labels: Sequence[str], logits: Floats, top_k: int | None) -> list[dict[str, Any]]:
    """`[{"label", "score"}]`, highest first."""
    probabilities = softmax(logits)
    order = np.argsort(-probabilities, kind="stable")[:top_k]
    return [{"label": label_name(labels[i]), "score": probabilities[i]} for i in order]


def emotions_object(
    heard: Heard, parameters: Parameters, info: ModelInfo, request_id: str
) -> dict[str, Any]:
    """The `audio.emotions` object; numbers stay float32 until they are written."""
    logits = np.concatenate([item.scored.frame_logits for item in heard.passes])
    labels = heard.passes[0].scored.labels
    result: dict[str, Any] = {
        "id": request_id,
        "object": "audio.emotions",
        "model": info.model,
        "duration": heard.duration,
        "granularity": parameters.granularity,
    }
    if labels:
        scores = score_list(labels, mean_logits(logits), parameters.top_k)
        result |= {"label": scores[0]["label"], "score": scores[0]["score"], "scores": scores}
    if parameters.embeddings != "none":
        result["embedding"] = mean_embedding(heard.passes)
    if parameters.granularity == "frame" or parameters.embeddings == "frame":
        result["frames"] = _frames_object(heard.passes, parameters, info)
    result["source"] = heard.source
    result["warnings"] = [{"code": code, "message": text} for code, text in heard.warnings]
    return result


def mean_embedding(passes: Sequence[ScoredPass]) -> Floats:
    """Mean over all frames of all passes [D]."""
    weights = [len(item.scored.frame_logits) for item in passes]
    stacked = np.stack([item.scored.embedding for item in passes])
    return np.average(stacked, axis=0, weights=weights).astype(np.float32)


def _frames_object(
    passes: Sequence[ScoredPass], parameters: Parameters, info: ModelInfo
) -> dict[str, Any]:
    labels = passes[0].scored.labels
    runs = []
    for item in passes:
        run: dict[str, Any] = {"start": item.start}
        if parameters.granularity == "frame":
            run["scores"] = softmax(item.scored.frame_logits)
        if parameters.embeddings == "frame":
            run["embeddings"] = item.scored.frame_embeddings
        runs.append(run)
    return {"hop": info.frame_seconds, "labels": [label_name(t) for t in labels], "runs": runs}


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
