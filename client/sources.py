"""What may be sent: a path, bytes, a binary file object, or samples with their rate."""

import os
import struct
from pathlib import Path
from typing import Any, BinaryIO

Samples = tuple[Any, int]
"""(array [n] or [n, channels] of int16 or anything that becomes float32, sample rate in Hz)."""

Source = str | os.PathLike[str] | bytes | bytearray | memoryview | BinaryIO | Samples

_PCM, _FLOAT = 1, 3


def read_source(source: Source) -> bytes:
    """The body to send, whole: a retry sends it again.

    Raises:
        OSError: a file cannot be read.
        TypeError, ValueError: not one of the kinds above.
    """
    if isinstance(source, bytes):
        return source
    if isinstance(source, bytearray | memoryview):
        return bytes(source)
    if isinstance(source, str | os.PathLike):
        return Path(source).read_bytes()
    if isinstance(source, tuple):
        return wav_bytes(*source)
    data: object = source.read() if hasattr(source, "read") else None
    if not isinstance(data, bytes):
        raise TypeError(
            "audio is a path, bytes, a file opened in binary mode, or (samples, sample_rate), "
            f"not {type(source).__name__}"
        )
    return data


def wav_bytes(samples: Any, sample_rate: int) -> bytes:
    """WAV file of an array [n] or [n, channels]: int16 as it is, anything else as float32.

    Raises:
        ValueError: more than two dimensions.
    """
    import numpy as np

    array = np.asarray(samples)
    array = array.astype("<i2" if array.dtype == np.int16 else "<f4")
    if array.ndim not in (1, 2):
        raise ValueError(f"samples must be [n] or [n, channels], not {array.ndim}-dimensional")
    channels = 1 if array.ndim == 1 else array.shape[1]
    width = array.itemsize
    encoding = _PCM if width == 2 else _FLOAT
    frame = channels * width
    layout = struct.pack(
        "<HHIIHH", encoding, channels, sample_rate, sample_rate * frame, frame, 8 * width
    )
    data = array.tobytes()
    chunks = b"fmt " + struct.pack("<I", len(layout)) + layout
    chunks += b"data" + struct.pack("<I", len(data)) + data
    return b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WAVE" + chunks
