"""API keys and the cache of a real deployment."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest
from long_sounds import stereo_voices, wav_of

from serve_app.settings import APP_NAME, Settings

URL = "/v1/audio/emotions"
FIRST, SECOND, NEVER = "k-first-4711-secret", "k-second-0815-secret", "k-wrong-1234-secret"


@pytest.fixture(scope="module")
def key_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("keys") / "keys.txt"
    file.write_text(f"{FIRST}\n")
    return file


@pytest.fixture(scope="module")
def redeploy(cluster: str, deploy: Callable[..., str], key_file: Path) -> Callable[[], str]:
    """The application with keys and a cache, anew: what was there before is gone."""
    from ray import serve

    from serve_app import build

    def start() -> str:
        serve.delete(APP_NAME)
        settings = Settings(dtype="float32", cache_bytes=2**20, api_keys_file=str(key_file))
        serve.run(build(settings), name=APP_NAME, route_prefix="/")
        deadline = time.monotonic() + 60
        while httpx2.get(f"{cluster}/health", timeout=60).status_code != 200:
            assert time.monotonic() < deadline
        return cluster

    return start


@pytest.fixture(scope="module")
def server(redeploy: Callable[[], str]) -> str:
    return redeploy()


@pytest.fixture(scope="module")
def clip() -> bytes:
    return wav_of(stereo_voices(3))


def _post(server: str, key: str | None, content: bytes, query: str = "") -> httpx2.Response:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    with httpx2.Client(base_url=server, timeout=60, headers=headers) as client:
        return client.post(f"{URL}{query}", content=content)


def _is_hit(response: httpx2.Response) -> bool:
    assert response.status_code == 200
    return "cache;desc=hit" in response.headers["server-timing"]


def _until_hit(server: str, clip: bytes) -> httpx2.Response:
    """Writing the cache is not waited for by the answer."""
    deadline = time.monotonic() + 20
    while not _is_hit(response := _post(server, FIRST, clip)):
        assert time.monotonic() < deadline
    return response


def test_repeated_clip_is_a_hit_with_the_same_answer(server: str, clip: bytes) -> None:
    first = _post(server, FIRST, clip)
    assert not _is_hit(first)
    assert {**_until_hit(server, clip).json(), "id": ""} == {**first.json(), "id": ""}
    framed = _post(server, FIRST, clip, "?granularity=frame&labels=angry,happy")
    assert _is_hit(framed)
    assert not _is_hit(_post(server, FIRST, clip, "?start=0.5"))


def test_lost_cache_is_a_miss(server: str, clip: bytes) -> None:
    before = _until_hit(server, clip).json()
    [replica] = [p for p in psutil.Process().children(recursive=True) if _is_cache(p)]
    os.kill(replica.pid, signal.SIGKILL)
    answers = [_post(server, FIRST, clip) for _ in range(5)]
    assert not all(_is_hit(answer) for answer in answers)
    for answer in answers:
        assert {**answer.json(), "id": ""} == {**before, "id": ""}
    _until_hit(server, clip)


def _is_cache(process: psutil.Process) -> bool:
    try:
        return "emotion2vec:Cache" in " ".join(process.cmdline())
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return False


def test_cache_ends_with_the_application(
    server: str, redeploy: Callable[[], str], clip: bytes
) -> None:
    _until_hit(server, clip)
    redeploy()
    assert not _is_hit(_post(server, FIRST, clip))


def test_keys_open_and_are_rotated(server: str, key_file: Path, clip: bytes) -> None:
    refused: list[dict[str, Any]] = []
    for key in (None, NEVER, FIRST[:-1], SECOND):
        answer = _post(server, key, clip)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == "Bearer"
        refused.append(answer.json())
    assert {body["error_type"] for body in refused} == {"unauthorized"}
    key_file.write_text(f"{SECOND}\n{FIRST}\n")
    _until_status(server, SECOND, clip, 200)
    assert _post(server, FIRST, clip).status_code == 200
    key_file.write_text(f"{SECOND}\n")
    _until_status(server, FIRST, clip, 401)
    assert _post(server, SECOND, clip).status_code == 200
    key_file.write_text(f"{FIRST}\n")
    _until_status(server, FIRST, clip, 200)
    texts = [str(body) for body in refused]
    assert not any(key in text for text in texts for key in (FIRST, SECOND, NEVER, FIRST[:-1]))


def _until_status(server: str, key: str, clip: bytes, status: int) -> None:
    deadline = time.monotonic() + 20
    while _post(server, key, clip).status_code != status:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_no_key_is_in_a_log_or_a_metric(server: str, clip: bytes) -> None:
    import ray
    from ray._private.worker import global_worker

    _post(server, FIRST, clip)
    _post(server, NEVER, clip)
    time.sleep(1)  # log files are written behind the answer
    folder = Path(global_worker.node.get_session_dir_path())
    files = [file for file in folder.rglob("*") if file.is_file() and not file.is_socket()]
    assert any("/v1/audio/emotions" in file.read_text(errors="replace") for file in files)
    port = ray.nodes()[0]["MetricsExportPort"]
    texts = {str(file): file.read_bytes() for file in files}
    texts["metrics"] = httpx2.get(f"http://127.0.0.1:{port}/metrics", timeout=30).content
    for name, text in texts.items():
        for key in (FIRST, SECOND, NEVER):
            assert key.encode() not in text, name
