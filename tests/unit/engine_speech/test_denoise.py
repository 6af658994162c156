"""Spectral gating: better where there is noise, harmless where there is none."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from engine import denoise as module
from engine.denoise import denoise

Samples = NDArray[np.float32]
Voice = Callable[[float], Samples]


def _noise(samples: int, seed: int = 0) -> Samples:
    return np.random.default_rng(seed).standard_normal(samples).astype(np.float32)


def _with_noise(clean: Samples, snr_db: float) -> Samples:
    noise = _noise(clean.size)
    wanted = np.mean(clean**2) / 10 ** (snr_db / 10)
    return clean + noise * np.sqrt(wanted / np.mean(noise**2)).astype(np.float32)


def _si_sdr(clean: Samples, estimate: Samples) -> float:
    """Scale-invariant signal-to-distortion ratio in dB (Le Roux et al., 2019)."""
    target = np.dot(estimate, clean) / np.dot(clean, clean) * clean
    return float(10 * np.log10(np.sum(target**2) / np.sum((estimate - target) ** 2)))


@pytest.fixture(scope="module")
def spoken(voice: Voice) -> Samples:
    """Three utterances with pauses."""
    pause = np.zeros(6400, np.float32)
    return np.concatenate([pause, voice(2.0), pause, voice(1.2), pause, voice(2.3)])


@pytest.mark.parametrize(("snr_db", "gain_db"), [(5, 6), (8, 5), (12, 4)])
def test_white_noise_is_reduced(spoken: Samples, snr_db: float, gain_db: float) -> None:
    noisy = _with_noise(spoken, snr_db)
    assert _si_sdr(spoken, denoise([noisy])[0]) > _si_sdr(spoken, noisy) + gain_db


def test_noise_between_the_words_falls_by_twelve_decibels(spoken: Samples) -> None:
    noisy = _with_noise(spoken, 8)
    before, after = (np.std(clip[512:5888]) for clip in (noisy, denoise([noisy])[0]))
    assert after < before / 4


def test_a_closed_gate_leaves_a_tenth(monkeypatch: pytest.MonkeyPatch, spoken: Samples) -> None:
    monkeypatch.setattr(module, "DEVIATIONS", 100.0)
    noisy = _with_noise(spoken, 8)
    np.testing.assert_allclose(denoise([noisy])[0], noisy / 10, atol=1e-5)


def test_clean_speech_survives(spoken: Samples) -> None:
    assert _si_sdr(spoken, denoise([spoken])[0]) > 20


def test_speech_without_a_pause_survives(voice: Voice) -> None:
    clip = voice(2.0)
    assert _si_sdr(clip, denoise([clip])[0]) > 15


def test_padding_is_not_taken_for_the_noise(spoken: Samples) -> None:
    noisy = _with_noise(spoken, 8)
    padded = np.concatenate([noisy, np.zeros(10 * noisy.size, np.float32)])
    result = denoise([padded])[0]
    assert _si_sdr(spoken, result[: noisy.size]) > _si_sdr(spoken, noisy) + 5
    assert not result[noisy.size + module.FRAME_SAMPLES :].any()


def test_an_open_gate_gives_the_clip_back(monkeypatch: pytest.MonkeyPatch, spoken: Samples) -> None:
    monkeypatch.setattr(module, "FLOOR", 1.0)
    noisy = _with_noise(spoken, 8)[:-77]
    result = denoise([noisy])[0]
    assert result is not noisy
    np.testing.assert_allclose(result, noisy, atol=1e-6)


def test_a_result_depends_on_no_other_clip(spoken: Samples) -> None:
    clips = [_with_noise(spoken, 5), spoken, _noise(20_000), _with_noise(spoken[:9000], 12)]
    alone = [denoise([clip])[0] for clip in clips]
    for result, expected in zip(denoise(clips), alone, strict=True):
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("samples", [0, 1, 400, 512, 2800, 2900, 16_000])
def test_every_length_keeps_its_length_and_stays_finite(samples: int) -> None:
    clip = 0.1 * _noise(samples)
    (result,) = denoise([clip])
    assert result.shape == clip.shape
    assert result.dtype == np.float32
    assert np.isfinite(result).all()
    # Under 0.2 s the noise is unknown
    assert (result is clip) == (samples <= 2800)


def test_silence_stays_silence() -> None:
    (result,) = denoise([np.zeros(16_000, np.float32)])
    assert result.shape == (16_000,)
    assert not result.any()


@pytest.mark.parametrize("scale", [1e-41, 1e-22, 1e-3, 1e30])
def test_loudness_does_not_matter(spoken: Samples, scale: float) -> None:
    noisy = _with_noise(spoken, 8)
    (result,) = denoise([(noisy * np.float32(scale)).astype(np.float32)])
    rescaled = (result.astype(np.float64) / scale).astype(np.float32)
    # The smallest floats have few bits left
    assert _si_sdr(denoise([noisy])[0], rescaled) > (15 if scale < 1e-38 else 60)


def test_samples_may_be_read_only_and_are_not_changed(spoken: Samples) -> None:
    noisy = _with_noise(spoken, 8)
    stored = noisy.tobytes()
    (result,) = denoise([np.frombuffer(stored, np.float32)])
    np.testing.assert_array_equal(result, denoise([noisy])[0])
    assert noisy.tobytes() == stored
