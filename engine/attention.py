"""Self-attention inside each clip of a packed batch, with ALiBi's distance bias."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor


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


def attend_by_clip(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bounds: Sequence[int],
    distance_tables: Sequence[Tensor],
    slopes: Tensor,
) -> Tensor:
    """Softmax attention of each clip by itself.

    Args:
        query, key, value: [tokens, heads, head_dim]; the query already scaled.
        bounds: first token of each clip, and the end.
        distance_tables: one [t, t] table for each clip, see `distances`.
        slopes: slope times learned scale of each head [heads].

    Returns:
        [tokens, heads * head_dim].
    """
    tokens, heads, width = query.shape
    output = query.new_empty(tokens, heads, width)
    slopes = slopes.to(query.dtype)[:, None, None]
    for first, last, table in zip(bounds[:-1], bounds[1:], distance_tables, strict=True):
        q, k, v = (part[first:last].transpose(0, 1) for part in (query, key, value))
        # the bias is the addend of the product: one pass over [heads, t, t] fewer
        scores = torch.baddbmm(slopes * table, q, k.transpose(1, 2))
        weights = torch.softmax(scores, dim=-1)
        output[first:last] = torch.bmm(weights, v).transpose(0, 1)
    return output.flatten(1)
