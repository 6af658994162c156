"""Damaged files of every kind: an answer or a refusal, never a hang, a leak or a crash."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sound_files import encode, voice, wav

from engine.audio import DecodeLimits, DecodeRequest
from engine.audio.pool import DecodePool
from engine.errors import EmotionError

SOUND = voice(0.6)
STEREO = np.stack([SOUND, SOUND // 2], 1)
BODIES = [
    wav(SOUND),
    wav(STEREO.astype(np.float32) / 32768),
    encode(SOUND, "wav", "adpcm_ms"),
    encode(SOUND, "mp3", "libmp3lame"),
    encode(STEREO, "flac", "flac"),
    encode(voice(0.6, 48_000), "ogg", "libopus", 48_000),
    encode(voice(0.6, 48_000), "webm", "libopus", 48_000),
    encode(SOUND, "mp4", "aac"),
    encode(SOUND, "mp4", "aac", options={"movflags": "frag_keyframe+empty_moov"}),
    encode(SOUND, "mov", "alac"),
    encode(SOUND, "adts", "aac"),
    encode(SOUND, "latm", "aac"),
    encode(voice(0.6, 8_000), "amr", "libopencore_amrnb", 8_000),
    encode(SOUND, "aiff", "pcm_s16be"),
    encode(SOUND, "caf", "pcm_s16be"),
    encode(SOUND, "au", "pcm_s16be"),
    encode(SOUND, "w64", "pcm_s16le"),
    encode(SOUND, "wv", "wavpack"),
    encode(SOUND, "tta", "tta"),
    encode(SOUND, "avi", "mp3"),
    encode(SOUND, "flv", "aac"),
    encode(SOUND, "mpegts", "aac"),
    encode(SOUND, "vob", "mp2"),
    encode(voice(0.6, 44_100), "asf", "wmav2", 44_100, bit_rate=64_000),
]
LIMITS = DecodeLimits(max_audio_seconds=60.0, decode_stall_seconds=5.0)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A good file with a few bytes, mostly of its header, overwritten, removed or doubled."""
    body = bytearray(draw(st.sampled_from(BODIES)))
    for _ in range(draw(st.integers(1, 6))):
        reach = draw(st.sampled_from([64, 512, len(body)]))
        at = draw(st.integers(0, max(0, min(reach, len(body)) - 1)))
        match draw(st.sampled_from(["set", "set", "extreme", "cut", "remove", "double"])):
            case "set":
                new = draw(st.binary(min_size=1, max_size=4))
                body[at : at + len(new)] = new
            case "extreme":
                body[at : at + 4] = draw(
                    st.sampled_from([bytes(4), b"\xff" * 4, b"\x7f\xff\xff\xff"])
                )
            case "cut":
                del body[max(16, at) :]
            case "remove":
                del body[at : at + draw(st.integers(1, 64))]
            case "double":
                body[at:at] = body[at : at + draw(st.integers(1, 64))]
    return bytes(body)


class Decoding:
    """A pool on a loop of its own, with the resident memory of its one worker."""

    def __init__(self) -> None:
        self.runner = asyncio.Runner()
        self.pool = DecodePool(1, LIMITS)
        self.pids: list[int] = []

    def heard(self, body: bytes, request: DecodeRequest) -> None:
        async def run() -> None:
            async with await self.pool.open(body, request) as job:
                if job.worker_pid not in self.pids:
                    self.pids.append(job.worker_pid)
                async for excerpt in job:
                    assert np.isfinite(excerpt.samples).all()
                assert job.report.duration > 0

        self.runner.run(run())

    def refusal(self, body: bytes, request: DecodeRequest) -> EmotionError | None:
        try:
            self.heard(body, request)
        except EmotionError as error:
            return error
        return None

    def resident_megabytes(self) -> float:
        status = Path(f"/proc/{self.pids[-1]}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1024


@pytest.fixture(scope="module")
def decoding() -> Iterator[Decoding]:
    decoding = Decoding()
    decoding.pool.start()
    yield decoding
    decoding.runner.run(decoding.pool.close())
    decoding.runner.close()


def check(decoding: Decoding, body: bytes, request: DecodeRequest) -> None:
    error = decoding.refusal(body, request)
    if error is not None:
        assert 400 <= error.status < 500
        assert "crashed" not in error.message
        assert "gave no samples" not in error.message


REQUESTS = st.builds(
    DecodeRequest,
    channels=st.sampled_from(["mix", "split", 0]),
    strict=st.booleans(),
    pass_seconds=st.sampled_from([0.2, 30.0]),
)
QUIET = settings(
    max_examples=300,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)


@QUIET
@given(body=damaged(), request=REQUESTS)
def test_damaged_files_get_an_answer(
    decoding: Decoding, body: bytes, request: DecodeRequest
) -> None:
    check(decoding, body, request)


@pytest.mark.slow
def test_ten_thousand_damaged_files_leave_no_trace(decoding: Decoding) -> None:
    warm = 0.0
    for part in range(10):

        @settings(QUIET, max_examples=1_000, derandomize=False)
        @given(body=damaged(), request=REQUESTS)
        def run(body: bytes, request: DecodeRequest) -> None:
            check(decoding, body, request)

        run()
        warm = warm or decoding.resident_megabytes()
        assert decoding.resident_megabytes() < warm + 50, part
    assert len(decoding.pids) == 1
