"""A folder of awkward files beside the repository, when it is there, and what each must get."""

from pathlib import Path

import numpy as np
import pytest
from sound_files import cosine

from engine.audio import DecodeRequest, Pass, SourceReport, load
from engine.errors import EmotionError

CASES = Path(__file__).parents[3] / ".." / "shared" / "cases"

pytestmark = pytest.mark.skipif(not CASES.is_dir(), reason="no folder of awkward files")

REFUSED = {
    "d01_zero.bin": "empty_body",
    "d02_header_only.wav": "audio_empty",
    "d10_rate0.wav": "audio_decode_failed",
    "d10_ch0.wav": "audio_decode_failed",
    "d11_rate1.wav": "sample_rate_out_of_range",
    "d17_cut_moov_end.m4a": "audio_decode_failed",
    "d19_video_only.mp4": "no_audio_stream",
    "d21_html.html": "unsupported_media_type",
    "d21_png.png": "unsupported_media_type",
    "d21_random.bin": "unsupported_media_type",
    "d21_srt.srt": "unsupported_media_type",
    "d21_text.txt": "unsupported_media_type",
    "n01_one_nan.wav": "non_finite_audio",
    "n07_len399.wav": "audio_too_short",
    "s01_ffconcat.wav": "unsupported_media_type",
    "s02_sdp.wav": "unsupported_media_type",
}
SAME = {
    "ref.wav": [],
    "d03_stream_ffffffff.wav": [],
    "d03_stream_zero.wav": [],
    "d05_f32.wav": [],
    "d05_f64.wav": [],
    "d08_truncated.wav": ["truncated"],
    "d12_ch6.wav": [],
    "d13_antiphase.wav": ["phase_cancelled"],
}
LIKE = {
    "d04_ext24_96k_stereo.wav": ("wav", 96_000, 2),
    "d05_u8.wav": ("wav", 16_000, 1),
    "d14_frag.mp4": ("mp4", 44_100, 1),
    "d14_moov_end.m4a": ("m4a", 44_100, 1),
    "d15_live.webm": ("webm", 48_000, 1),
    "d15_opus.ogg": ("ogg", 48_000, 1),
    "d16_plain.mp3": ("mp3", 44_100, 1),
    "d19_video_audio.mp4": ("mp4", 44_100, 1),
}


def heard(name: str, **request: object) -> tuple[list[Pass], SourceReport]:
    passes, reports = load(CASES / name, DecodeRequest(**request))
    return passes, reports[0]


def codes(report: SourceReport) -> list[str]:
    return [code for code, _ in report.warnings]


def at_16k(excerpt: Pass) -> np.ndarray:
    count = round(len(excerpt.samples) * 16_000 / excerpt.sample_rate)
    spectrum = np.fft.rfft(excerpt.samples.astype(float))[: count // 2 + 1]
    return np.fft.irfft(spectrum, count)


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    with pytest.raises(EmotionError) as caught:
        heard(name)
    assert caught.value.error_type == REFUSED[name]


@pytest.mark.parametrize("name", SAME)
def test_same_as_the_reference(name: str) -> None:
    (reference,), _ = heard("ref.wav")
    (excerpt,), report = heard(name, strict="d03" in name)
    scale = 1 / 32768 if excerpt.samples.dtype == np.int16 else 1.0
    # The float files were written before rounding to 16 bit.
    tolerance = 1e-4 if name.startswith("d05") else 0.0
    np.testing.assert_allclose(
        excerpt.samples * scale, reference.samples / 32768, rtol=0, atol=tolerance
    )
    assert report.duration == 3.0
    assert codes(report) == SAME[name]


@pytest.mark.parametrize("name", LIKE)
def test_like_the_reference(name: str) -> None:
    (reference,), _ = heard("ref.wav")
    (excerpt,), report = heard(name)
    assert (report.format, report.sample_rate, report.channels) == LIKE[name]
    assert report.duration == pytest.approx(3.0, abs=0.005 if name.endswith("wav") else 0.05)
    assert codes(report) == []
    assert cosine(reference.samples, at_16k(excerpt)) > 0.95


def test_opus_in_webm_and_ogg_are_the_same() -> None:
    (webm,), (ogg,) = heard("d15_live.webm")[0], heard("d15_opus.ogg")[0]
    np.testing.assert_allclose(webm.samples, ogg.samples, atol=1e-6)


@pytest.mark.parametrize("name", ["d17_cut.flac", "d17_hole.mp3"])
def test_damage_is_said_or_refused(name: str) -> None:
    _, report = heard(name)
    assert {"truncated", "corrupt_frames"} & set(codes(report))
    assert report.duration < 3.0
    with pytest.raises(EmotionError):
        heard(name, strict=True)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("d05_ulaw8k.wav", ["narrowband"]),
        ("d11_rate44099.wav", []),
        ("n03_digital_silence.wav", ["no_speech"]),
        ("n06_gain_m40.wav", ["low_level"]),
        ("n07_len400.wav", ["short_audio"]),
        ("n07_len720.wav", ["short_audio"]),
        ("n08_speech_then_silence.wav", []),
        ("d13_two_speakers.wav", []),
    ],
)
def test_warnings(name: str, expected: list[str]) -> None:
    assert codes(heard(name)[1]) == expected


def test_two_speakers_are_split() -> None:
    passes, _ = heard("d13_two_speakers.wav", channels="split")
    for channel, excerpt in enumerate(passes):
        (alone,), _ = heard("d13_two_speakers.wav", channels=channel)
        np.testing.assert_array_equal(excerpt.samples, alone.samples)
        assert excerpt.channel == channel
