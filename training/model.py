"""The network that is trained: FunASR's own Emotion2vec class plus heads for the auxiliary tasks.

Only the Emotion2vec part is shipped; its state dict is FunASR's `model.pt` as it is.
"""

from dataclasses import dataclass
from typing import Any

import torch
from funasr.models.emotion2vec.model import Emotion2vec
from torch import Tensor, nn

from engine.config import parse_conv_spec
from training.corpus import LABELS
from training.extractor import FramewiseExtractor

# The first layer norm works per frame, so it would erase loudness. Weights this small bring the
# variance of ordinary speech down to the norm's epsilon, where the norm is close to linear.
FIRST_CONVOLUTION_SCALE = 2e-3


@dataclass(frozen=True)
class Shape:
    """What the mini model chooses for itself; everything else is as in the plus models."""

    embed_dim: int = 128
    num_heads: int = 4
    prenet_depth: int = 2
    depth: int = 2
    extractor: str = (
        "[(32, 10, 5)] + [(48, 3, 2)] + [(64, 3, 2)] * 3 + [(128, 2, 2)] + [(128, 2, 2)]"
    )


def model_conf(shape: Shape, dropout: float = 0.1) -> dict[str, Any]:
    """The `model_conf` block of `config.yaml`."""
    return {
        "loss_beta": 0.0,
        "loss_scale": None,
        "depth": shape.depth,
        "start_drop_path_rate": 0.0,
        "end_drop_path_rate": 0.0,
        "num_heads": shape.num_heads,
        "norm_eps": 1e-5,
        "norm_affine": True,
        "encoder_dropout": dropout,
        "post_mlp_drop": dropout,
        "attention_dropout": 0.0,
        "activation_dropout": 0.0,
        "dropout_input": 0.0,
        "layerdrop": 0.0,
        "embed_dim": shape.embed_dim,
        "mlp_ratio": 4.0,
        "layer_norm_first": False,
        "average_top_k_layers": shape.depth,
        "end_of_block_targets": False,
        "clone_batch": 1,
        "normalize": True,
        "modalities": {"audio": _audio_conf(shape, dropout)},
    }


def _audio_conf(shape: Shape, dropout: float) -> dict[str, Any]:
    return {
        "type": "AUDIO",
        "prenet_depth": shape.prenet_depth,
        "prenet_layerdrop": 0.0,
        "prenet_dropout": dropout,
        "start_drop_path_rate": 0.0,
        "end_drop_path_rate": 0.0,
        "num_extra_tokens": 10,
        "init_extra_token_zero": True,
        "mask_prob": 0.0,
        "ema_local_encoder": False,
        "local_grad_mult": 1.0,
        "use_alibi_encoder": True,
        "alibi_scale": 1.0,
        "learned_alibi": False,
        "alibi_max_pos": None,
        "learned_alibi_scale": True,
        "learned_alibi_scale_per_head": True,
        "learned_alibi_scale_per_layer": True,
        "num_alibi_heads": shape.num_heads,
        "model_depth": shape.depth,
        "decoder": None,
        "extractor_mode": "layer_norm",
        "feature_encoder_spec": shape.extractor,
        "conv_pos_width": 95,
        "conv_pos_groups": 16,
        "conv_pos_depth": 5,
        "conv_pos_pre_ln": False,
    }


@dataclass(frozen=True)
class Outputs:
    """`logits [B, 9]`, `functionals [B, 88]` and `descriptors [B, T, 26]` (the auxiliary tasks)."""

    logits: Tensor
    functionals: Tensor
    descriptors: Tensor


class TrainedModel(nn.Module):
    """Emotion2vec with its classifier, and two linear heads that are thrown away afterwards."""

    def __init__(self, shape: Shape, n_functionals: int, n_descriptors: int, dropout: float):
        super().__init__()
        self.extra_tokens = 10
        self.emotion2vec = Emotion2vec(
            model_conf=model_conf(shape, dropout), vocab_size=len(LABELS)
        )
        self.functionals = nn.Linear(shape.embed_dim, n_functionals)
        self.descriptors = nn.Linear(shape.embed_dim, n_descriptors)
        self.embedding_dropout = nn.Dropout(dropout)
        self._prenet_output: Tensor | None = None
        audio = self.emotion2vec.modality_encoders["AUDIO"]
        audio.local_encoder = FramewiseExtractor(parse_conv_spec(shape.extractor))
        audio.context_encoder.register_forward_hook(self._keep_prenet_output)
        with torch.no_grad():
            self.first_convolution.mul_(FIRST_CONVOLUTION_SCALE)

    @property
    def first_convolution(self) -> nn.Parameter:
        """The weight of the first convolution, which needs a learning rate of its own."""
        weight = self.emotion2vec.modality_encoders["AUDIO"].local_encoder.conv_layers[0][0].weight
        assert isinstance(weight, nn.Parameter)
        return weight

    def forward(self, waves: Tensor) -> Outputs:
        """`waves [B, samples]` at 16 kHz, any gain, all of one length."""
        normalised = nn.functional.layer_norm(waves, waves.shape[1:])
        frames = self.emotion2vec.extract_features(normalised)["x"]
        mean = self.embedding_dropout(frames.mean(dim=1))
        assert self._prenet_output is not None
        prenet = self._prenet_output[:, self.extra_tokens :]
        return Outputs(
            self.emotion2vec.proj(mean), self.functionals(mean), self.descriptors(prenet)
        )

    def _keep_prenet_output(self, _module: nn.Module, _inputs: Any, output: Tensor) -> None:
        self._prenet_output = output
