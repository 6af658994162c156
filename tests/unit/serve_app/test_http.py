"""Bodies, parameters, results and errors over HTTP."""

import base64
import json

import httpx2
import numpy as np
import pytest
from fake_graph import FakeGraph, speech_like, wav_bytes

from serve_app.parameters import Parameters

URL = "/v1/audio/emotions"


@pytest.fixture(scope="module")
def clip() -> bytes:
    return wav_bytes(speech_like(1.5))


def _softmax_of_mean_log(rows: list[list[float]]) -> np.ndarray:
    logits = np.log(np.array(rows)).mean(axis=0)
    powers = np.exp(logits - logits.max())
    return powers / powers.sum()


async def test_raw_json_and_multipart_give_the_same_answer(
    http: httpx2.AsyncClient, clip: bytes
) -> None:
    raw = await http.post(URL, content=clip)
    inputs = {"inputs": base64.b64encode(clip).decode()}
    as_json = await http.post(URL, json=inputs)
    form = await http.post(URL, files={"file": ("picture.png", clip, "image/png")})
    assert raw.status_code == as_json.status_code == form.status_code == 200
    answers = [r.json() | {"id": ""} for r in (raw, as_json, form)]
    assert answers[0] == answers[1] == answers[2]
    assert answers[0]["object"] == "audio.emotions"
    assert answers[0]["duration"] == 1.5
    assert answers[0]["label"] == answers[0]["scores"][0]["label"]
    assert sum(s["score"] for s in answers[0]["scores"]) == pytest.approx(1, abs=1e-6)
    assert {s["label"] for s in answers[0]["scores"]} == {"angry", "happy", "neutral", "unknown"}
    assert "frames" not in answers[0]
    assert "embedding" not in answers[0]


async def test_frames_and_utterance_agree(http: httpx2.AsyncClient, clip: bytes) -> None:
    body = (await http.post(f"{URL}?granularity=frame&embeddings=frame", content=clip)).json()
    [run] = body["frames"]["runs"]
    assert body["frames"]["hop"] == 0.02
    assert body["frames"]["labels"] == ["angry", "happy", "neutral", "unknown"]
    assert run["start"] == 0.0
    assert len(run["scores"]) == len(run["embeddings"]) == (24_000 - 400) // 320 + 1
    named = {s["label"]: s["score"] for s in body["scores"]}
    utterance = [named[label] for label in body["frames"]["labels"]]
    assert _softmax_of_mean_log(run["scores"]) == pytest.approx(utterance, abs=1e-5)
    assert np.mean(run["embeddings"], axis=0) == pytest.approx(body["embedding"], abs=1e-6)


async def test_numbers_are_the_shortest_float32(http: httpx2.AsyncClient, clip: bytes) -> None:
    text = (await http.post(URL, content=clip)).text
    for item in json.loads(text)["scores"]:
        shortest = str(np.float32(item["score"]))
        assert float(shortest) == item["score"]


async def test_top_k_keeps_the_most_probable(http: httpx2.AsyncClient, clip: bytes) -> None:
    everything = (await http.post(URL, content=clip)).json()["scores"]
    two = (await http.post(f"{URL}?top_k=2", content=clip)).json()["scores"]
    assert two == everything[:2]


async def test_several_files_are_a_list_and_a_bad_one_fails_alone(
    http: httpx2.AsyncClient, clip: bytes
) -> None:
    files = [("file", ("a", clip)), ("file", ("b", b"no audio at all")), ("file", ("c", clip))]
    response = await http.post(URL, files=files)
    assert response.status_code == 200
    data = response.json()["data"]
    assert [item["index"] for item in data] == [0, 1, 2]
    assert data[1]["error_type"] == "unsupported_media_type"
    assert data[0]["scores"] == data[2]["scores"]


async def test_hugging_face_shape(http: httpx2.AsyncClient, clip: bytes) -> None:
    bare = (await http.post("/predict", content=clip)).json()
    assert [set(item) for item in bare] == [{"label", "score"}] * 4
    text = base64.b64encode(clip).decode()
    parameters = {"top_k": 2, "function_to_apply": "softmax"}
    two = await http.post("/", json={"inputs": text, "parameters": parameters})
    assert two.json() == bare[:2]
    lists = await http.post(
        "/predict", json={"inputs": [text, text], "parameters": {"top_k": None}}
    )
    assert lists.json() == [bare, bare]
    refused = await http.post("/predict?function_to_apply=sigmoid", content=clip)
    assert refused.status_code == 400
    assert "softmax" in refused.json()["error"]


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("windows=3", "windows"),
        ("window=0.01", "window"),
        ("channels=both", "channels"),
        ("start=nan", "start"),
        ("top_k=0", "top_k"),
        ("top_k=2&top_k=3", "top_k"),
        ("granularity=word", "granularity"),
        ("embeddings=yes", "embeddings"),
    ],
)
async def test_bad_parameters_are_named(
    http: httpx2.AsyncClient, clip: bytes, query: str, named: str
) -> None:
    response = await http.post(f"{URL}?{query}", content=clip)
    assert response.status_code == 400
    body = response.json()
    assert body["error_type"] == "invalid_request"
    assert named in body["error"]
    assert body["details"][0]["parameter"] == named


async def test_same_name_in_query_and_form_is_refused(
    http: httpx2.AsyncClient, clip: bytes
) -> None:
    response = await http.post(f"{URL}?top_k=1", data={"top_k": "2"}, files={"file": clip})
    assert response.status_code == 400
    assert "top_k" in response.json()["error"]


@pytest.mark.parametrize(
    ("content", "kind", "status", "error_type"),
    [
        (b"", "audio/wav", 400, "empty_body"),
        (b"hello, this is text", "audio/wav", 415, "unsupported_media_type"),
        (b"{", "application/json", 400, "invalid_request"),
        (b'{"inputs": "%%%"}', "application/json", 400, "invalid_request"),
        (b'{"inputs": [], "x": 1}', "application/json", 400, "invalid_request"),
        (b"--x", "multipart/form-data; boundary=y", 400, "invalid_request"),
        (wav_bytes(np.zeros(399)), "", 422, "audio_too_short"),
    ],
)
async def test_error_table(
    http: httpx2.AsyncClient, content: bytes, kind: str, status: int, error_type: str
) -> None:
    response = await http.post(URL, content=content, headers={"content-type": kind})
    assert response.status_code == status
    body = response.json()
    assert body["error_type"] == error_type
    assert isinstance(body["error"], str)
    assert body["request_id"]


async def test_framework_errors_have_our_body(http: httpx2.AsyncClient) -> None:
    missing = await http.get("/nowhere")
    assert (missing.status_code, missing.json()["error_type"]) == (404, "not_found")
    wrong = await http.get(URL)
    assert (wrong.status_code, wrong.json()["error_type"]) == (405, "method_not_allowed")
    assert wrong.headers["allow"] == "POST"


async def test_unexpected_failure_tells_nothing(
    http: httpx2.AsyncClient, graph: FakeGraph, clip: bytes
) -> None:
    graph.failure = RuntimeError("secret /path/to/file")
    response = await http.post(URL, content=clip)
    assert response.status_code == 500
    assert response.json()["error_type"] == "internal"
    assert "secret" not in response.text


async def test_server_timing_adds_up(http: httpx2.AsyncClient, clip: bytes) -> None:
    response = await http.post(URL, content=clip)
    stages = dict(part.split(";dur=") for part in response.headers["server-timing"].split(", "))
    total = float(stages.pop("total"))
    assert set(stages) == {"decode", "preprocess", "queue", "model"}
    assert sum(map(float, stages.values())) <= total
    assert response.headers["x-audio-duration"] == "1.500000"


async def test_health_tells_ready_from_loading(
    http: httpx2.AsyncClient, graph: FakeGraph, clip: bytes
) -> None:
    graph.ready = False
    assert (await http.get("/live")).status_code == 200
    for response in (await http.get("/health"), await http.post(URL, content=clip)):
        assert response.status_code == 503
        assert response.json()["error_type"] == "not_ready"
    graph.ready = True
    assert (await http.get("/health")).status_code == 200
    info = (await http.get("/info")).json()
    assert info["labels"] == ["angry", "happy", "neutral", "unknown"]
    assert info["limits"]["max_audio_seconds"] == 14_400
    assert info["sample_rate"] == 16_000


async def test_openapi_lists_every_parameter(http: httpx2.AsyncClient) -> None:
    document = (await http.get("/openapi.json")).json()
    names = {p["name"] for p in document["paths"][URL]["post"]["parameters"]}
    assert names == set(Parameters.model_fields)
    assert (await http.get("/docs")).status_code == 200
