"""WebVTT (W3C): a cue for each stretch of audio, its text the label and its probability."""

from typing import Any

from serve_app.formats.spans import Span, items, spoken_name, timeline
from serve_app.formats.text import error_text, number_text, one_line


def vtt_bytes(result: dict[str, Any], start: float) -> bytes:
    """Cues in order of time; they overlap where windows do, or files and channels run beside
    each other: then each has its voice. Failed items are comments."""
    cues: list[tuple[int, str]] = []
    comments: list[str] = []
    for item in items(result):
        name = spoken_name(item)
        if "error" in item:
            comments.append(f"NOTE {_escaped(f'{name} {error_text(item)}')}")
            continue
        voice = f"<v {name}>" if name else ""
        cues += [_cue(span, voice) for span in timeline(item, start) if span.scores]
    # the format wants the cues of the whole file by their start
    cues.sort(key=lambda cue: cue[0])
    return ("\n\n".join(["WEBVTT", *comments, *(text for _, text in cues)]) + "\n").encode()


def _cue(span: Span, voice: str) -> tuple[int, str]:
    begin = round(span.start * 1000)
    # a cue must end after it begins
    end = max(round(span.end * 1000), begin + 1)
    text = f"{voice}{_escaped(one_line(span.label))} {number_text(span.score)}"
    return begin, f"{_timestamp(begin)} --> {_timestamp(end)}\n{text}"


def _timestamp(milliseconds: int) -> str:
    seconds, thousandths = divmod(milliseconds, 1000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{seconds:02}.{thousandths:03}"


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
