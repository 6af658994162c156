"""A folder of awkward files, when it is there: each over raw, JSON and multipart bodies."""

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest

CASES = Path(__file__).parents[2] / ".." / "shared" / "cases"
URL = "/v1/audio/emotions"

pytestmark = pytest.mark.skipif(not CASES.is_dir(), reason="no folder of awkward files")

REFUSED = {
    "d01_zero.bin": (400, "empty_body"),
    "d02_header_only.wav": (422, "audio_empty"),
    "d10_rate0.wav": (422, "audio_decode_failed"),
    "d10_ch0.wav": (422, "audio_decode_failed"),
    "d11_rate1.wav": (422, "sample_rate_out_of_range"),
    "d17_cut_moov_end.m4a": (422, "audio_decode_failed"),
    "d19_video_only.mp4": (422, "no_audio_stream"),
    "d21_html.html": (415, "unsupported_media_type"),
    "d21_png.png": (415, "unsupported_media_type"),
    "d21_random.bin": (415, "unsupported_media_type"),
    "d21_srt.srt": (415, "unsupported_media_type"),
    "d21_text.txt": (415, "unsupported_media_type"),
    "n01_one_nan.wav": (422, "non_finite_audio"),
    "n07_len399.wav": (422, "audio_too_short"),
    "s01_ffconcat.wav": (415, "unsupported_media_type"),
    "s02_sdp.wav": (415, "unsupported_media_type"),
}
SAME = {
    "d03_stream_ffffffff.wav": set(),
    "d03_stream_zero.wav": set(),
    "d05_f32.wav": set(),
    "d05_f64.wav": set(),
    "d08_truncated.wav": {"truncated"},
    "d12_ch6.wav": set(),
    "d13_antiphase.wav": {"phase_cancelled"},
}
LIKE = [
    "d04_ext24_96k_stereo.wav",
    "d05_u8.wav",
    "d14_frag.mp4",
    "d14_moov_end.m4a",
    "d15_live.webm",
    "d15_opus.ogg",
    "d16_plain.mp3",
    "d19_video_audio.mp4",
]
GOOD = {
    "d05_ulaw8k.wav": {"narrowband"},
    "d11_rate44099.wav": set(),
    "n03_digital_silence.wav": {"no_speech"},
    "n06_gain_m40.wav": {"low_level"},
    "n07_len400.wav": {"short_audio"},
    "n07_len720.wav": {"short_audio"},
}


@pytest.fixture(scope="module")
def server(deploy: Callable[..., str]) -> str:
    """The application on the bundled model in float32."""
    return deploy(dtype="float32", cache_bytes=0)


def _send_all(server: str, name: str, query: str = "") -> list[httpx2.Response]:
    """The file as a raw body, a form with a wrong name and type, and base64."""
    body = (CASES / name).read_bytes()
    text = base64.b64encode(body).decode()
    with httpx2.Client(base_url=server, timeout=60) as client:
        url = f"{URL}?{query}"
        return [
            client.post(url, content=body),
            client.post(url, files={"file": ("photo.jpg", body, "image/jpeg")}),
            client.post(url, json={"inputs": text}),
        ]


def _answer(server: str, name: str, query: str = "") -> dict[str, Any]:
    responses = _send_all(server, name, query)
    assert [r.status_code for r in responses] == [200, 200, 200]
    answers = [{**r.json(), "id": ""} for r in responses]
    assert answers[0] == answers[1] == answers[2]
    scores = [s["score"] for s in answers[0]["scores"]]
    assert all(0 <= score <= 1 for score in scores)
    assert sum(scores) == pytest.approx(1, abs=1e-3)
    return answers[0]


def _scores(answer: dict[str, Any]) -> dict[str, float]:
    return {item["label"]: item["score"] for item in answer["scores"]}


def _codes(answer: dict[str, Any]) -> set[str]:
    return {warning["code"] for warning in answer["warnings"]}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(server: str, name: str) -> None:
    for response in _send_all(server, name):
        body = response.json()
        assert (response.status_code, body["error_type"]) == REFUSED[name]
        assert body["error"].endswith(".")
        for leak in ("/", "ffmpeg", "libav", "PyAV", "Traceback", "torch"):
            assert leak.lower() not in body["error"].lower()


@pytest.mark.parametrize("name", SAME)
def test_same_as_the_reference(server: str, name: str) -> None:
    reference = _answer(server, "ref.wav")
    answer = _answer(server, name, "strict=true" if "d03" in name else "")
    assert _scores(answer) == pytest.approx(_scores(reference), abs=1e-4)
    assert answer["duration"] == 3.0
    assert _codes(answer) == SAME[name]
    assert _codes(reference) == set()


@pytest.mark.parametrize("name", LIKE)
def test_like_the_reference(server: str, name: str) -> None:
    reference = np.array(_answer(server, "ref.wav", "embeddings=utterance")["embedding"])
    answer = _answer(server, name, "embeddings=utterance")
    embedding = np.array(answer["embedding"])
    cosine = reference @ embedding / np.linalg.norm(reference) / np.linalg.norm(embedding)
    assert cosine >= 0.98
    assert answer["duration"] == pytest.approx(3.0, abs=0.05)
    assert _codes(answer) == set()


@pytest.mark.parametrize("name", GOOD)
def test_good_with_the_named_warnings(server: str, name: str) -> None:
    assert _codes(_answer(server, name)) == GOOD[name]


@pytest.mark.parametrize("name", ["d17_cut.flac", "d17_hole.mp3"])
def test_damage_is_said_or_refused(server: str, name: str) -> None:
    answer = _answer(server, name)
    assert _codes(answer) & {"truncated", "corrupt_frames"}
    for response in _send_all(server, name, "strict=true"):
        assert response.status_code == 422


def test_webm_and_ogg_agree(server: str) -> None:
    webm, ogg = _answer(server, "d15_live.webm"), _answer(server, "d15_opus.ogg")
    assert _scores(webm) == pytest.approx(_scores(ogg), abs=1e-4)


def test_two_speakers(server: str) -> None:
    body = (CASES / "d13_two_speakers.wav").read_bytes()
    with httpx2.Client(base_url=server, timeout=60) as client:
        data = client.post(f"{URL}?channels=split", content=body).json()["data"]
        for number, item in enumerate(data):
            alone = client.post(f"{URL}?channels={number}", content=body).json()
            assert _scores(item) == pytest.approx(_scores(alone), abs=1e-5)


def test_speech_then_silence(server: str) -> None:
    query = "granularity=segment&segmentation=speech"
    segments = _answer(server, "n08_speech_then_silence.wav", query)["segments"]
    assert segments
    assert all(0 <= s["start"] < s["end"] <= 3.2 for s in segments)


def test_frame_counts_of_the_shortest_audio(server: str) -> None:
    for name, frames in (("n07_len400.wav", 1), ("n07_len720.wav", 2)):
        [run] = _answer(server, name, "granularity=frame")["frames"]["runs"]
        assert len(run["scores"]) == frames
