"""Result objects as the service makes them, with numpy's numbers."""

from typing import Any

import numpy as np

THIRD = np.float32(1) / np.float32(3)
ERROR = {"error": "the audio lasts 0 s", "error_type": "audio_too_short", "request_id": "r"}


def scores(**values: float) -> list[dict[str, Any]]:
    ordered = sorted(values.items(), key=lambda item: -item[1])
    return [{"label": label, "score": np.float32(value)} for label, value in ordered]


def segment(start: float, end: float, **values: float) -> dict[str, Any]:
    listed = scores(**values)
    return {"start": start, "end": end, **listed[0], "scores": listed}


def result(duration: float, granularity: str = "utterance", **more: Any) -> dict[str, Any]:
    listed = scores(happy=0.6, angry=THIRD)
    fixed = {"id": "1", "object": "audio.emotions", "model": "m", "duration": duration}
    return {**fixed, "granularity": granularity, **listed[0], "scores": listed, **more}


def segments(duration: float, *parts: dict[str, Any], **more: Any) -> dict[str, Any]:
    return result(duration, "segment", segments=list(parts), **more)


def frames(duration: float, *runs: tuple[float, list[list[float]]], **more: Any) -> dict[str, Any]:
    found = [{"start": at, "scores": np.array(rows, np.float32)} for at, rows in runs]
    value = {"hop": 0.02, "labels": ["happy", "angry"], "runs": found}
    return result(duration, "frame", frames=value, **more)


def listed(*items: dict[str, Any]) -> dict[str, Any]:
    return {"object": "list", "data": list(items)}
