"""Self-attention inside each clip of a packed batch, with ALiBi's distance bias.

Forms of the same mathematics, each where it measured fastest: clip by clip without any padding
on a CPU, where kernels are cheap to start; groups of clips of similar length, padded for
attention only, on CUDA, where many small kernels would leave the device idle.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.packing import bucket

GROUP_RATIO = 1.25
"""The longest clip of a padded group is at most this much longer than its shortest."""

CACHED_SCORES = 2**20
"""Scores that are worked on at once on a CPU: about what its second-level cache holds."""

SHARED_BIAS_NUMBERS = 2**26
"""Most numbers of biases that a batch keeps for all of its layers."""

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


def by_products(like: Tensor) -> bool:
    """Whether attention is single products: faster than the fused kernel in bfloat16 on a CPU
    (measured: 3.7 against 9.5 ms for 509 rows), slower in float32."""
    return like.device.type == "cpu" and like.dtype != torch.float32


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
        shared: every layer has the same slopes, so a clip's bias is made only once.
    """

    def __init__(
        self,
        bounds: Sequence[int],
        extra: int,
        like: Tensor,
        padded: bool = False,
        shared: bool = False,
    ) -> None:
        self._bounds = bounds
        sizes = [last - first for first, last in zip(bounds[:-1], bounds[1:], strict=True)]
        self._by_products = not padded and by_products(like)
        longest = max(sizes)
        if padded:
            longest = -(-longest // 8) * 8
        elif self._by_products:
            longest = bucket(longest)
        self._distances = distances(longest, extra, like)
        self._groups = _groups(bounds, like) if padded else None
        self._shared = shared
        self._biases: dict[int, Tensor] = {}
        self._bias_numbers = 0

    def __call__(self, query: Tensor, key: Tensor, value: Tensor, slopes: Tensor) -> Tensor:
        """Softmax attention of each clip by itself.

        Args:
            query, key, value: [tokens, heads, head_dim].
            slopes: slope times learned scale of each head [heads].

        Returns:
            [tokens, heads * head_dim].
        """
        slopes = slopes.to(query.dtype)[:, None, None]
        output = torch.empty_like(query)
        # beyond the last clip is filler, which no clip attends to
        output[self._bounds[-1] :] = 0
        if self._groups is not None:
            self._by_group(query, key, value, slopes, output)
            return output.flatten(1)
        attend = self._products if self._by_products else self._fused
        for first, last in zip(self._bounds[:-1], self._bounds[1:], strict=True):
            q, k, v = (part[first:last].transpose(0, 1) for part in (query, key, value))
            output[first:last] = attend(q, k, v, slopes).transpose(0, 1)
        return output.flatten(1)

    def _bias(self, size: int, slopes: Tensor) -> Tensor:
        if size in self._biases:
            return self._biases[size]
        bias = slopes * self._distances[:size, :size]
        if self._shared and self._bias_numbers + bias.numel() <= SHARED_BIAS_NUMBERS:
            self._biases[size] = bias
            self._bias_numbers += bias.numel()
        return bias

    def _fused(self, query: Tensor, key: Tensor, value: Tensor, slopes: Tensor) -> Tensor:
        bias = self._bias(query.shape[1], slopes)[None]
        parts = query[None], key[None], value[None]
        return F.scaled_dot_product_attention(*parts, attn_mask=bias)[0]

    def _products(self, query: Tensor, key: Tensor, value: Tensor, slopes: Tensor) -> Tensor:
        heads, size, width = query.shape
        # rounded up like all rows: few kernels, and rows that the softmax takes in whole vectors
        # (measured: 1.0 instead of 1.5 ms for 509 rows)
        rows = bucket(size)
        # head after head: the products would copy their parts each time
        parts = query.new_zeros(3, heads, rows, width)
        for part, source in zip(parts, (query, key, value), strict=True):
            part[:, :size] = source
        query, key, value = parts
        query *= width**-0.5
        output = torch.empty_like(query)
        # few heads at a time, so that their scores stay in the cache between the steps
        step = max(1, CACHED_SCORES // (rows * rows))
        for first in range(0, heads, step):
            some = slice(first, first + step)
            # the bias is the addend of the product: one pass over the scores fewer
            scores = slopes[some] * self._distances[:rows, :rows]
            scores.baddbmm_(query[some], key[some].transpose(1, 2))
            scores[:, :, size:] = -torch.inf
            torch.bmm(torch.softmax(scores, dim=-1), value[some], out=output[some])
        return output[:, :size]

    def _by_group(
        self, query: Tensor, key: Tensor, value: Tensor, slopes: Tensor, output: Tensor
    ) -> None:
        for group in self._groups or ():
            length = group.tokens.shape[1]
            q, k, v = (part[group.tokens].transpose(1, 2) for part in (query, key, value))
            bias = slopes * self._distances[:length, :length] + group.mask
            mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
            output[group.tokens[group.valid]] = mixed.transpose(1, 2)[group.valid]


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
