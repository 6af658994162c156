"""One line for each stretch of audio: ndjson, and CSV (RFC 4180)."""

import csv
import io
from collections.abc import Iterator
from typing import Any

from serve_app.formats.spans import NAMES, Span, is_list, items, names, spans
from serve_app.results import to_json

TIME_COLUMNS = ("start", "end", "label", "score")
ERROR_COLUMNS = ("error_type", "error")

FORMULA_STARTS = frozenset("=+-@\t\r\n\0＝＋－＠")
"""A spreadsheet may run a cell that begins with one of these (OWASP, CSV injection)."""


def ndjson_bytes(result: dict[str, Any], start: float) -> bytes:
    """A line for each segment or frame, all of the same shape, or the whole result in one.

    In a list every line says the `index` or `channel` it belongs to; a failed item is one line
    with its error.
    """
    lines = (line for item in items(result) for line in _objects(item, start))
    return b"".join(to_json(line) + b"\n" for line in lines)


def _objects(item: dict[str, Any], start: float) -> Iterator[dict[str, Any]]:
    if "error" in item or item["granularity"] not in ("segment", "frame"):
        yield item
    elif item["granularity"] == "segment":
        yield from (names(item) | segment for segment in item["segments"])
    else:
        yield from (names(item) | _segment(span) for span in spans(item, start))


def _segment(span: Span) -> dict[str, Any]:
    line: dict[str, Any] = {"start": span.start, "end": span.end}
    if span.scores:
        scores = [{"label": label, "score": score} for label, score in span.scores]
        line |= {"label": span.label, "score": span.score, "scores": scores}
    if span.embedding is not None:
        line["embedding"] = span.embedding
    return line


def csv_bytes(result: dict[str, Any], start: float) -> bytes:
    """`start,end,label,score`, then a column for each label, in alphabetical order.

    A list has `index` or `channel` before and `error_type,error` after them. A label that
    `top_k` left out of a row is an empty cell.
    """
    found = items(result)
    labels = sorted({label for item in found for label in _labels(item)})
    name_columns = [name for name in NAMES if any(name in item for item in found)]
    error_columns = ERROR_COLUMNS if is_list(result) else ()
    fixed = {*NAMES, *TIME_COLUMNS, *ERROR_COLUMNS}
    label_columns = [f"score {label}" if label in fixed else _safe(label) for label in labels]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow([*name_columns, *TIME_COLUMNS, *label_columns, *error_columns])
    for item in found:
        before = [names(item).get(name, "") for name in name_columns]
        if "error" in item:
            after = [_safe(str(item[name])) for name in ERROR_COLUMNS]
            writer.writerow(before + [""] * (len(TIME_COLUMNS) + len(labels)) + after)
            continue
        for span in spans(item, start):
            writer.writerow(before + _cells(span, labels) + [""] * len(error_columns))
    return text.getvalue().encode()


def _labels(item: dict[str, Any]) -> Iterator[str]:
    if "error" in item:
        return
    if item["granularity"] == "frame":
        yield from item["frames"]["labels"]
        return
    parts = item["segments"] if item["granularity"] == "segment" else [item]
    yield from (entry["label"] for part in parts for entry in part.get("scores", ()))


def _cells(span: Span, labels: list[str]) -> list[str]:
    scores = dict(span.scores)
    numbers = [span.start, span.end, span.score, *(scores.get(label) for label in labels)]
    # all of a row at once: a long file has a million of them
    start, end, *rest = to_json(numbers).decode()[1:-1].split(",")
    return [start, end, _safe(span.label), *("" if cell == "null" else cell for cell in rest)]


def _safe(text: str) -> str:
    return f"'{text}" if text.lstrip(" ")[:1] in FORMULA_STARTS and text.strip(" ") else text
