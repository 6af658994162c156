"""Broken containers point anywhere: what is not in the body is not read."""

import io
import tempfile

import pytest
from sound_files import encode, voice

from engine.audio import DecodeLimits, DecodeRequest, read_passes
from engine.audio.body import Body


@pytest.mark.parametrize("offset", [-(2**63), -1, 4, 2**64])
def test_nothing_is_read_outside_of_a_body(offset: int) -> None:
    with tempfile.TemporaryFile() as file:
        file.write(b"body")
        file.flush()
        for body in (
            Body.of_bytes(b"body"),
            Body.of_descriptor(file.fileno()),
            Body.of_file(io.BytesIO(b"body")),
        ):
            assert body.at(offset, 2) == b""
            assert body.at(1, 2) == b"od"


def test_a_matroska_size_of_more_than_eight_bytes_is_damage_only() -> None:
    sound = encode(voice(0.6, 48_000), "webm", "libopus", 48_000)
    with tempfile.TemporaryFile() as file:
        # a name, then a size that begins with no marker bit
        file.write(sound + b"\xa3" + bytes(12))
        file.flush()
        reader = read_passes(Body.of_descriptor(file.fileno()), DecodeRequest(), DecodeLimits())
        assert sum(excerpt.samples.size for excerpt in reader) == pytest.approx(28_800, abs=2_000)
