"""An engine of any size with random weights, made without FunASR or files."""

import torch

from benchmarks.checkpoints import PLUS_TOKENS, SHAPES, Shape
from engine.checkpoint import Checkpoint
from engine.config import ModelConfig
from engine.encoder import Encoder
from engine.engine import Engine


def config_of(shape: Shape) -> ModelConfig:
    """The configuration that the published `config.yaml` of that size gives."""
    width = shape.channels
    convs = [(width, 10, 5), *[(width, 3, 2)] * 4, *[(width, 2, 2)] * 2]
    return ModelConfig(
        convs=tuple(convs),
        embed_dim=shape.embed_dim,
        heads=shape.heads,
        prenet_depth=shape.prenet_depth,
        depth=shape.depth,
        mlp_ratio=4.0,
        norm_eps=1e-5,
        norm_affine=True,
        layer_norm_first=False,
        normalize=True,
        positional_depth=5,
        positional_kernel=19,
        positional_groups=16,
        positional_pre_norm=False,
        alibi_heads=shape.heads,
        scale_layers=1,
        scale_heads=shape.heads,
        extra_tokens=10,
    )


def random_checkpoint(size: str, seed: int = 0) -> Checkpoint:
    """Random float32 weights; constant ones (norms, scales) are made to matter as well."""
    config = config_of(SHAPES[size])
    torch.manual_seed(seed)
    weights = {
        name: parameter.detach()
        for name, parameter in Encoder(config, len(PLUS_TOKENS)).named_parameters()
    }
    for name, value in weights.items():
        if (value == value.flatten()[0]).all():
            value.add_(torch.empty_like(value).uniform_(-0.3, 0.3))
        if name == "proj.weight":
            # scores far from uniform, so that a wrong feature shows in them
            value.mul_(4)
    return Checkpoint(config, PLUS_TOKENS, weights)


def engine_of(
    checkpoint: Checkpoint, device: torch.device, dtype: torch.dtype, name: str = "random"
) -> Engine:
    """An engine over `checkpoint`."""
    return Engine(checkpoint, name, "random", device, dtype)
