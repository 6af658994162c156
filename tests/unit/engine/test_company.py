"""A clip's result never depends on its company, nor on another clip's failure."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch

from engine import EmotionError, Emotions, Engine

LENGTHS = (12_345, 400, 50_001, 720, 719, 33_333)


@pytest.fixture(scope="module")
def waves(clip: Any) -> list[Any]:
    return [clip(n, n) for n in LENGTHS]


@pytest.mark.parametrize("place", range(len(LENGTHS)))
def test_float32_first_middle_or_last_equals_alone(
    place: int, tiny_engine: Engine, waves: list[Any]
) -> None:
    [alone] = tiny_engine.infer([waves[0]], frame_embeddings=True)
    mixture = waves[1 : place + 1] + [waves[0]] + waves[place + 1 :]
    together = tiny_engine.infer(mixture, frame_embeddings=True)[place]
    assert score_distance(alone, together) <= 1e-5
    np.testing.assert_allclose(together.frame_embeddings, alone.frame_embeddings, atol=1e-4, rtol=0)
    np.testing.assert_allclose(together.frame_logits, alone.frame_logits, atol=1e-4, rtol=0)


def test_a_loud_neighbour_changes_nothing(tiny_engine: Engine, waves: list[Any]) -> None:
    [alone] = tiny_engine.infer([waves[0]])
    loud = np.full(20_000, 3e4, np.float32)
    loud[::7] *= -1
    for mixture in ([loud, waves[0]], [waves[0], loud]):
        place = 1 if mixture[0] is loud else 0
        assert score_distance(alone, tiny_engine.infer(mixture)[place]) <= 1e-5


def test_bfloat16_in_company_equals_alone(tiny: Any, waves: list[Any]) -> None:
    engine = Engine.load(tiny, device="cpu", dtype="bfloat16")
    together = engine.infer(waves)
    for wave, result in zip(waves, together, strict=True):
        assert score_distance(engine.infer([wave])[0], result) <= 0.005
    assert engine.take_retries() == 0


def test_bfloat16_is_near_float32(tiny: Any, tiny_engine: Engine, waves: list[Any]) -> None:
    exact = tiny_engine.infer(waves)
    rounded = Engine.load(tiny, device="cpu", dtype="bfloat16").infer(waves)
    for a, b in zip(exact, rounded, strict=True):
        assert 0 < score_distance(a, b) <= 0.02


def test_two_threads_at_once_get_what_each_gets_alone(
    tiny_engine: Engine, waves: list[Any]
) -> None:
    alone = [tiny_engine.infer([wave])[0] for wave in waves]
    with ThreadPoolExecutor(2) as workers:
        for _ in range(5):
            together = workers.map(lambda wave: tiny_engine.infer([wave])[0], waves)
            for single, result in zip(alone, together, strict=True):
                assert score_distance(single, result) <= 1e-5


def test_batches_of_bounded_size_give_the_same(
    tiny_engine: Engine, waves: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    together = tiny_engine.infer(waves)
    monkeypatch.setattr("engine.engine.MAX_BATCH_FRAMES", 100)
    for a, b in zip(together, tiny_engine.infer(waves), strict=True):
        assert score_distance(a, b) <= 1e-5


@pytest.mark.parametrize(
    ("seconds", "passes"), [(4.0, [4]), (6.9, [4, 2.9]), (6.0, [6]), (13.0, [4, 4, 5])]
)
def test_long_audio_is_scored_in_passes_each_like_the_excerpt_alone(
    seconds: float, passes: list[float], tiny: Any, clip: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.engine.TAIL_SECONDS", 2.5)
    engine = Engine.load(tiny, device="cpu", dtype="float32", pass_seconds=4.0)
    wave = clip(round(seconds * 16_000))
    [long] = engine.infer([wave], frame_embeddings=True)
    bounds = np.cumsum([0, *(round(p * 16_000) for p in passes)])
    excerpts = [wave[a:b] for a, b in zip(bounds[:-1], bounds[1:], strict=True)]
    parts = [engine.infer([excerpt], frame_embeddings=True)[0] for excerpt in excerpts]
    assert long.pass_frames == tuple(len(part.frame_logits) for part in parts)
    rows = np.concatenate([part.frame_logits for part in parts])
    np.testing.assert_allclose(long.frame_logits, rows, atol=1e-5, rtol=0)
    features = np.concatenate([part.frame_embeddings for part in parts])
    np.testing.assert_allclose(long.embedding, features.mean(0), atol=1e-5, rtol=0)


def test_errors_belong_to_their_clip(tiny_engine: Engine, waves: list[Any]) -> None:
    nan, infinite = waves[0].copy(), waves[0].copy()
    nan[100], infinite[-1] = np.nan, np.inf
    bad = {
        "audio_too_short": [waves[0][:399], waves[0][:0]],
        "non_finite_audio": [nan, infinite],
        "invalid_request": [
            waves[0].astype(np.float64),
            (waves[0] * 1000).astype(np.int16),
            waves[0].reshape(1, -1),
            waves[0][0],
        ],
    }
    mixture, expected = [waves[2]], [None]
    for error_type, clips in bad.items():
        for broken in clips:
            mixture += [broken, waves[3]]
            expected += [error_type, None]
    results = tiny_engine.infer_each(mixture)
    assert [getattr(result, "error_type", None) for result in results] == expected
    assert score_distance(results[0], tiny_engine.infer([waves[2]])[0]) <= 1e-5
    assert score_distance(results[-1], tiny_engine.infer([waves[3]])[0]) <= 1e-5
    too_short = results[1]
    assert isinstance(too_short, EmotionError)
    assert "399" in too_short.message
    assert "400" in too_short.message


def test_infer_raises_the_first_error(tiny_engine: Engine, waves: list[Any]) -> None:
    with pytest.raises(EmotionError, match="399 samples") as caught:
        tiny_engine.infer([waves[0], waves[0][:399], waves[0].astype(np.float64)])
    assert caught.value.error_type == "audio_too_short"
    assert tiny_engine.infer([]) == []


def test_inputs_that_are_not_contiguous_or_writable(tiny_engine: Engine, waves: list[Any]) -> None:
    strided = np.repeat(waves[0], 2)[::2]
    frozen = waves[0].copy()
    frozen.setflags(write=False)
    [expected] = tiny_engine.infer([waves[0]])
    for wave in (strided, frozen):
        assert score_distance(expected, tiny_engine.infer([wave])[0]) <= 1e-6
    assert np.array_equal(frozen, waves[0])


def test_non_finite_low_precision_is_repeated_in_float32_and_counted(
    tiny: Any, waves: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine.load(tiny, device="cpu", dtype="bfloat16")
    exact = Engine.load(tiny, device="cpu", dtype="float32").infer(waves)
    break_clip(engine, monkeypatch, 2, torch.bfloat16)
    results = engine.infer(waves)
    assert engine.take_retries() == 1
    assert engine.take_retries() == 0  # each is told of once
    assert score_distance(results[2], exact[2]) <= 1e-5


def test_non_finite_in_float32_as_well_is_an_error_of_that_clip(
    tiny: Any, waves: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine.load(tiny, device="cpu", dtype="bfloat16")
    break_clip(engine, monkeypatch, 2, torch.bfloat16, torch.float32)
    results = engine.infer_each(waves)
    assert [isinstance(result, Emotions) for result in results] == [i != 2 for i in range(6)]
    assert results[2].error_type == "non_finite_audio"  # type: ignore[union-attr]
    assert engine.take_retries() == 1


def break_clip(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, clip: int, *dtypes: torch.dtype
) -> None:
    """Make encoders of `dtypes` overflow on the clip as long as LENGTHS[clip]."""
    original = type(engine.encoder).forward

    def forward(self: Any, waves: Any, *args: Any, **options: Any) -> Any:
        features, packing = original(self, waves, *args, **options)
        if self.feature_proj.weight.dtype in dtypes:
            first = 0
            for wave, frames in zip(waves, packing.frames, strict=True):
                if wave.numel() == LENGTHS[clip]:
                    features[first + frames - 1, 3] = torch.inf
                first += frames
        return features, packing

    monkeypatch.setattr(type(engine.encoder), "forward", forward)


def score_distance(a: Any, b: Any) -> float:
    assert set(a.scores) == set(b.scores)
    return max(abs(a.scores[name] - b.scores[name]) for name in a.scores)


def test_out_of_memory_is_retried_in_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine.load("emotion2vec_mini", device="cpu", dtype="float32")
    encode, sizes = engine._encode, []

    def small_only(encoder: object, waves: list[np.ndarray]) -> object:
        sizes.append(len(waves))
        if len(waves) > 1:
            raise torch.OutOfMemoryError("out of memory")
        return encode(encoder, waves)

    rng = np.random.default_rng(0)
    clips = [rng.standard_normal(n).astype(np.float32) for n in (8_000, 9_000, 16_000)]
    expected = engine.infer(clips)
    monkeypatch.setattr(engine, "_encode", small_only)
    for result, wanted in zip(engine.infer(clips), expected, strict=True):
        assert result.scores == pytest.approx(wanted.scores, abs=1e-5)
    assert sizes == [3, 1, 2, 1, 1]
