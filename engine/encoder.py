"""The Emotion2Vec encoder over packed clips: a clip's result never depends on its company.

Same mathematics as FunASR's `Emotion2vec` (Ma et al., "emotion2vec", ACL 2024), laid out
without padding (see `engine.packing`); only attention and the positional convolutions see
where one clip ends.
"""

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engine.attention import Attention, alibi_slopes, by_products
from engine.config import ModelConfig
from engine.linear import FrameConv, Linear
from engine.packing import Packing, bucket, lay_row, pack

CONV_CHUNK_BYTES = {"cpu": 6 * 2**20, "cuda": 2**30}
"""Size of the first convolution's output that is worked on at once. It bounds the memory, which
would be 64 rows of it for each frame; on a CPU it also keeps the rows in the cache from one
layer to the next (measured: 197 ms against 317 ms for 10 s of audio in one piece)."""


CONV_CHUNK_FRAMES = 128
"""Most frames of such a piece: a small model gains nothing from longer ones (measured: 22.2 ms
against 25.1 ms in pieces of 6 MiB), and each length that occurs is a kernel to be made."""


Attend = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""Query, key, value and slopes to what was attended to: an `Attention`."""


class Block(nn.Module):
    """One transformer block of the reference (`AltBlock`), on packed tokens [N, D]."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        dim, hidden = config.embed_dim, int(config.embed_dim * config.mlp_ratio)
        self.heads = config.heads
        self.pre_norm = config.layer_norm_first
        self.qkv = Linear(dim, 3 * dim)
        self.out = Linear(dim, dim)
        self.norm1 = _norm(config)
        self.norm2 = _norm(config)
        self.fc1 = Linear(dim, hidden, activation="gelu")
        self.fc2 = Linear(hidden, dim)

    def forward(self, x: Tensor, attention: Attend, slopes: Tensor) -> Tensor:
        """Tokens [N, D] → [N, D]."""
        if self.pre_norm:
            x = self._attend(self.norm1(x), attention, slopes, residual=x)
            # the reference adds the MLP's output to itself, not to its input
            return 2 * self._mlp(self.norm2(x), None)
        x = self.norm1(self._attend(x, attention, slopes, residual=x))
        normed: Tensor = self.norm2(self._mlp(x, residual=x))
        return normed

    def _attend(self, x: Tensor, attention: Attend, slopes: Tensor, residual: Tensor) -> Tensor:
        query, key, value = self.qkv(x).view(x.shape[0], 3, self.heads, -1).unbind(1)
        out: Tensor = self.out(attention(query, key, value, slopes), residual)
        return out

    def _mlp(self, x: Tensor, residual: Tensor | None) -> Tensor:
        out: Tensor = self.fc2(self.fc1(x), residual)
        return out


class Encoder(nn.Module):
    """Waves in, frame features out; `labels` rows of the classifier, 0 for none."""

    def __init__(self, config: ModelConfig, labels: int) -> None:
        super().__init__()
        self.config = config
        dim = config.embed_dim
        channels = [1, *(layer[0] for layer in config.convs)]
        self.convs = nn.ModuleList(
            FrameConv(before, after, kernel, stride)
            for before, (after, kernel, stride) in zip(channels, config.convs, strict=False)
        )
        self.conv_norms = nn.ModuleList(nn.LayerNorm(layer[0]) for layer in config.convs)
        self.feature_norm = nn.LayerNorm(channels[-1])
        self.feature_proj = Linear(channels[-1], dim)
        self.positional_norm = nn.LayerNorm(dim) if config.positional_pre_norm else None
        kernel = config.positional_kernel
        self.positional = nn.ModuleList(
            nn.Conv1d(dim, dim, kernel, padding=kernel // 2, groups=config.positional_groups)
            for _ in range(config.positional_depth)
        )
        self.extra_tokens = nn.Parameter(torch.zeros(1, config.extra_tokens, dim))
        scale = torch.ones(config.scale_layers, 1, config.scale_heads, 1, 1)
        self.alibi_scale = nn.Parameter(scale) if config.alibi_heads else None
        self.set_slopes(torch.get_default_device())
        self.context_norm = None if config.layer_norm_first else _norm(config)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.final_norm = _norm(config) if config.layer_norm_first else None
        self.proj = nn.Linear(dim, labels) if labels else None

    def set_slopes(self, device: torch.device) -> None:
        """Lay ALiBi's slopes [heads] on `device`: constants, which no checkpoint holds."""
        slopes = alibi_slopes(self.config.alibi_heads)
        slopes += [0.0] * (self.config.heads - len(slopes))
        self.slopes = torch.tensor(slopes, device=device)

    def forward(self, waves: Sequence[Tensor]) -> tuple[Tensor, Packing]:
        """Encode raw clips.

        Args:
            waves: float32 [n] each, 16 kHz, at least the receptive field long.

        Returns:
            Features of all frames, clip after clip [sum T, D], in the encoder's own
            precision, and the packing that tells whose they are.
        """
        packing = pack([wave.numel() for wave in waves], self.config, waves[0].device)
        if self.config.normalize:
            waves = [F.layer_norm(wave, wave.shape) for wave in waves]
        row = lay_row(waves, packing).to(self.feature_proj.weight.dtype)
        x = self._frame_features(row, packing)
        x = x + self._positions(x, packing)
        x = self._transform(x, packing)
        return x[packing.frame_tokens], packing

    def warm(self, rows: int) -> None:
        """Run one layer of each kind on `rows` rows, a bucket, so that its kernels are there."""
        like, config = self.feature_proj.bias, self.config
        if rows <= self.conv_chunk_frames:
            samples = like.new_zeros(rows * config.hop + config.receptive_field - config.hop)
            self._convolve(samples)
        self.feature_proj(like.new_zeros(rows, self.feature_proj.in_features))
        x = like.new_zeros(rows, config.embed_dim)
        for conv in self.positional[:1]:
            _gelu(conv(x.T[None])[0, :, :rows].T.contiguous())
        attention: Attend = Attention((0, rows), 0, x) if by_products(x) else _no_attention
        for block in self.blocks[:1]:
            block(x, attention, self.slopes)

    def classify(self, features: Tensor) -> Tensor:
        """Logits [..., labels] of features [..., D], in float32."""
        if self.proj is None:
            return features.new_zeros((*features.shape[:-1], 0), dtype=torch.float32)
        weight, bias = self.proj.weight.float(), self.proj.bias.float()
        return F.linear(features.float(), weight, bias)

    def _frame_features(self, row: Tensor, packing: Packing) -> Tensor:
        hop, overlap = self.config.hop, self.config.receptive_field - self.config.hop
        step = self.conv_chunk_frames
        whole = (packing.row_samples // hop - 1) // step * step
        total = whole + bucket(packing.row_samples // hop - whole)
        row = F.pad(row, (0, total * hop + overlap - row.numel()))
        chunks = [
            self._convolve(row[first * hop : min(first + step, total) * hop + overlap])
            for first in range(0, total, step)
        ]
        x = torch.cat(chunks)[packing.row_frames]
        projected: Tensor = self.feature_proj(self.feature_norm(x))
        return projected

    @property
    def conv_chunk_frames(self) -> int:
        """Frames that the convolutions work on at once: a bucket, so that what is left fits one."""
        channels, _, stride = self.config.convs[0]
        weight = self.feature_proj.bias
        frame_bytes = self.config.hop // stride * channels * weight.element_size()
        fitting = max(1, CONV_CHUNK_BYTES[weight.device.type] // frame_bytes)
        return bucket(min(fitting, CONV_CHUNK_FRAMES) if weight.device.type == "cpu" else fitting)

    def _convolve(self, samples: Tensor) -> Tensor:
        x = samples[:, None]
        for conv, norm in zip(self.convs, self.conv_norms, strict=True):
            x = _gelu(norm(conv(x)))
        return x

    def _positions(self, x: Tensor, packing: Packing) -> Tensor:
        if self.positional_norm is not None:
            x = self.positional_norm(x)
        length, frames = packing.spaced_length, sum(packing.frames)
        for conv in self.positional:
            # a fresh row of zeros each time: the convolution's bias fills the gaps
            row = x.new_zeros(length, x.shape[1])
            row = row.index_copy(0, packing.spaced[:frames], x[:frames])
            x = conv(row.T[None])[0, :, :length].T[packing.spaced]
            x = _gelu(F.layer_norm(x, x.shape[1:]))
        return x

    def _transform(self, x: Tensor, packing: Packing) -> Tensor:
        x = torch.cat([self.extra_tokens[0], x])[packing.tokens]
        if self.context_norm is not None:
            x = self.context_norm(x)
        attention = Attention(
            packing.token_bounds,
            self.config.extra_tokens,
            x,
            padded=x.device.type == "cuda",
            shared=self.config.scale_layers == 1,
        )
        scaled_slopes = self._scaled_slopes()
        for layer, block in enumerate(self.blocks):
            x = block(x, attention, scaled_slopes[layer])
        if self.final_norm is not None:
            x = self.final_norm(x)
        return x

    def _scaled_slopes(self) -> Tensor:
        if self.alibi_scale is None:
            return self.slopes.expand(self.config.layers, -1)
        scale = self.alibi_scale.float().clamp_min(0).flatten(1)
        scale = F.pad(
            scale.expand(self.config.layers, max(self.config.alibi_heads, 1)),
            (0, self.config.heads - self.config.alibi_heads),
        )
        return self.slopes * scale


def _gelu(x: Tensor) -> Tensor:
    # in place: one of the largest buffers fewer (measured: 13.8 instead of 20.0 ms for the
    # convolutions of 96 frames where the system takes such blocks back in between)
    activated: Tensor = torch.ops.aten.gelu_(x)
    return activated


def _no_attention(query: Tensor, key: Tensor, value: Tensor, slopes: Tensor) -> Tensor:
    return value.flatten(1)


def _norm(config: ModelConfig) -> nn.LayerNorm:
    return nn.LayerNorm(config.embed_dim, config.norm_eps, config.norm_affine)
