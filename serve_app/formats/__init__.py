"""The result object in the format that the caller asked for.

`json` is the object itself; `ndjson` and `csv` are a line for each stretch of audio (the whole
of it, a segment or a frame, as `granularity` says); `vtt` (captions) and `textgrid` (Praat) are
timelines, in which neighbouring frames with the same label are one stretch.
"""

from collections.abc import Callable
from typing import Any

from serve_app.formats.lines import csv_bytes, ndjson_bytes
from serve_app.formats.textgrid import textgrid_bytes
from serve_app.formats.vtt import vtt_bytes
from serve_app.results import to_json

__all__ = ["MEDIA_TYPES", "render"]

MEDIA_TYPES = {
    "json": "application/json",
    "ndjson": "application/x-ndjson",
    "csv": "text/csv; charset=utf-8",
    "vtt": "text/vtt; charset=utf-8",
    "textgrid": "text/plain; charset=utf-8",
}
"""Media type of each `response_format`."""

_WRITERS: dict[str, Callable[[dict[str, Any], float], bytes]] = {
    "json": lambda result, start: to_json(result),
    "ndjson": ndjson_bytes,
    "csv": csv_bytes,
    "vtt": vtt_bytes,
    "textgrid": textgrid_bytes,
}


def render(result: dict[str, Any], response_format: str, start: float = 0.0) -> tuple[bytes, str]:
    """Write a result object, or a list object of them.

    Args:
        result: what the JSON answer would hold; numbers may be numpy's.
        response_format: a key of `MEDIA_TYPES`.
        start: the `start` of the request in seconds. A result says how long the audio is, not
            where in the file it begins, and a timeline needs both.

    Returns:
        The body and its media type. float32 numbers are in the shortest form that reads back
        as the same float32.
    """
    return _WRITERS[response_format](result, start), MEDIA_TYPES[response_format]
