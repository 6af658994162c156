"""Self-attention inside each clip of a packed batch, with ALiBi's distance bias.

Two forms of the same mathematics: clip by clip without any padding, where kernels are cheap to
start (CPU), and groups of clips of similar length padded for attention only, where a batch of
small kernels would leave the device idle (CUDA).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

GROUP_RATIO = 1.25
"""The longest clip of a padded group is at most this much longer than its shortest."""

GROUP_SCORES = 2**25
"""Most scores per head in a padded group (clips * t * t): bounds its memory to about 1 GiB."""


def alibi_slopes(heads: int) -> list[float]:
    """Slopes of ALiBi (Press et al., 2022): a geometric series for powers of two.

    Other counts take the closest smaller power's slopes and every second one of the next,
    as the reference does.
    """
    if heads == 0:
        return []
    exponent = math.floor(math.log2(heads))
    start = 2 ** (-(2.0 ** -(exponent - 3)))
    slopes = [start * start**i for i in range(2**exponent)]
    if len(slopes) < heads:
        slopes += alibi_slopes(2 * len(slopes))[0::2][: heads - len(slopes)]
    return slopes


def distances(tokens: int, extra: int, like: Tensor) -> Tensor:
    """-|i - j| between frames [tokens, tokens]; 0 wherever an extra token takes part."""
    steps = torch.arange(tokens - extra, device=like.device, dtype=torch.float32)
    table = torch.zeros(tokens, tokens, device=like.device, dtype=torch.float32)
    table[extra:, extra:] = -(steps[:, None] - steps[None, :]).abs()
    return table.to(like.dtype)


@dataclass(frozen=True, slots=True)
class PaddedGroup:
    """Clips that attend together, padded to the longest of them.

    Attributes:
        tokens: place of each padded token among the packed ones [clips, t]; padding is 0.
        valid: which of them are no padding [clips, t].
        mask: 0 where a key is valid, -inf where it is padding [clips, 1, 1, t].
    """

    tokens: Tensor
    valid: Tensor
    mask: Tensor


class Attention:
    """The attention of one batch: where its clips are, and the distances inside them.

    Args:
        bounds: first token of each clip, and the end.
        extra: extra tokens in front of each clip.
        like: a tensor of the device and precision.
        padded: groups instead of single clips.
    """

    def __init__(self, bounds: Sequence[int], extra: int, like: Tensor, padded: bool) -> None:
        self._bounds = bounds
        sizes = [last - first for first, last in zip(bounds[:-1], bounds[1:], strict=True)]
        longest = -(-max(sizes) // 8) * 8 if padded else max(sizes)
        self._distances = distances(longest, extra, like)
        self._groups = _groups(bounds, like) if padded else None

    def __call__(self, query: Tensor, key: Tensor, value: Tensor, slopes: Tensor) -> Tensor:
        """Softmax attention of each clip by itself.

        Args:
            query, key, value: [tokens, heads, head_dim]; the query already scaled.
            slopes: slope times learned scale of each head [heads].

        Returns:
            [tokens, heads * head_dim].
        """
        slopes = slopes.to(query.dtype)[:, None, None]
        if self._groups is None:
            return self._by_clip(query, key, value, slopes)
        output = torch.empty_like(query)
        for group in self._groups:
            length = group.tokens.shape[1]
            q, k, v = (part[group.tokens].transpose(1, 2) for part in (query, key, value))
            bias = slopes * self._distances[:length, :length] + group.mask
            mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=1.0)
            output[group.tokens[group.valid]] = mixed.transpose(1, 2)[group.valid]
        return output.flatten(1)

    def _by_clip(self, query: Tensor, key: Tensor, value: Tensor, slopes: Tensor) -> Tensor:
        output = query.new_empty(query.shape)
        for first, last in zip(self._bounds[:-1], self._bounds[1:], strict=True):
            size = last - first
            q, k, v = (part[first:last].transpose(0, 1) for part in (query, key, value))
            # the bias is the addend of the product: one pass over [heads, t, t] fewer
            scores = slopes * self._distances[:size, :size]
            scores = scores.baddbmm_(q, k.transpose(1, 2))
            output[first:last] = torch.bmm(torch.softmax(scores, dim=-1), v).transpose(0, 1)
        return output.flatten(1)


def _groups(bounds: Sequence[int], like: Tensor) -> list[PaddedGroup]:
    clips = sorted(zip(bounds[:-1], bounds[1:], strict=True), key=lambda clip: clip[1] - clip[0])
    groups: list[list[tuple[int, int]]] = [[]]
    for first, last in clips:
        size, group = last - first, groups[-1]
        if group and (
            size > GROUP_RATIO * (group[0][1] - group[0][0])
            or (len(group) + 1) * size * size > GROUP_SCORES
        ):
            groups.append(group := [])
        group.append((first, last))
    return [_padded(group, like) for group in groups]


def _padded(clips: Sequence[tuple[int, int]], like: Tensor) -> PaddedGroup:
    # rows of a multiple of eight keep the fused kernels' alignment
    longest = -(-max(last - first for first, last in clips) // 8) * 8
    firsts = torch.tensor([first for first, _ in clips], device=like.device)
    sizes = torch.tensor([last - first for first, last in clips], device=like.device)
    steps = torch.arange(longest, device=like.device)
    valid = steps < sizes[:, None]
    tokens = torch.where(valid, steps + firsts[:, None], 0)
    mask = torch.zeros(valid.shape, device=like.device, dtype=like.dtype)
    return PaddedGroup(tokens, valid, mask.masked_fill(~valid, -torch.inf)[:, None, None])
