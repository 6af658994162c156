"""Voice activity detection against the package's own runner and its own rules."""

import subprocess
import sys
import warnings
import wave as wave_files
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from engine import ModelError, speech
from engine.speech import SpeechDetector, speech_ratio, speech_regions

Samples = NDArray[np.float32]
Voice = Callable[[float], Samples]
CORPUS = Path(__file__).resolve().parents[4] / "shared" / "emodb"


@pytest.fixture(scope="module")
def package() -> Any:
    """The silero_vad module; its import's one thread is taken back."""
    threads = torch.get_num_threads()
    import silero_vad

    torch.set_num_threads(threads)
    return silero_vad


@pytest.fixture(scope="module")
def chunk_by_chunk(package: Any) -> Callable[[Samples], Samples]:
    """The package's runner: one chunk after the other, with the state it keeps."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # old ways of finding and loading a file
        model = package.load_silero_vad()

    def probabilities(clip: Samples) -> Samples:
        whole_chunks = np.pad(clip, (0, -clip.size % 512))
        with torch.inference_mode():
            return model.audio_forward(torch.from_numpy(whole_chunks)[None], 16_000)[0].numpy()

    return probabilities


def _noise(samples: int, level: float, seed: int = 0) -> Samples:
    rng = np.random.default_rng(seed)
    return (level * rng.standard_normal(samples)).astype(np.float32)


def _silence(seconds: float) -> Samples:
    return np.zeros(round(seconds * 16_000), np.float32)


@pytest.mark.parametrize("samples", [1, 511, 512, 513, 5000, 16_001])
def test_probabilities_are_those_of_the_package_for_any_length(
    detector: SpeechDetector,
    chunk_by_chunk: Callable[[Samples], Samples],
    voice: Voice,
    samples: int,
) -> None:
    clip = voice(2.0)[-samples:]
    result = detector.probabilities(clip)
    assert result.shape == (-(-samples // 512),)
    np.testing.assert_allclose(result, chunk_by_chunk(clip), atol=1e-4)


def test_the_state_goes_on_through_a_long_clip(
    detector: SpeechDetector, chunk_by_chunk: Callable[[Samples], Samples], voice: Voice
) -> None:
    clip = np.concatenate(
        [voice(2.5), _silence(3), voice(2), _noise(48_000, 0.01), _silence(4.7), voice(2.9)]
    )
    clip += _noise(clip.size, 0.002, seed=1)
    # The network sees 512 chunks at a time: the last voice lies across that border
    assert clip.size > 512 * 512 + 16_000
    result = detector.probabilities(clip)
    assert result.max() > 0.8
    assert result.min() < 0.01
    np.testing.assert_allclose(result, chunk_by_chunk(clip), atol=1e-4)


def test_regions_follow_the_rules_of_the_package(package: Any) -> None:
    rng = np.random.default_rng(5)
    found = 0
    for _ in range(300):
        steps = rng.normal(0, rng.choice([0.5, 1.5]), int(rng.integers(1, 120)))
        chances = 1 / (1 + np.exp(-np.cumsum(steps) - rng.normal()))
        chances[rng.random(chances.size) < 0.1] = rng.choice([0.0, 0.35, 0.4, 0.5, 1.0])
        samples = chances.size * 512 - int(rng.integers(0, 512))
        expected = package.get_speech_timestamps_from_probs(
            chances.astype(np.float32).tolist(), audio_length_samples=samples
        )
        regions = speech_regions(chances.astype(np.float32), samples)
        assert regions == [(e["start"] / 16_000, e["end"] / 16_000) for e in expected]
        found += len(regions)
    assert found > 200


def test_speech_then_silence_is_found_at_the_front_alone(
    detector: SpeechDetector, voice: Voice
) -> None:
    regions = detector.detect(np.concatenate([voice(3.0), _silence(27)]))
    assert regions
    assert regions[0][0] < 0.5
    assert regions[-1][1] < 3.2


def test_two_utterances_are_two_disjoint_regions_inside_the_clip(
    detector: SpeechDetector, voice: Voice
) -> None:
    clip = np.concatenate([_silence(1), voice(2), _silence(1.5), voice(2)])
    (first_start, first_end), (second_start, second_end) = detector.detect(clip)
    assert 1.0 <= first_start < 1.4
    assert 2.8 < first_end < 3.2
    assert 4.4 <= second_start < 4.9
    assert second_end == clip.size / 16_000


@pytest.mark.parametrize("level", [0.0, 1e-4, 0.01, 0.5])
def test_silence_and_noise_hold_no_speech(detector: SpeechDetector, level: float) -> None:
    assert detector.detect(_noise(160_000, level)) == []


@pytest.mark.parametrize("samples", [0, 1, 400])
def test_clips_shorter_than_speech_hold_none(
    detector: SpeechDetector, voice: Voice, samples: int
) -> None:
    assert detector.detect(voice(2.0)[16_000 : 16_000 + samples]) == []


def test_samples_may_be_read_only_or_strided(detector: SpeechDetector, voice: Voice) -> None:
    clip = voice(2.0)
    expected = detector.detect(clip)
    assert detector.detect(np.frombuffer(clip.tobytes(), np.float32)) == expected
    assert detector.detect(np.stack([clip, clip], axis=1)[:, 0]) == expected


def test_an_answer_depends_on_no_earlier_call(detector: SpeechDetector, voice: Voice) -> None:
    clip, other = voice(2.0), np.concatenate([_noise(40_000, 0.1), voice(1.1)])
    alone = SpeechDetector().probabilities(clip)
    detector.probabilities(other)
    np.testing.assert_array_equal(detector.probabilities(clip), alone)


def test_one_detector_serves_many_threads(detector: SpeechDetector, voice: Voice) -> None:
    clips = [np.concatenate([_silence(0.1 * i), voice(2.0)]) for i in range(8)]
    alone = [detector.probabilities(clip) for clip in clips]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(detector.probabilities, clips * 4))
    for result, expected in zip(together, alone * 4, strict=True):
        np.testing.assert_allclose(result, expected, atol=1e-6)


def test_the_thread_count_of_the_process_stays() -> None:
    program = (
        "import sys, torch, numpy\n"
        "torch.set_num_threads(2)\n"
        "from engine.speech import SpeechDetector\n"
        "SpeechDetector().detect(numpy.zeros(1600, numpy.float32))\n"
        "print(torch.get_num_threads(), 'silero_vad' in sys.modules)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert result.stdout.split() == ["2", "False"]


@pytest.fixture
def nothing_loaded() -> Iterator[None]:
    speech._load_network.cache_clear()
    yield
    speech._load_network.cache_clear()


@pytest.mark.usefixtures("nothing_loaded")
def test_a_missing_package_is_an_error_for_the_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speech, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match="silero-vad"):
        SpeechDetector()


@pytest.mark.usefixtures("nothing_loaded")
@pytest.mark.parametrize("change", ["renamed", "reshaped"])
def test_another_model_in_the_package_is_an_error_for_the_operator(
    monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    renamed = speech._renamed

    def changed(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        if change == "renamed":
            return renamed({"other." + name: value for name, value in weights.items()})
        return renamed({name: value[:1] for name, value in weights.items()})

    monkeypatch.setattr(speech, "_renamed", changed)
    with pytest.raises(ModelError, match="another shape"):
        SpeechDetector()


def test_speech_ratio_is_the_regions_share_of_the_clip() -> None:
    assert speech_ratio([(0.5, 1.0), (2.0, 3.5)], 4.0) == 0.5
    assert speech_ratio([], 4.0) == 0.0
    assert speech_ratio([], 0.0) == 0.0
    assert speech_ratio([(0.0, 4.0)], 4.0) == 1.0


@pytest.mark.corpus
@pytest.mark.skipif(not CORPUS.is_dir(), reason="needs the EmoDB corpus")
def test_recorded_speech_gives_the_package_regions(
    detector: SpeechDetector, package: Any, chunk_by_chunk: Callable[[Samples], Samples]
) -> None:
    found = 0
    for path in sorted(CORPUS.glob("*.wav"))[::20]:
        with wave_files.open(str(path)) as file:
            recorded = np.frombuffer(file.readframes(file.getnframes()), np.int16)
        clip = recorded.astype(np.float32) / 32_768
        expected = package.get_speech_timestamps_from_probs(
            chunk_by_chunk(clip).tolist(), audio_length_samples=clip.size
        )
        regions = detector.detect(clip)
        assert regions == [(e["start"] / 16_000, e["end"] / 16_000) for e in expected]
        found += len(regions)
    assert found >= 20
