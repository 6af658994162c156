"""What comes in over real HTTP: long audio, streams, large forms, the same rules on every route."""

import asyncio
import base64
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import numpy as np
import pytest
from long_sounds import RATE, decoders, encoded, flac_bomb, held_bodies, stereo_voices, wav_of

URL = "/v1/audio/emotions"
MIB = 2**20


@pytest.fixture(scope="module")
def server(deploy: Callable[..., str]) -> str:
    """The bundled model in float32, with room for one of the large bodies below."""
    return deploy(
        dtype="float32",
        cache_bytes=0,
        max_audio_seconds=3600,
        max_body_bytes=32 * MIB,
        max_inflight_bytes=40 * MIB,
    )


@pytest.fixture
def http(server: str) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=server, timeout=120) as client:
        yield client


@pytest.fixture(scope="module")
def stereo() -> np.ndarray:
    """100 s: three passes of 30 s and one of 10 s."""
    return stereo_voices(100)


@pytest.fixture(scope="module")
def large_wav() -> bytes:
    """27 MiB of 300 s at 48 kHz mono."""
    return wav_of(np.tile(stereo_voices(10, 48_000)[:, 0], 30), 48_000)


def _events(response: httpx2.Response) -> Iterator[tuple[float, str, dict[str, Any]]]:
    """Arrival time, name and data of each server-sent event."""
    name = ""
    for line in response.iter_lines():
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield time.monotonic(), name, json.loads(line.removeprefix("data: "))


def _until(condition: Callable[[], bool], seconds: float) -> float:
    """Seconds until it holds."""
    since = time.monotonic()
    while not condition():
        assert time.monotonic() - since < seconds
        time.sleep(0.02)
    return time.monotonic() - since


def _all_free() -> bool:
    return not any(held_bodies(process) for process in decoders())


@pytest.mark.parametrize("kind", ["wav", "mp3"])
def test_each_pass_of_long_audio_is_that_excerpt_alone(
    http: httpx2.Client, stereo: np.ndarray, kind: str
) -> None:
    body = wav_of(stereo) if kind == "wav" else encoded(stereo, "mp3", "libmp3lame")
    whole = http.post(f"{URL}?granularity=frame", content=body).json()
    runs = whole["frames"]["runs"]
    assert [run["start"] for run in runs] == [0.0, 30.0, 60.0, 90.0]
    for run, end in zip(runs, (30.0, 60.0, 90.0, whole["duration"]), strict=True):
        query = f"granularity=frame&start={run['start']}&end={end}"
        [alone] = http.post(f"{URL}?{query}", content=body).json()["frames"]["runs"]
        assert alone["start"] == run["start"]
        assert np.abs(np.subtract(alone["scores"], run["scores"])).max() <= 1e-5
    # these runs could not be taken for one another
    assert np.abs(np.subtract(runs[0]["scores"], runs[1]["scores"])).max() > 1e-2


def test_segments_arrive_while_the_audio_is_worked_on(
    http: httpx2.Client, large_wav: bytes
) -> None:
    query = f"{URL}?granularity=segment&stream=true"
    sent = time.monotonic()
    with http.stream("POST", query, content=large_wav) as response:
        events = list(_events(response))
    names = [name for _, name, _ in events]
    assert names[0] == "accepted"
    assert names[-1] == "done"
    assert names.count("segment") == 30
    assert names.index("segment") < names.index("decoded")
    first, last = events[names.index("segment")][0], events[-1][0]
    print(f"first segment after {first - sent:.2f} s of {last - sent:.2f} s")
    assert first - sent < 0.7 * (last - sent)


def test_client_that_leaves_a_stream_frees_everything(
    http: httpx2.Client, large_wav: bytes
) -> None:
    query = f"{URL}?granularity=segment&stream=true"

    def status() -> int:
        with http.stream("POST", query, content=large_wav) as response:
            return response.status_code

    with http.stream("POST", query, content=large_wav) as response:
        events = _events(response)  # dropped, it would close the connection
        assert [next(events)[1], next(events)[1]] == ["accepted", "segment"]
        assert not _all_free()
        # its bytes are counted: there is no room for a second one
        assert http.post(URL, content=large_wav).status_code == 429
        left = time.monotonic()
    _until(_all_free, 5)
    print(f"the decoder was free {time.monotonic() - left:.2f} s after the client had gone")
    assert time.monotonic() - left < 3
    assert status() == 200
    _until(_all_free, 5)  # the next one's bytes would find no room either


def test_large_upload_lies_in_a_file_without_a_name(http: httpx2.Client, large_wav: bytes) -> None:
    query = f"{URL}?stream=true"
    for upload in ({"files": {"file": ("x", large_wav)}}, {"content": large_wav}):
        with http.stream("POST", query, **upload) as response:
            assert response.status_code == 200, response.read()
            events = _events(response)  # dropped, it would close the connection
            assert next(events)[1] == "accepted"
            [size] = [size for process in decoders() for size in held_bodies(process)]
            links = [link for process in decoders() for link in _open_links(process.pid)]
            assert size == len(large_wav)
            assert not any("memfd" in link for link in links)
        _until(_all_free, 5)


def _open_links(pid: int) -> list[str]:
    folder = f"/proc/{pid}/fd"
    return [os.readlink(f"{folder}/{name}") for name in os.listdir(folder)]


QUIET_NAN = np.full(RATE, np.nan, "<f4").tobytes()
PCM = {"encoding": "pcm_f32le", "sample_rate": RATE, "num_channels": 1}
BAD: dict[str, tuple[bytes, dict[str, Any], int, str]] = {
    "nothing": (b"", {}, 400, "empty_body"),
    "text": (b"1\n00:00:01,000 --> 00:00:02,000\nhello\n", {}, 415, "unsupported_media_type"),
    "cut header": (wav_of(np.zeros(RATE, np.int16))[:30], {}, 422, "audio_decode_failed"),
    "no samples": (wav_of(np.zeros(0, np.int16)), {}, 422, "audio_empty"),
    "too short": (wav_of(np.zeros(399, np.int16)), {}, 422, "audio_too_short"),
    "low rate": (wav_of(np.zeros(RATE, np.int16), 1_000), {}, 422, "sample_rate_out_of_range"),
    "not finite": (QUIET_NAN, PCM, 422, "non_finite_audio"),
    "bad parameter": (wav_of(np.zeros(RATE, np.int16)), {"top_k": 0}, 400, "invalid_request"),
    "beyond the end": (wav_of(np.zeros(RATE, np.int16)), {"start": 2}, 400, "invalid_request"),
    "beyond all": (wav_of(np.zeros(RATE, np.int16)), {"start": 1e306}, 400, "invalid_request"),
    "no such channel": (wav_of(np.zeros(RATE, np.int16)), {"channels": 3}, 400, "invalid_request"),
    "too large": (bytes(32 * MIB + 1), {}, 413, "payload_too_large"),
}


@pytest.mark.parametrize("name", BAD)
def test_one_rule_on_every_route(http: httpx2.Client, server: str, name: str) -> None:
    from ray import serve

    body, parameters, status, error_type = BAD[name]
    sent = {"inputs": base64.b64encode(body).decode(), "parameters": parameters}
    handle = serve.get_app_handle("emotion2vec")
    by_handle = handle.predict.remote(body, **parameters).result(timeout_s=60)
    assert (by_handle["status"], by_handle["error_type"]) == (status, error_type)
    form = {"file": ("a.wav", body)}
    for answer in (
        *(http.post(route, params=parameters, content=body) for route in (URL, "/predict", "/")),
        *(http.post(route, json=sent) for route in (URL, "/predict", "/")),
        http.post(URL, params=parameters, files=form),
        http.post(URL, params={**parameters, "stream": True}, content=body),
    ):
        refused = answer.json()
        assert (answer.status_code, refused["error_type"]) == (status, error_type)
        if name not in ("too large", "bad parameter"):  # they say how much came, and in what form
            assert refused["error"] == by_handle["error"]


def _post_together(server: str, bodies: list[bytes]) -> list[tuple[httpx2.Response, float]]:
    """The answer to each body, all sent at once, and the seconds it took."""

    async def run() -> list[tuple[httpx2.Response, float]]:
        async with httpx2.AsyncClient(base_url=server, timeout=120) as client:

            async def one(body: bytes) -> tuple[httpx2.Response, float]:
                since = time.monotonic()
                return await client.post(URL, content=body), time.monotonic() - since

            return await asyncio.gather(*map(one, bodies))

    return asyncio.run(run())


def test_a_decoder_that_crashes_costs_its_request_alone(server: str, stereo: np.ndarray) -> None:
    body = encoded(stereo, "mp3", "libmp3lame")
    with ThreadPoolExecutor(1) as other:
        answers = other.submit(_post_together, server, [body] * 8)
        _until(lambda: any(held_bodies(process) for process in decoders()), 10)
        hit = next(process for process in decoders() if held_bodies(process))
        hit.send_signal(signal.SIGSEGV)
        responses = [response for response, _ in answers.result()]
    assert sorted(response.status_code for response in responses) == [200] * 7 + [422]
    [refused] = [response.json() for response in responses if response.status_code == 422]
    assert refused["error_type"] == "audio_decode_failed"
    assert refused["error"] == "The decoder crashed on this file."
    scores = {str(r.json()["scores"]) for r in responses if r.status_code == 200}
    assert len(scores) <= 7
    assert [r.status_code for r, _ in _post_together(server, [body] * 2)] == [200, 200]


SDP = b"v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=audio 5004 RTP/AVP 0\n"


def test_hostile_files_do_not_hold_up_good_ones(server: str) -> None:
    good = [wav_of(stereo_voices(2 + i)[:, 0]) for i in range(8)]
    bombs = [flac_bomb(2, rate) for rate in (8_000, 8_001)] * 4
    _post_together(server, good)
    alone = max(seconds for _, seconds in _post_together(server, good))
    answers = _post_together(server, [SDP] * 8 + bombs + good)
    statuses = [response.status_code for response, _ in answers]
    assert statuses == [415] * 8 + [413] * 8 + [200] * 8
    seconds = [round(max(s for _, s in answers[i : i + 8]), 2) for i in (0, 8, 16)]
    print(f"good alone {alone:.2f} s; together: SDP, bombs, good {seconds} s")
    for response, _ in answers[8:16]:
        refused = response.json()
        assert refused["error_type"] == "audio_too_long"
        assert "limit of 3600 s" in refused["error"]
    assert seconds[0] < 5
    assert seconds[1] < 30
    assert seconds[2] < 10 * alone + 5
