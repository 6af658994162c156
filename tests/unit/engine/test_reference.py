"""Our encoder against FunASR's `AutoModel.generate`, alone and in company."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.checkpoints import PLUS_TOKENS, Shape
from engine import Engine
from engine.packing import bucket

LENGTHS = (400, 719, 12_345, 721, 30_001)
SCORES, FEATURES = 1e-5, 1e-4

UNUSE = ("生气/angry", "unuse_0", "unuse_1", "开心/happy", "中立/neutral", "unuse_2", "<unk>")
SIX_HEADS = Shape(embed_dim=96, heads=6, prenet_depth=2, depth=1, channels=32)
OTHER_CONVS = "[(24, 8, 4)] + 2 * [(24, 4, 3)] + [(48, 2, 1)]"

VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "scope map": {"scope_prefix": "d2v_model."},
    "weights at the top": {"nested": None},
    "weights in state_dict": {"nested": "state_dict"},
    "weights in model_state_dict, with scope map": {
        "nested": "model_state_dict",
        "scope_prefix": "d2v_model.",
    },
    "unuse labels": {"tokens": UNUSE},
    "decoder": {"with_decoder": True},
    "decoder, with scope map": {"with_decoder": True, "scope_prefix": "d2v_model."},
    "a scale for each layer": {"audio": {"learned_alibi_scale_per_layer": True}},
    "a scale for each layer, not for each head": {
        "audio": {
            "learned_alibi_scale_per_layer": True,
            "learned_alibi_scale_per_head": False,
        }
    },
    "one scale": {"audio": {"learned_alibi_scale_per_head": False}},
    "layer_norm_first": {"model": {"layer_norm_first": True}},
    "conv_pos_pre_ln": {"audio": {"conv_pos_pre_ln": True}},
    "six heads": {"shape": SIX_HEADS},
    "fewer alibi heads": {"audio": {"num_alibi_heads": 2}},
    "no alibi": {"audio": {"use_alibi_encoder": False}},
    "no extra tokens": {"audio": {"num_extra_tokens": 0}},
    "one extra token": {"audio": {"num_extra_tokens": 1}},
    "even positional kernel": {"audio": {"conv_pos_width": 90}},
    "smallest positional kernel": {"audio": {"conv_pos_width": 5}},
    "one positional layer": {"audio": {"conv_pos_depth": 1, "conv_pos_width": 31}},
    "norms without affine": {"model": {"norm_affine": False}},
    "other epsilon": {"model": {"norm_eps": "3e-02"}},
    "clips not normalised": {"model": {"normalize": False}},
    "other convolutions": {"audio": {"feature_encoder_spec": OTHER_CONVS}},
    "no prenet": {"audio": {"prenet_depth": 0}},
}


@pytest.mark.parametrize("name", VARIANTS)
def test_every_switch_equals_the_reference(
    name: str, make_checkpoint: Any, reference: Any, clip: Any
) -> None:
    directory = make_checkpoint(**VARIANTS[name])
    assert_equal_to_reference(directory, reference, [clip(n, n) for n in LENGTHS])


def test_model_without_classifier_gives_embeddings(
    make_checkpoint: Any, reference: Any, clip: Any
) -> None:
    directory = make_checkpoint(tokens=())
    remove_tokens(directory)
    engine = assert_equal_to_reference(directory, reference, [clip(n, n) for n in LENGTHS])
    [emotions] = engine.infer([clip(16_000)])
    assert emotions.frame_logits.shape == (49, 0)
    assert (emotions.label, emotions.score, emotions.scores) == ("", 0.0, {})


def test_negative_scales_count_as_zero(make_checkpoint: Any, reference: Any, clip: Any) -> None:
    directory = make_checkpoint(audio={"learned_alibi_scale_per_layer": True})
    state = torch.load(directory / "model.pt")
    scale = state["model"]["modality_encoders.AUDIO.alibi_scale"]
    scale[:, :, 1] = -0.7
    scale[0] = -0.2
    torch.save(state, directory / "model.pt")
    assert_equal_to_reference(directory, reference, [clip(n, n) for n in LENGTHS])


def test_half_precision_file_is_computed_in_float32(
    make_checkpoint: Any, reference: Any, clip: Any
) -> None:
    directory = make_checkpoint()
    state = torch.load(directory / "model.pt")["model"]
    torch.save({key: value.half() for key, value in state.items()}, directory / "model.pt")
    assert_equal_to_reference(directory, reference, [clip(n, n) for n in LENGTHS])


def test_layout_without_configuration_json(make_checkpoint: Any, reference: Any, clip: Any) -> None:
    directory = make_checkpoint()
    (directory / "configuration.json").unlink()
    assert_equal_to_reference(directory, reference, [clip(16_000)])


def test_thirty_seconds_among_the_shortest(tiny: Path, reference: Any, clip: Any) -> None:
    waves = [clip(n, n) for n in (400, 480_000, 719, 80_001, 720)]
    assert_equal_to_reference(tiny, reference, waves)


def test_base_shape(make_checkpoint: Any, reference: Any, clip: Any) -> None:
    waves = [clip(n, n) for n in (16_000, 400, 720, 9_001)]
    assert_equal_to_reference(make_checkpoint("base"), reference, waves, orders=1)


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["base", "large"])
def test_published_shapes_from_one_frame_to_thirty_seconds(
    shape: str, make_checkpoint: Any, reference: Any, clip: Any
) -> None:
    waves = [clip(n, n) for n in (32_000, 400, 480_000, 721, 160_001)]
    assert_equal_to_reference(make_checkpoint(shape), reference, waves, orders=2)


def test_silence_and_constant_offset_equal_the_reference(
    tiny: Path, reference: Any, clip: Any
) -> None:
    waves = [np.zeros(8_000, np.float32), np.full(8_000, 0.5, np.float32), clip(8_000)]
    assert_equal_to_reference(tiny, reference, waves)


def test_rows_are_frames_and_their_mean_gives_the_scores(
    tiny_engine: Engine, reference: Any, tiny: Path, clip: Any
) -> None:
    frames = {400: 1, 719: 1, 720: 2, 16_000: 49, 160_000: 499}
    for samples, count in frames.items():
        [emotions] = tiny_engine.infer([clip(samples)], frame_embeddings=True)
        assert emotions.frame_logits.shape == (count, len(PLUS_TOKENS))
        assert emotions.frame_logits.dtype == emotions.embedding.dtype == np.float32
        assert emotions.frame_embeddings is not None
        assert emotions.frame_embeddings.shape == (count, 64)
        assert emotions.pass_frames == (count,)
        mean = emotions.frame_logits.mean(0, dtype=np.float64)
        scores = np.exp(mean) / np.exp(mean).sum()
        theirs = reference(tiny)(clip(samples))
        np.testing.assert_allclose(scores, theirs["scores"], atol=SCORES, rtol=0)


def test_sixteen_clips_make_as_many_linear_calls_as_one(
    tiny_engine: Engine, counted_linears: list[int], clip: Any
) -> None:
    tiny_engine.infer([clip(16_000)])
    alone = len(counted_linears)
    counted_linears.clear()
    lengths = [400 + 997 * i for i in range(16)]
    tiny_engine.infer([clip(n) for n in lengths])
    assert len(counted_linears) == alone > 0
    # and no row of them is padding, but for what fills the last bucket
    config = tiny_engine.config
    frames = sum(config.frames(n) for n in lengths)
    tokens = frames + 16 * config.extra_tokens
    assert set(counted_linears) == {bucket(frames), bucket(tokens)}


def assert_equal_to_reference(
    directory: Path, reference: Callable[[Path], Any], waves: list[Any], orders: int = 1
) -> Engine:
    """Every clip alone, and in `orders` mixtures of all of them, against FunASR alone."""
    engine = Engine.load(directory, device="cpu", dtype="float32")
    generate = reference(directory)
    expected = [generate(wave, granularity="frame") for wave in waves]
    for wave, theirs in zip(waves, expected, strict=True):
        assert_same(engine.infer([wave], frame_embeddings=True)[0], theirs)
    order = list(range(len(waves)))
    for seed in range(orders):
        random.Random(seed).shuffle(order)
        mixture = engine.infer([waves[i] for i in order], frame_embeddings=True)
        for i, ours in zip(order, mixture, strict=True):
            assert_same(ours, expected[i])
    return engine


def assert_same(ours: Any, theirs: dict[str, Any]) -> None:
    assert list(ours.labels) == theirs["labels"]
    features = np.asarray(theirs["feats"])
    np.testing.assert_allclose(ours.frame_embeddings, features, atol=FEATURES, rtol=0)
    np.testing.assert_allclose(ours.embedding, features.mean(0), atol=FEATURES, rtol=0)
    scores = dict(zip(theirs["labels"], theirs["scores"], strict=True))
    assert set(ours.scores) == {english(token) for token in scores}
    for token, score in scores.items():
        assert ours.scores[english(token)] == pytest.approx(score, abs=SCORES)
    if scores:
        assert ours.label == english(max(scores, key=scores.__getitem__))


def english(token: str) -> str:
    return "unknown" if token == "<unk>" else token.rpartition("/")[2]


def remove_tokens(directory: Path) -> None:
    (directory / "tokens.txt").unlink()
    for name, old, new in (
        ("configuration.json", "token_list", "nothing"),
        ("config.yaml", "tokenizer: CharTokenizer", "tokenizer: null"),
    ):
        text = (directory / name).read_text("utf-8")
        assert old in text
        (directory / name).write_text(text.replace(old, new), "utf-8")
