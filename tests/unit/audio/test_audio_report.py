"""What the report says of level, clipping and bandwidth, and what it costs."""

import io

import numpy as np
import pytest
from sound_files import RATE, voice, wav

from engine.audio import DecodeRequest, SourceReport, load
from engine.audio.report import decibels

VOICE = voice()


def report_of(samples: np.ndarray, rate: int = RATE, **request: object) -> SourceReport:
    return load(io.BytesIO(wav(samples, rate)), DecodeRequest(**request))[1][0]


def codes(report: SourceReport) -> list[str]:
    return [code for code, _ in report.warnings]


def test_good_sound_gets_no_warning() -> None:
    assert report_of(VOICE).warnings == ()


@pytest.mark.parametrize("pass_seconds", [30.0, 6.0])
def test_the_level_is_the_rms_in_db_of_full_scale(pass_seconds: float) -> None:
    sound = voice(14.0)
    expected = 10 * np.log10(np.mean((sound / 32768) ** 2))
    report = report_of(sound, pass_seconds=pass_seconds)
    assert report.level_dbfs == pytest.approx(expected, abs=1e-3)


def test_a_sine_at_full_scale_is_3_db_down() -> None:
    sine = np.sin(2 * np.pi * 5_000 * np.arange(RATE * 2) / RATE).astype(np.float32)
    assert report_of(sine).level_dbfs == pytest.approx(-3.01, abs=0.01)


def test_silence_is_no_speech_and_nothing_else() -> None:
    report = report_of(np.zeros(3 * RATE, np.int16))
    assert codes(report) == ["no_speech"]
    assert report.level_dbfs == -120.0


def test_a_constant_is_silence_whatever_its_level() -> None:
    assert codes(report_of(np.full(20 * RATE, 9_000, np.int16), pass_seconds=6.0)) == ["no_speech"]
    assert decibels(0.0) == -120.0


def test_quiet_sound_is_low_level() -> None:
    assert codes(report_of(VOICE // 100)) == ["low_level"]
    assert codes(report_of((VOICE / 32768 / 100).astype(np.float32))) == ["low_level"]


@pytest.mark.parametrize(("share", "expected"), [(0.0005, []), (0.002, ["clipped"])])
@pytest.mark.parametrize("kind", ["int16", "float32"])
def test_clipping_counts_from_a_thousandth(share: float, expected: list[str], kind: str) -> None:
    sound = voice(20.0)
    chosen = np.random.default_rng(0).choice(len(sound), round(share * len(sound)), replace=False)
    sound[chosen] = np.where(chosen % 2, 32767, -32768)
    samples = sound if kind == "int16" else (sound / 32768).astype(np.float32)
    report = report_of(samples)
    assert report.clipping_ratio == pytest.approx(share, rel=1e-3)
    assert codes(report) == expected


def test_clipping_is_seen_in_the_channels_that_are_mixed() -> None:
    loud = VOICE.copy()
    loud[::100] = 32767
    report = report_of(np.stack([loud, VOICE], 1))
    assert report.clipping_ratio == pytest.approx(0.005, rel=1e-3)
    assert "clipped" in codes(report)


def test_short_sound() -> None:
    assert codes(report_of(voice(0.999))) == ["short_audio"]
    assert codes(report_of(voice(1.0))) == []


def low_passed(sound: np.ndarray, rate: int, hertz: float) -> np.ndarray:
    spectrum = np.fft.rfft(sound)
    spectrum[np.fft.rfftfreq(len(sound), 1 / rate) > hertz] *= 1e-4
    return np.fft.irfft(spectrum, len(sound)).astype(np.int16)


@pytest.mark.parametrize("rate", [16_000, 44_100, 48_000])
def test_sound_without_treble_is_narrowband(rate: int) -> None:
    sound = voice(3.0, rate)
    assert codes(report_of(low_passed(sound, rate, 3_400), rate)) == ["narrowband"]
    assert codes(report_of(low_passed(sound, rate, 7_500), rate)) == []


def test_8_khz_is_narrowband_by_its_rate() -> None:
    assert codes(report_of(voice(3.0, 8_000), 8_000)) == ["narrowband"]
    assert codes(report_of(voice(3.0, 11_025), 11_025)) == []


def test_each_channel_has_its_own_report_when_split() -> None:
    body = wav(np.stack([VOICE, VOICE // 100], 1))
    _, reports = load(io.BytesIO(body), DecodeRequest(channels="split"))
    assert [codes(report) for report in reports] == [[], ["low_level"]]
    assert reports[0].level_dbfs - reports[1].level_dbfs == pytest.approx(40, abs=0.5)


def test_huge_floats_do_not_upset_the_report() -> None:
    report = report_of(VOICE.astype(np.float32) * np.float32(1e30))
    assert np.isfinite(report.level_dbfs)
    assert "clipped" in codes(report)
