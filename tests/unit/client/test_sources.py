"""What may be sent, and that arrays become WAV files which others read."""

import io
import struct
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from client.sources import read_source, wav_bytes


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, io.BytesIO])
def test_bytes_and_file_objects_are_sent_as_they_are(kind: Any) -> None:
    assert read_source(kind(b"audio")) == b"audio"


def test_paths_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    path.write_bytes(b"audio")
    assert read_source(path) == read_source(str(path)) == b"audio"


@pytest.mark.parametrize("source", [io.StringIO("text"), 5, None])
def test_other_things_are_refused(source: Any) -> None:
    with pytest.raises(TypeError, match="audio is a path, bytes"):
        read_source(source)


def test_int16_becomes_a_plain_wav() -> None:
    samples = np.array([[0, 1], [-2, 32767]], np.int16)
    with wave.open(io.BytesIO(read_source((samples, 8000)))) as file:
        assert file.getparams()[:4] == (2, 2, 8000, 2)
        assert file.readframes(2) == samples.tobytes()


def test_anything_else_becomes_float32_exactly() -> None:
    samples = np.linspace(-1.5, 1.5, 7)
    data = wav_bytes(samples, 44_100)
    assert struct.unpack("<HHIIHH", data[20:36]) == (3, 1, 44_100, 176_400, 4, 32)
    assert data[40:44] == struct.pack("<I", 28)
    assert np.array_equal(np.frombuffer(data[44:], "<f4"), samples.astype(np.float32))
    assert struct.unpack("<I", data[4:8]) == (len(data) - 8,)


def test_three_dimensions_are_refused() -> None:
    with pytest.raises(ValueError, match="3-dimensional"):
        wav_bytes(np.zeros((1, 2, 3)), 16_000)
