"""The long checks of the front door: hours of audio, bombs of full size, broken files."""

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import httpx2
import numpy as np
import psutil
import pytest
from long_sounds import encoded, flac_bomb, stereo_voices, wav_of

URL = "/v1/audio/emotions"
RATE = 44_100
SDP = b"v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=audio 5004 RTP/AVP 0\n"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1_800)]


@pytest.fixture(scope="module")
def server(deploy: Callable[..., str]) -> str:
    """The bundled model in float32; all limits at their defaults."""
    return deploy(dtype="float32", cache_bytes=0)


def _processes() -> dict[int, str]:
    """Process id to name of everything that the cluster runs."""
    found = {}
    for process in psutil.Process().children(recursive=True):
        name = " ".join(process.cmdline())[:60]
        if "Serve" in name or "Proxy" in name or "engine.audio" in name:
            found[process.pid] = name
    return found


def _forget_peaks() -> None:
    for pid in _processes():
        Path(f"/proc/{pid}/clear_refs").write_text("5")


def _peaks() -> dict[str, float]:
    """Peak resident MiB by name; the largest of those that share one."""
    peaks: dict[str, float] = {}
    for pid, name in _processes().items():
        status = Path(f"/proc/{pid}/status").read_text()
        peak = int(status.split("VmHWM:")[1].split()[0]) / 1024
        kind = "decoder" if "engine.audio" in name else name.split(":")[-1].split(".")[0].strip()
        peaks[kind] = max(peak, peaks.get(kind, 0.0))
    return peaks


def _streamed(server: str, body: bytes) -> tuple[float, float, dict[str, object]]:
    """Seconds from the last body byte to the first segment and to the end, and the result."""
    sent = first = 0.0

    def chunks() -> object:
        nonlocal sent
        for at in range(0, len(body), 2**20):
            yield body[at : at + 2**20]
        sent = time.monotonic()

    name, result = "", {}
    query = f"{URL}?granularity=segment&window=30&stream=true"
    with (
        httpx2.Client(base_url=server, timeout=600) as client,
        client.stream("POST", query, content=chunks()) as response,
    ):
        for line in response.iter_lines():
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: ") and name == "segment":
                first = first or time.monotonic()
            elif line.startswith("data: ") and name == "done":
                result = json.loads(line.removeprefix("data: "))
    return first - sent, time.monotonic() - sent, result


def test_two_hours_cost_no_more_memory_than_two_minutes(server: str) -> None:
    minutes = encoded(stereo_voices(120, RATE), "mp3", "libmp3lame", RATE, {"write_xing": "0"})
    hours = minutes * 60
    _streamed(server, minutes)
    _forget_peaks()
    _streamed(server, minutes)
    short = _peaks()
    _forget_peaks()
    first, total, result = _streamed(server, hours)
    long = _peaks()
    grown = {name: round(long[name] - short.get(name, 0.0)) for name in long}
    print(f"\n{len(hours) / 2**20:.0f} MiB: first segment {first:.2f} s after the last byte, all")
    print(f"after {total:.1f} s, peak MiB above the 2-minute file's: {grown}")
    segments = result["segments"]
    for start, end in ((0, 30), (3600, 3630)):
        [segment] = [s for s in segments if s["start"] == start]
        with httpx2.Client(base_url=server, timeout=120) as client:
            alone = client.post(f"{URL}?start={start}&end={end}", content=hours).json()
        wanted = {s["label"]: s["score"] for s in alone["scores"]}
        assert {s["label"]: s["score"] for s in segment["scores"]} == pytest.approx(
            wanted, abs=1e-5
        )
    assert result["duration"] == pytest.approx(7200, abs=5)
    body = len(hours) / 2**20
    assert all(mib < 200 + (2.5 * body if "Proxy" in name else 0) for name, mib in grown.items())
    assert first < 2


async def _together(server: str, bodies: list[bytes]) -> list[tuple[int, float]]:
    """Status and seconds of each, all sent at once."""
    async with httpx2.AsyncClient(base_url=server, timeout=600) as client:

        async def one(body: bytes) -> tuple[int, float]:
            since = time.monotonic()
            status = (await client.post(URL, content=body)).status_code
            return status, time.monotonic() - since

        return await asyncio.gather(*map(one, bodies))


def test_full_size_bombs_beside_good_clips(server: str) -> None:
    good = [wav_of(stereo_voices(3 + i)[:, 0]) for i in range(8)]
    bombs = [flac_bomb(5, 8_000), flac_bomb(4.5, 48_000)] * 4

    async def rounds(hostile: list[bytes]) -> tuple[list[tuple[int, float]], list[float]]:
        bad = asyncio.create_task(_together(server, hostile))
        await asyncio.sleep(0)
        seconds: list[float] = []
        for _ in range(6):
            answers = await _together(server, good)
            assert {status for status, _ in answers} == {200}
            seconds += [took for _, took in answers]
        return await bad, seconds

    asyncio.run(rounds([]))
    before = sum(_peaks().values())
    _, alone = asyncio.run(rounds([]))
    answers, beside = asyncio.run(rounds([SDP] * 8 + bombs))
    p95 = [float(np.quantile(seconds, 0.95)) for seconds in (alone, beside)]
    sdp, bomb = (max(s for _, s in answers[i : i + 8]) for i in (0, 8))
    print(f"\ngood ones' P95 alone {p95[0]:.3f} s, beside {p95[1]:.3f} s ({p95[1] / p95[0]:.2f}x)")
    print(f"slowest SDP {sdp:.2f} s, slowest bomb {bomb:.2f} s; peaks {before:.0f} MiB before,")
    print(f"{sum(_peaks().values()):.0f} MiB after")
    assert [status for status, _ in answers] == [415] * 8 + [413] * 8
    assert p95[1] < 3 * p95[0]


def test_a_thousand_broken_files(server: str) -> None:
    sound = stereo_voices(1)
    mono = sound[:, 0]
    files = [
        wav_of(sound),
        encoded(mono, "mp3", "libmp3lame"),
        encoded(mono, "flac", "flac"),
        encoded(mono, "aiff", "pcm_s16be"),
        encoded(mono, "au", "pcm_s16be"),
        encoded(mono, "tta", "tta"),
    ]
    random_numbers = random.Random(7)
    statuses: Counter[int] = Counter()
    slowest = 0.0
    for _ in range(125):
        bodies = [_broken(random_numbers, files) for _ in range(8)]
        for status, seconds in asyncio.run(_together(server, bodies)):
            statuses[status] += 1
            slowest = max(slowest, seconds)
    print(f"\n{dict(statuses)}, slowest {slowest:.2f} s")
    assert set(statuses) <= {200, 400, 413, 415, 422}
    assert slowest < 15


def _broken(numbers: random.Random, files: list[bytes]) -> bytes:
    """A file with up to eight bits flipped, bytes removed, or another one's end."""
    body = bytearray(numbers.choice(files))
    for _ in range(numbers.randint(1, 8)):
        at = numbers.randrange(min(len(body), numbers.choice([64, len(body)])))
        match numbers.choice(["flip", "flip", "cut", "remove", "splice"]):
            case "flip":
                body[at] ^= 1 << numbers.randrange(8)
            case "cut":
                del body[max(16, at) :]
            case "remove":
                del body[at : at + numbers.randint(1, 64)]
            case "splice":
                body[at:] = numbers.choice(files)[at:]
        if not body:
            break
    return bytes(body)
