"""Channels, timelines, speech, PCM, labels, streams and the cache over HTTP (fake graph)."""

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable

import httpx2
import numpy as np
import pytest
from fake_graph import FakeGraph, speech_like, wav_bytes

from deployments.wire import AudioPass, OtherModel, Scored
from serve_app.http.app import build_http
from serve_app.listening import PASSES_IN_FLIGHT
from serve_app.service import EmotionService

URL = "/v1/audio/emotions"


class MemoryStore:
    """A cache store without a deployment."""

    def __init__(self) -> None:
        self.values: dict[bytes, bytes] = {}

    async def get(self, key: bytes) -> bytes | None:
        return self.values.get(key)

    async def put(self, key: bytes, value: bytes) -> None:
        self.values[key] = value


def client_of(service: EmotionService) -> httpx2.AsyncClient:
    transport = httpx2.ASGITransport(build_http(service), raise_app_exceptions=False)
    return httpx2.AsyncClient(transport=transport, base_url="http://test")


def stereo(left: np.ndarray, right: np.ndarray) -> bytes:
    interleaved = np.stack([left, right], axis=1).reshape(-1)
    header = bytearray(wav_bytes(interleaved))
    header[22:24] = (2).to_bytes(2, "little")
    header[28:32] = (64_000).to_bytes(4, "little")
    header[32:34] = (4).to_bytes(2, "little")
    return bytes(header)


def scores_of(body: dict[str, object]) -> dict[str, float]:
    return {s["label"]: s["score"] for s in body["scores"]}  # type: ignore[attr-defined]


def events_of(text: str) -> list[tuple[str, dict[str, object]]]:
    blocks = [block.split("\n") for block in text.strip().split("\n\n")]
    return [(b[0].removeprefix("event: "), json.loads(b[1].removeprefix("data: "))) for b in blocks]


async def test_long_audio_is_its_passes(http: httpx2.AsyncClient, graph: FakeGraph) -> None:
    wave = speech_like(64)
    body = (await http.post(f"{URL}?granularity=frame", content=wav_bytes(wave))).json()
    assert [run["start"] for run in body["frames"]["runs"]] == [0.0, 30.0]
    assert [p.samples.size / 16_000 for p in graph.passes] == [30.0, 34.0]
    alone = await http.post(f"{URL}?granularity=frame&start=30&end=64", content=wav_bytes(wave))
    [run] = alone.json()["frames"]["runs"]
    assert run == body["frames"]["runs"][1]


async def test_windows_cover_the_audio_without_gap_or_drift(http: httpx2.AsyncClient) -> None:
    query = "granularity=segment&window=0.7"
    body = (await http.post(f"{URL}?{query}", content=wav_bytes(speech_like(65)))).json()
    segments = body["segments"]
    assert segments[0]["start"] == 0.0
    assert segments[-1]["end"] == body["duration"] == 65.0
    for number, (before, after) in enumerate(zip(segments[:-1], segments[1:], strict=True)):
        assert before["end"] == pytest.approx(after["start"], abs=1e-9)
        assert after["start"] == pytest.approx(0.7 * (number + 1), abs=1e-9)
    for segment in segments:
        assert segment["label"] == segment["scores"][0]["label"]


async def test_a_window_is_the_mean_of_the_frames_centred_in_it(http: httpx2.AsyncClient) -> None:
    clip = wav_bytes(speech_like(35))
    framed = (await http.post(f"{URL}?granularity=frame", content=clip)).json()
    query = "granularity=segment&window=4&hop=2"
    body = (await http.post(f"{URL}?{query}", content=clip)).json()
    logs, centres = [], []
    for run in framed["frames"]["runs"]:
        logs += np.log(run["scores"]).tolist()
        centres += [run["start"] + 0.0125 + 0.02 * t for t in range(len(run["scores"]))]
    names = framed["frames"]["labels"]
    for segment in body["segments"]:
        inside = [segment["start"] <= c < segment["end"] for c in centres]
        powers = np.exp(np.array(logs)[inside].mean(axis=0))
        expected = dict(zip(names, powers / powers.sum(), strict=True))
        assert scores_of(segment) == pytest.approx(expected, abs=1e-5)
    assert [s["start"] for s in body["segments"]] == [2.0 * k for k in range(17)]


async def test_start_and_end_keep_the_files_times(http: httpx2.AsyncClient) -> None:
    clip = wav_bytes(speech_like(8))
    query = "granularity=segment&window=1&start=2.5&end=6"
    body = (await http.post(f"{URL}?{query}", content=clip)).json()
    assert body["segments"][0]["start"] == 2.5
    assert body["segments"][-1]["end"] == 6.0
    assert body["duration"] == 3.5
    late = await http.post(f"{URL}?start=9", content=clip)
    assert late.status_code == 400
    assert late.json()["error"] == "start is 9 s, but the audio lasts only 8.000 s."


async def test_split_channels_are_each_channel_alone(http: httpx2.AsyncClient) -> None:
    left, right = speech_like(2, seed=1), speech_like(2, seed=2)
    both = stereo(left, right)
    split = (await http.post(f"{URL}?channels=split", content=both)).json()
    assert split["object"] == "list"
    assert [item["channel"] for item in split["data"]] == [0, 1]
    for number, wave in enumerate((left, right)):
        alone = (await http.post(URL, content=wav_bytes(wave))).json()
        picked = (await http.post(f"{URL}?channels={number}", content=both)).json()
        assert scores_of(split["data"][number]) == scores_of(alone) == scores_of(picked)
    absent = await http.post(f"{URL}?channels=2", content=both)
    assert absent.status_code == 400


async def test_speech_segments_and_trim(http: httpx2.AsyncClient, graph: FakeGraph) -> None:
    wave = np.concatenate([np.zeros(16_000), speech_like(2), np.zeros(24_000)])
    clip = wav_bytes(wave)
    query = "granularity=segment&segmentation=speech"
    body = (await http.post(f"{URL}?{query}", content=clip)).json()
    for segment in body["segments"]:
        assert 1.0 <= segment["start"] < segment["end"] <= 3.0
    assert 0.2 < body["source"]["speech_ratio"] <= 2 / 4.5
    graph.passes.clear()
    trimmed = (await http.post(f"{URL}?trim_silence=true", content=clip)).json()
    [heard] = graph.passes
    assert heard.samples.size / 16_000 == pytest.approx(2.0, abs=0.05)
    assert trimmed["duration"] == 4.5


async def test_trim_over_several_passes_cuts_only_the_ends(
    http: httpx2.AsyncClient,
) -> None:
    silence = np.zeros(35 * 16_000)
    wave = np.concatenate([silence, speech_like(20), silence, speech_like(20), silence])
    query = "trim_silence=true&granularity=frame"
    body = (await http.post(f"{URL}?{query}", content=wav_bytes(wave))).json()
    runs = body["frames"]["runs"]
    first = runs[0]["start"]
    last = runs[-1]["start"] + 0.02 * len(runs[-1]["scores"])
    assert first == pytest.approx(35.0, abs=0.1)
    assert last == pytest.approx(110.0, abs=0.1)
    # nothing between the ends is missing: each run begins where the one before ended
    assert [run["start"] for run in runs[1:]] == [60.0, 90.0]


async def test_nothing_is_cut_where_there_is_no_speech(http: httpx2.AsyncClient) -> None:
    clip = wav_bytes(0.001 * speech_like(40))
    plain = (await http.post(URL, content=clip)).json()
    trimmed = (await http.post(f"{URL}?trim_silence=true", content=clip)).json()
    assert scores_of(trimmed) == scores_of(plain)
    assert "no_speech" in {w["code"] for w in trimmed["warnings"]}
    assert trimmed["source"]["speech_ratio"] == 0


async def test_denoise_reaches_the_graph(http: httpx2.AsyncClient, graph: FakeGraph) -> None:
    await http.post(f"{URL}?denoise=1", content=wav_bytes(speech_like(1)))
    assert graph.denoised == 1


async def test_headerless_pcm(http: httpx2.AsyncClient) -> None:
    clip = wav_bytes(speech_like(1.5))
    query = "encoding=pcm_s16le&sample_rate=16000&num_channels=1"
    pcm = await http.post(f"{URL}?{query}", content=clip[44:])
    assert scores_of(pcm.json()) == scores_of((await http.post(URL, content=clip)).json())
    assert pcm.json()["source"]["format"] == "pcm"
    for partial in ("encoding=pcm_s16le", "sample_rate=16000", "encoding=mp3"):
        refused = await http.post(f"{URL}?{partial}", content=clip[44:])
        assert (refused.status_code, refused.json()["error_type"]) == (400, "invalid_request")


async def test_labels_are_renormalised_in_the_language_asked_for(
    http: httpx2.AsyncClient,
) -> None:
    clip = wav_bytes(speech_like(1.5))
    everything = scores_of((await http.post(URL, content=clip)).json())
    query = "labels=angry,happy&label_language=zh"
    two = scores_of((await http.post(f"{URL}?{query}", content=clip)).json())
    total = everything["angry"] + everything["happy"]
    assert two == pytest.approx(
        {"生气": everything["angry"] / total, "开心": everything["happy"] / total}, abs=1e-6
    )
    unknown = await http.post(f"{URL}?labels=joy", content=clip)
    assert unknown.status_code == 400
    assert "joy" in unknown.json()["error"]


async def test_base64_embeddings(http: httpx2.AsyncClient) -> None:
    clip = wav_bytes(speech_like(12))
    query = "embeddings=segment&granularity=segment&window=5"
    plain = (await http.post(f"{URL}?{query}", content=clip)).json()
    coded = (await http.post(f"{URL}?{query}&encoding_format=base64", content=clip)).json()

    def decoded(text: str) -> list[float]:
        return np.frombuffer(base64.b64decode(text), "<f4").tolist()

    assert decoded(coded["embedding"]) == pytest.approx(plain["embedding"])
    assert len(plain["segments"]) == 3
    for with_text, with_numbers in zip(coded["segments"], plain["segments"], strict=True):
        assert decoded(with_text["embedding"]) == pytest.approx(with_numbers["embedding"])


async def test_stream_gives_segments_then_the_whole_result(http: httpx2.AsyncClient) -> None:
    clip = wav_bytes(speech_like(65))
    query = "granularity=segment&window=10"
    whole = (await http.post(f"{URL}?{query}", content=clip)).json()
    response = await http.post(f"{URL}?{query}&stream=true", content=clip)
    assert response.headers["content-type"].startswith("text/event-stream")
    events = events_of(response.text)
    names = [name for name, _ in events]
    assert names[0] == "accepted"
    assert names[-1] == "done"
    assert names.index("segment") < names.index("decoded")
    assert [value for name, value in events if name == "segment"] == whole["segments"]
    done = events[-1][1]
    assert set(done.pop("timings")) == {"decode", "preprocess", "queue", "model", "total"}
    assert {**done, "id": ""} == {**whole, "id": ""}


async def test_stream_knows_statuses_before_it_starts(
    http: httpx2.AsyncClient, graph: FakeGraph
) -> None:
    refused = await http.post(f"{URL}?stream=true", content=b"nothing like audio")
    assert refused.status_code == 415
    graph.failure = RuntimeError("secret")
    broken = await http.post(f"{URL}?stream=true", content=wav_bytes(speech_like(1)))
    assert broken.status_code == 200
    name, value = events_of(broken.text)[-1]
    assert (name, value["error_type"]) == ("error", "internal")
    assert "secret" not in broken.text


async def test_formats_have_their_media_types(http: httpx2.AsyncClient) -> None:
    clip = wav_bytes(speech_like(3))
    for name, kind in (
        ("csv", "text/csv"),
        ("vtt", "text/vtt"),
        ("ndjson", "application/x-ndjson"),
    ):
        query = f"granularity=segment&window=1&response_format={name}"
        response = await http.post(f"{URL}?{query}", content=clip)
        assert response.status_code == 200
        assert response.headers["content-type"].startswith(kind)


async def test_cache_answers_every_view_of_the_same_audio(
    graph: FakeGraph, service_of: Callable[..., EmotionService]
) -> None:
    store = MemoryStore()
    service = service_of(graph)
    cached = service_of(graph, store=store)
    clip = wav_bytes(speech_like(34))
    async with client_of(service) as plain, client_of(cached) as http:
        first = await http.post(URL, content=clip)
        assert "cache" not in first.headers["server-timing"]
        await _until(lambda: bool(store.values))
        work = len(graph.passes)
        for query in (
            "",
            "granularity=segment&window=3",
            "granularity=frame",
            "labels=happy&top_k=1",
        ):
            hit = await http.post(f"{URL}?{query}", content=clip)
            assert "cache;desc=hit" in hit.headers["server-timing"]
            assert len(graph.passes) == work
            fresh = await plain.post(f"{URL}?{query}", content=clip)
            assert {**hit.json(), "id": ""} == {**fresh.json(), "id": ""}
            work = len(graph.passes)
        for query in ("start=1", "denoise=true", "trim_silence=true", "channels=0", "strict=true"):
            other = await http.post(f"{URL}?{query}", content=clip)
            assert "cache" not in other.headers["server-timing"], query
        framed = await http.post(f"{URL}?embeddings=frame", content=clip)
        assert "cache" not in framed.headers["server-timing"]
    assert all(len(value) < 40_000 for value in store.values.values())


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 (the condition is not ours to signal)
            await asyncio.sleep(0.01)


async def test_full_graph_refuses_with_429_and_serves_again(
    graph: FakeGraph, service_of: Callable[..., EmotionService]
) -> None:
    graph.seconds = 0.5
    service = service_of(graph, max_inflight_audio_seconds=3.0)
    clip = wav_bytes(speech_like(2))
    async with client_of(service) as http:
        first = [asyncio.create_task(http.post(URL, content=clip)) for _ in range(2)]
        await _until(lambda: graph.at_work == 2)
        refused = await http.post(URL, content=clip)
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) >= 1
        assert "3 s" in refused.json()["error"]
        assert [r.status_code for r in await asyncio.gather(*first)] == [200, 200]
        assert (await http.post(URL, content=clip)).status_code == 200
    assert service.admission.audio_seconds == pytest.approx(0)
    assert service.admission.requests == service.admission.bytes_held == 0


async def test_long_file_is_admitted_when_idle_whatever_its_length(
    graph: FakeGraph, service_of: Callable[..., EmotionService]
) -> None:
    service = service_of(graph, max_inflight_audio_seconds=1.0)
    async with client_of(service) as http:
        response = await http.post(URL, content=wav_bytes(speech_like(100)))
    assert response.status_code == 200
    assert len(graph.passes) == 4


async def test_requests_and_bytes_in_flight_are_bounded(
    graph: FakeGraph, service_of: Callable[..., EmotionService]
) -> None:
    graph.seconds = 0.3
    clip = wav_bytes(speech_like(2))
    for limits in ({"max_inflight_requests": 1}, {"max_inflight_bytes": 70_000}):
        async with client_of(service_of(graph, **limits)) as http:
            first = asyncio.create_task(http.post(URL, content=clip))
            await _until(lambda: graph.at_work == 1)
            assert (await http.post(URL, content=clip)).status_code == 429
            assert (await first).status_code == 200


@pytest.mark.parametrize("chunked", [False, True])
async def test_body_limit_holds_for_declared_and_chunked_bodies(
    graph: FakeGraph, service_of: Callable[..., EmotionService], chunked: bool
) -> None:
    sent = 0

    async def chunks() -> object:
        nonlocal sent
        for _ in range(100):
            sent += 1000
            yield bytes(1000)

    service = service_of(graph, max_body_bytes=5_000)
    async with client_of(service) as http:
        response = await http.post(URL, content=chunks() if chunked else bytes(100_000))
    assert (response.status_code, response.json()["error_type"]) == (413, "payload_too_large")
    assert "5000 bytes" in response.json()["error"]
    assert service.admission.bytes_held == 0


async def test_client_that_goes_away_ends_the_work(
    graph: FakeGraph, service_of: Callable[..., EmotionService]
) -> None:
    graph.seconds = 30
    service = service_of(graph)
    async with client_of(service) as http:
        call: Awaitable[object] = asyncio.create_task(
            http.post(URL, content=wav_bytes(speech_like(2)))
        )
        await _until(lambda: graph.at_work == 1)
        call.cancel()  # type: ignore[attr-defined]
        await _until(lambda: graph.at_work == 0)
    assert service.admission.requests == 0
    assert service.admission.audio_seconds == pytest.approx(0)


async def test_answer_names_the_model_that_gave_it(
    http: httpx2.AsyncClient, graph: FakeGraph
) -> None:
    clip = wav_bytes(speech_like(1))
    assert (await http.post(URL, content=clip)).json()["model"] == "fake"
    graph.model = "newer"
    assert (await http.post(URL, content=clip)).json()["model"] == "newer"
    assert (await http.get("/info")).json()["model"] == "newer"


class RollingGraph(FakeGraph):
    """Two models serve by turns, as in a roll; the older one ends after some passes."""

    def __init__(self, old_passes: int) -> None:
        super().__init__()
        self.old_passes = old_passes
        self.calls = 0

    async def score(self, audio: AudioPass) -> Scored | OtherModel:
        self.calls += 1
        self.model = "newer"
        if self.calls % 2 and self.old_passes > 0:
            self.old_passes -= 1
            self.model = "older"
        return await super().score(audio)


@pytest.mark.parametrize("old_passes", [1, 2, 100])
async def test_no_answer_is_half_of_each_model(
    service_of: Callable[..., EmotionService], old_passes: int
) -> None:
    graph = RollingGraph(old_passes)
    async with client_of(service_of(graph)) as http:
        response = await http.post(f"{URL}?granularity=frame", content=wav_bytes(speech_like(94)))
    body = response.json()
    assert response.status_code == 200, body
    assert [run["start"] for run in body["frames"]["runs"]] == [0.0, 30.0, 60.0]
    assert body["model"] == ("older" if old_passes == 100 else "newer")


async def test_in_a_roll_no_pass_is_scored_in_vain(
    service_of: Callable[..., EmotionService],
) -> None:
    graph = RollingGraph(100)
    async with client_of(service_of(graph)) as http:
        response = await http.post(URL, content=wav_bytes(speech_like(304)))
    assert response.status_code == 200
    # eleven passes, of which four went out before it was known who scores them
    assert graph.calls > 11
    assert len(graph.passes) <= 11 + PASSES_IN_FLIGHT / 2


async def test_a_stream_whose_model_is_gone_ends_with_an_error(
    service_of: Callable[..., EmotionService],
) -> None:
    async with client_of(service_of(RollingGraph(1))) as http:
        response = await http.post(f"{URL}?stream=true", content=wav_bytes(speech_like(94)))
    name, error = events_of(response.text)[-1]
    assert (name, error["error_type"]) == ("error", "internal")
    assert "replaced" in str(error["error"])


async def test_before_ready_the_model_has_heard_silence_once_for_each_decoder(
    graph: FakeGraph, service_of: Callable[..., EmotionService]
) -> None:
    store = MemoryStore()
    async with client_of(service_of(graph, store, decode_workers=3)) as http:
        for _ in range(2):
            assert (await http.get("/health")).status_code == 200
    assert [(audio.seconds, audio.samples.any()) for audio in graph.passes] == 3 * [(3.0, False)]
    # a cache that had the silence would answer in the model's place after the next start
    assert not store.values
