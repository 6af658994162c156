"""The three deployments on a real Ray Serve: exact in company, one answer per item."""

import asyncio
import base64
import io
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import httpx2
import numpy as np
import pytest
from long_sounds import stereo_voices, wav_of

from cluster.chaos.clips import make_wav

URL = "/v1/audio/emotions"
GRPC_DEFAULT_BYTES = 4 * 2**20


@pytest.fixture(scope="module")
def server(deploy: Callable[..., str], tiny_checkpoint: Path) -> str:
    """The application on the tiny model in float32."""
    return deploy(model=str(tiny_checkpoint), dtype="float32", cpu_threads=1, cache_bytes=0)


@pytest.fixture(scope="module")
def clips() -> list[bytes]:
    """16 clips of different lengths and rates."""
    rates = [16_000, 22_050, 8_000, 44_100]
    return [make_wav(0.3 + 0.7 * i, i, rates[i % 4]) for i in range(16)]


def _named(body: dict[str, object]) -> dict[str, float]:
    return {item["label"]: item["score"] for item in body["scores"]}  # type: ignore[attr-defined]


async def _post_all(server: str, bodies: list[bytes]) -> list[httpx2.Response]:
    async with httpx2.AsyncClient(base_url=server, timeout=60) as client:
        return await asyncio.gather(*(client.post(URL, content=body) for body in bodies))


def test_clip_in_company_scores_as_alone(server: str, clips: list[bytes]) -> None:
    with httpx2.Client(base_url=server, timeout=60) as client:
        alone = [_named(client.post(URL, content=clip).json()) for clip in clips]
    together = asyncio.run(_post_all(server, clips))
    for single, response in zip(alone, together, strict=True):
        assert response.status_code == 200
        assert _named(response.json()) == pytest.approx(single, abs=1e-5)
    assert len({tuple(sorted(single.items())) for single in alone}) == len(clips)


def test_undecodable_file_fails_alone(server: str, clips: list[bytes]) -> None:
    responses = asyncio.run(_post_all(server, [*clips[:15], b"\x00\x01 this is no audio"]))
    assert [r.status_code for r in responses] == [200] * 15 + [415]


def test_engine_gives_the_same_scores(
    server: str, clips: list[bytes], tiny_checkpoint: Path
) -> None:
    from engine import Engine
    from engine.audio import load

    engine = Engine.load(tiny_checkpoint, device="cpu", dtype="float32")
    [excerpt], _ = load(io.BytesIO(clips[4]))
    [emotions] = engine.infer([excerpt.samples.astype(np.float32) / 32768])
    with httpx2.Client(base_url=server, timeout=60) as client:
        served = _named(client.post(URL, content=clips[4]).json())
    assert served == pytest.approx(emotions.scores, abs=1e-5)


def test_frames_over_http(server: str, clips: list[bytes]) -> None:
    with httpx2.Client(base_url=server, timeout=60) as client:
        response = client.post(f"{URL}?granularity=frame", content=clips[4])
    body = response.json()
    [run] = body["frames"]["runs"]
    assert body["frames"]["hop"] == 0.02
    assert len(run["scores"]) == (round(body["duration"] * 16_000) - 400) // 320 + 1
    logits = np.log(np.array(run["scores"])).mean(axis=0)
    utterance = np.exp(logits) / np.exp(logits).sum()
    named = _named(body)
    expected = [named[label] for label in body["frames"]["labels"]]
    assert utterance == pytest.approx(expected, abs=1e-4)


def test_pass_beyond_grpcs_default_limit(server: str, tiny_checkpoint: Path) -> None:
    from engine import Engine
    from engine.audio import load
    from engine.resample import resample

    body = wav_of(stereo_voices(30.0, 96_000), 96_000)
    [excerpt], _ = load(io.BytesIO(body))
    assert excerpt.samples.nbytes > 2 * GRPC_DEFAULT_BYTES
    engine = Engine.load(tiny_checkpoint, device="cpu", dtype="float32")
    [emotions] = engine.infer(resample([excerpt.samples], [96_000], "cpu"))
    with httpx2.Client(base_url=server, timeout=120) as client:
        served = _named(client.post(URL, content=body).json())
    assert served == pytest.approx(emotions.scores, abs=1e-5)


def test_answer_beyond_grpcs_default_limit(server: str) -> None:
    body = wav_of(stereo_voices(250.0)[:, 0])
    with httpx2.Client(base_url=server, timeout=120) as client:
        response = client.post(f"{URL}?embeddings=frame", content=body)
    assert response.status_code == 200
    assert len(response.content) > 2 * GRPC_DEFAULT_BYTES


def test_server_timing_is_within_the_callers_time(server: str, clips: list[bytes]) -> None:
    with httpx2.Client(base_url=server, timeout=60) as client:
        for clip in clips[:4]:
            response = client.post(URL, content=clip)
            parts = response.headers["server-timing"].split(", ")
            stages = {name: float(ms) for name, ms in (part.split(";dur=") for part in parts)}
            total = stages.pop("total")
            assert sum(stages.values()) <= total <= response.elapsed.total_seconds() * 1000


def test_hugging_face_client(server: str, clips: list[bytes]) -> None:
    from huggingface_hub import InferenceClient

    client = InferenceClient(model=server)
    for arguments, count in (({}, 9), ({"top_k": 3}, 3)):
        items = client.audio_classification(clips[4], **arguments)
        assert len(items) == count
        assert all(isinstance(item.label, str) and 0 <= item.score <= 1 for item in items)


def test_handle_from_another_job_and_namespace(server: str, clips: list[bytes]) -> None:
    import ray

    script = """
        import base64, json, sys
        import numpy as np
        import ray
        from ray import serve
        address, *clips = json.load(sys.stdin)
        ray.init(address=address, namespace="elsewhere", log_to_driver=False)
        handle = serve.get_app_handle("emotion2vec")
        audio = [base64.b64decode(clip) for clip in clips]
        calls = [handle.predict.remote(audio[i % len(audio)], top_k=9) for i in range(50)]
        results = [call.result(timeout_s=60) for call in calls]
        wave = np.frombuffer(audio[4][44:], "<i2").astype(np.float32) / 32768
        results.append(handle.predict.remote(wave, sample_rate=16000).result(timeout_s=60))
        results.append(handle.predict.remote(b"nothing").result(timeout_s=60))
        json.dump(results, sys.stdout)
    """
    import json

    address = ray.get_runtime_context().gcs_address
    sent = json.dumps([address, *(base64.b64encode(clip).decode() for clip in clips)])
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        input=sent,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    *results, of_array, refused = json.loads(done.stdout)
    with httpx2.Client(base_url=server, timeout=60) as client:
        http = [client.post(URL, content=clip).json() for clip in clips]
    for index, result in enumerate(results):
        expected = http[index % len(clips)]
        assert _named(result) == pytest.approx(_named(expected), abs=1e-5)
        assert set(result) == set(expected)
    assert _named(of_array) == pytest.approx(_named(http[4]), abs=1e-5)
    assert (refused["status"], refused["error_type"]) == (415, "unsupported_media_type")
