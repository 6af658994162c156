"""From the bytes of an audio file to mono passes: decoding, cutting, quality report.

    from engine.audio import DecodeRequest, read_passes
    with open("call.mp3", "rb") as file:
        reader = read_passes(file, DecodeRequest(channels="split"))
        for excerpt in reader:
            ...  # excerpt.samples, excerpt.sample_rate, excerpt.start, excerpt.channel
        reader.reports

Importing this package needs numpy only; the decoder is imported when a file is read.
"""

import os
from typing import BinaryIO

from engine.audio.passes import PassReader, read_passes
from engine.audio.types import DecodeLimits, DecodeRequest, Pass, PcmFormat, SourceReport

__all__ = [
    "DecodeLimits",
    "DecodeRequest",
    "Pass",
    "PassReader",
    "PcmFormat",
    "SourceReport",
    "load",
    "read_passes",
]


def load(
    source: str | os.PathLike[str] | BinaryIO, request: DecodeRequest | None = None
) -> tuple[list[Pass], tuple[SourceReport, ...]]:
    """Decode a whole file in this process: its passes and its report (one per stream).

    Raises:
        EmotionError: as `read_passes`.
        OSError: the path cannot be read.
    """
    if isinstance(source, (str, os.PathLike)):
        with open(source, "rb") as file:
            return load(file, request)
    reader = read_passes(source, request)
    return list(reader), reader.reports
