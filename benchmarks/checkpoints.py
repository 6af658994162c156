"""Random checkpoints in FunASR's layout, saved by FunASR's own model class.

The real weights cannot be shipped, and neither time nor exactness depends on their values;
what matters is that the files are what FunASR itself writes and reads.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

PLUS_TOKENS = (
    "生气/angry",
    "厌恶/disgusted",
    "恐惧/fearful",
    "开心/happy",
    "中立/neutral",
    "其他/other",
    "难过/sad",
    "吃惊/surprised",
    "<unk>",
)


@dataclass(frozen=True, slots=True)
class Shape:
    """Size of an encoder."""

    embed_dim: int
    heads: int
    prenet_depth: int
    depth: int
    channels: int


SHAPES = {
    "tiny": Shape(embed_dim=64, heads=4, prenet_depth=1, depth=2, channels=32),
    "base": Shape(embed_dim=768, heads=12, prenet_depth=4, depth=8, channels=512),
    "large": Shape(embed_dim=1024, heads=16, prenet_depth=8, depth=16, channels=512),
}


def model_conf(shape: Shape, with_decoder: bool = False, **audio: Any) -> dict[str, Any]:
    """`model_conf` of a published emotion2vec config with the sizes of `shape`."""
    c = shape.channels
    decoder = {
        "decoder_dim": 32,
        "decoder_groups": 16,
        "decoder_kernel": 7,
        "decoder_layers": 2,
        "input_dropout": 0.1,
        "add_positions_masked": False,
        "add_positions_all": False,
        "decoder_residual": True,
        "projection_layers": 1,
        "projection_ratio": 2.0,
    }
    settings: dict[str, Any] = {
        "extractor_mode": "layer_norm",
        "feature_encoder_spec": f"[({c}, 10, 5)] + [({c}, 3, 2)] * 4 + [({c},2,2)] + [({c},2,2)]",
        "conv_pos_width": 95,
        "conv_pos_groups": 16,
        "conv_pos_depth": 5,
        "conv_pos_pre_ln": False,
        "prenet_depth": shape.prenet_depth,
        "prenet_layerdrop": 0.0,
        "prenet_dropout": 0.0,
        "start_drop_path_rate": 0.0,
        "end_drop_path_rate": 0.0,
        "num_alibi_heads": shape.heads,
        "model_depth": shape.depth,
        "local_grad_mult": 1.0,
        "num_extra_tokens": 10,
        "init_extra_token_zero": True,
        "use_alibi_encoder": True,
        "alibi_scale": 1.0,
        "alibi_max_pos": None,
        "learned_alibi": False,
        "learned_alibi_scale": True,
        "learned_alibi_scale_per_head": True,
        "learned_alibi_scale_per_layer": False,
        "decoder": decoder if with_decoder else None,
        **audio,
    }
    return {
        "embed_dim": shape.embed_dim,
        "num_heads": shape.heads,
        "depth": shape.depth,
        "mlp_ratio": 4,
        "norm_eps": "1e-05",
        "norm_affine": True,
        "encoder_dropout": 0.1,
        "attention_dropout": 0.1,
        "activation_dropout": 0.0,
        "post_mlp_drop": 0.1,
        "dropout_input": 0.0,
        "layerdrop": 0.05,
        "layer_norm_first": False,
        "end_of_block_targets": False,
        "clone_batch": 12,
        "start_drop_path_rate": 0.0,
        "end_drop_path_rate": 0.0,
        "average_top_k_layers": 4,
        "loss_beta": 0.0,
        "loss_scale": None,
        "normalize": True,
        "modalities": {"audio": settings},
    }


def write_checkpoint(
    directory: Path,
    shape: str | Shape,
    *,
    tokens: tuple[str, ...] = PLUS_TOKENS,
    scope_prefix: str = "",
    nested: str | None = "model",
    seed: int = 0,
    conf: dict[str, Any] | None = None,
) -> Path:
    """Write `configuration.json`, `config.yaml`, `tokens.txt`, `model.pt`; say where.

    Args:
        scope_prefix: put in front of every key, and into `scope_map`.
        nested: key under which the weights lie in the file; None for the top level.
        conf: `model_conf` instead of the usual one of `shape`.
    """
    import yaml

    conf = conf or model_conf(SHAPES[shape] if isinstance(shape, str) else shape)
    directory.mkdir(parents=True, exist_ok=True)
    state = random_state(conf, len(tokens), seed)
    state = {scope_prefix + key: value for key, value in state.items()}
    torch.save({nested: state} if nested else state, directory / "model.pt")
    settings: dict[str, Any] = {
        "model": "Emotion2vec",
        "model_conf": conf,
        "tokenizer": "CharTokenizer",
        "tokenizer_conf": {"unk_symbol": "<unk>", "split_with_space": True},
    }
    if scope_prefix:
        settings["scope_map"] = [scope_prefix, "none"]
    # FunASR's loader reads `1e-05` as a number only where it is not quoted
    text = yaml.safe_dump(settings, allow_unicode=True).replace("'1e-05'", "1e-05")
    (directory / "config.yaml").write_text(text, "utf-8")
    (directory / "tokens.txt").write_text("\n".join(tokens) + "\n", "utf-8")
    metas = {
        "init_param": "model.pt",
        "config": "config.yaml",
        "tokenizer_conf": {"token_list": "tokens.txt"},
    }
    (directory / "configuration.json").write_text(json.dumps({"file_path_metas": metas}), "utf-8")
    return directory


def random_state(conf: dict[str, Any], labels: int, seed: int) -> dict[str, torch.Tensor]:
    """Weights of FunASR's model; constant ones (norms, scales) are made to matter as well."""
    from funasr.models.emotion2vec.model import Emotion2vec

    torch.manual_seed(seed)
    conf = {**conf, "norm_eps": float(conf["norm_eps"])}
    state: dict[str, torch.Tensor] = Emotion2vec(
        model_conf=conf, vocab_size=labels or -1
    ).state_dict()
    for value in state.values():
        if value.numel() and (value == value.flatten()[0]).all():
            value.add_(torch.empty_like(value).uniform_(-0.3, 0.3))
    return state
