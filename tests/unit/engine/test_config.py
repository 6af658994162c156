"""`config.yaml` is read without evaluating anything; what is not computed is refused by name."""

import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks.checkpoints import SHAPES, model_conf
from engine import ModelError
from engine.config import ModelConfig, from_funasr, parse_conv_spec

USUAL = "[(512, 10, 5)] + [(512, 3, 2)] * 4 + [(512,2,2)] + [(512,2,2)]"


def config_of(**changes: Any) -> ModelConfig:
    """The tiny configuration with `audio_…` and other settings changed."""
    audio = {name[6:]: value for name, value in changes.items() if name.startswith("audio_")}
    model = {name: value for name, value in changes.items() if not name.startswith("audio_")}
    return from_funasr({**model_conf(SHAPES["tiny"], **audio), **model})


def test_usual_specification_gives_the_usual_geometry() -> None:
    config = config_of(audio_feature_encoder_spec=USUAL)
    assert (config.receptive_field, config.hop, config.gap) == (400, 320, 9)
    assert [config.frames(n) for n in (0, 399, 400, 719, 720, 16_000)] == [0, 0, 1, 1, 2, 49]


@pytest.mark.parametrize(
    ("text", "layers"),
    [
        (USUAL, ((512, 10, 5), *[(512, 3, 2)] * 4, (512, 2, 2), (512, 2, 2))),
        ("  2 * [(8, 3, 2)]\n", ((8, 3, 2), (8, 3, 2))),
        ("[(8, 3, 2), (9, 2, 1)] * 2", ((8, 3, 2), (9, 2, 1), (8, 3, 2), (9, 2, 1))),
        ("([(8,) + (3, 2)])", ((8, 3, 2),)),
    ],
)
def test_specification_is_read(text: str, layers: Any) -> None:
    assert parse_conv_spec(text) == layers


@pytest.mark.parametrize(
    "text",
    [
        "__import__('pathlib').Path('{marker}').touch()",
        "[(512, 10, 5)] + [open('{marker}', 'w')]",
        "[(512, 10, 5) for _ in [open('{marker}', 'w')]]",
        "(lambda: open('{marker}', 'w'))()",
        "[(len(open('{marker}', 'w').name), 3, 2)]",
        'f\'{{open("{marker}", "w")}}\'',
    ],
)
def test_code_in_the_specification_does_not_run(text: str, tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    text = text.format(marker=marker)
    with pytest.raises(ModelError, match="feature_encoder_spec must"):
        parse_conv_spec(text)
    assert not marker.exists()


@pytest.mark.parametrize(
    "text",
    [
        "[(1, 1, 1)] * 9999999999",
        "9999999999 * [(1, 1, 1)]",
        "[(1, 1, 1)]" + " * 64" * 12,
        "[(1, 1, 1)] * 60 + [(1, 1, 1)] * 60",
        "[[[(1, 1, 1)] * 60] * 60] * 60",
        "9" * 10_000,
        "(" * 5_000 + ")" * 5_000,
        "[" * 90 + "]" * 90,
        "-" * 20_000 + "1",
        "[(1,1,1)]" + "+[(1,1,1)]" * 20_000,
        "2 ** 2 ** 2 ** 99",
        "[(9 * 9 * 9, 3, 2)]",
    ],
)
def test_bombs_are_refused_at_once(text: str) -> None:
    started = time.process_time()
    with pytest.raises(ModelError, match="feature_encoder_spec must"):
        parse_conv_spec(text)
    assert time.process_time() - started < 2


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "5", "(512, 10, 5)", "[(512, 10)]", "[(512, 10, 5, 1)]", "[[512, 10, 5]]"),
        *("[(512, 0, 5)]", "[(512, 10, -5)]", "[(512.0, 10, 5)]", "[(True, 10, 5)]"),
        *("[('a', 10, 5)]", "[(10**9, 3, 2)]", "[(99999999, 3, 2)]", "a", "[(512, 10, 5)", "\0"),
    ],
)
def test_broken_specifications_are_refused(text: str) -> None:
    with pytest.raises(ModelError, match="feature_encoder_spec must"):
        parse_conv_spec(text)


@pytest.mark.parametrize("value", [None, 5, [[512, 10, 5]], b"[(512, 10, 5)]"])
def test_specification_must_be_text(value: Any) -> None:
    with pytest.raises(ModelError, match="feature_encoder_spec is missing or not text"):
        parse_conv_spec(value)


def test_epsilon_may_be_text() -> None:
    assert config_of(norm_eps="1e-05").norm_eps == config_of(norm_eps=1e-5).norm_eps == 1e-5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"audio_extractor_mode": "default"}, "extractor_mode 'default'"),
        ({"audio_learned_alibi": True}, "learned_alibi"),
        ({"embed_dim": 65}, "embed_dim 65 is not a multiple of num_heads 4"),
        ({"embed_dim": 68}, "embed_dim 68 is not a multiple of conv_pos_groups 16"),
        ({"num_heads": 0}, "num_heads must be a whole number from 1"),
        ({"audio_num_alibi_heads": 5}, "num_alibi_heads is larger than num_heads"),
        ({"audio_num_alibi_heads": 0}, "num_alibi_heads"),
        ({"audio_conv_pos_depth": 0}, "conv_pos_depth"),
        ({"audio_conv_pos_groups": 0}, "conv_pos_groups"),
        ({"depth": 10**6}, "depth must be a whole number from 0 to 1024, not 1000000"),
        ({"audio_prenet_depth": -1}, "prenet_depth"),
        ({"depth": 2.5}, "depth"),
        ({"depth": True}, "depth"),
        ({"depth": 10**400}, "depth"),
        ({"embed_dim": float("inf")}, "embed_dim"),
        ({"embed_dim": "much"}, "embed_dim"),
        ({"norm_eps": "nan"}, "norm_eps"),
        ({"norm_eps": None}, "norm_eps"),
        ({"norm_eps": -1e-5}, "norm_eps"),
        ({"mlp_ratio": [4]}, "mlp_ratio"),
        ({"normalize": "yes"}, "normalize must be true or false, not 'yes'"),
        ({"audio_use_alibi_encoder": None}, "use_alibi_encoder"),
        ({"audio_learned_alibi_scale_per_layer": True, "audio_model_depth": 7}, "model_depth"),
        ({"modalities": {}}, "section model_conf.modalities.audio is missing"),
        ({"modalities": None}, "section model_conf.modalities.audio is missing"),
    ],
)
def test_what_is_not_computed_is_refused_by_name(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        config_of(**changes)
    assert "\n" not in str(caught.value)


def test_an_alias_bomb_is_not_printed() -> None:
    bomb: Any = "x" * 10
    for _ in range(40):
        bomb = [bomb, bomb]
    for changes in ({"norm_eps": bomb}, {"normalize": bomb}, {"audio_extractor_mode": bomb}):
        with pytest.raises(ModelError) as caught:
            config_of(**changes)
        assert len(str(caught.value)) < 1_000


def test_json_round_trip() -> None:
    config = config_of(audio_use_alibi_encoder=False, norm_eps="1e-05")
    assert ModelConfig.from_json(config.to_json()) == config


@pytest.mark.parametrize(
    "change",
    [
        *({"embed_dim": "64"}, {"depth": 2.0}, {"normalize": 1}, {"norm_eps": "1e-5"}),
        *({"convs": []}, {"convs": [[1, 2]]}, {"convs": 3}, {"unknown": 1}),
    ],
)
def test_json_of_other_kinds_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError)):
        ModelConfig.from_json({**config_of().to_json(), **change})
