"""Both forms of attention are the same mathematics."""

import pytest
import torch

from engine.attention import Attention


@pytest.mark.parametrize("sizes", [[11], [60, 11, 59, 12, 200], [30] * 7])
def test_padded_groups_equal_clip_by_clip(sizes: list[int]) -> None:
    generator = torch.Generator().manual_seed(0)
    tokens, heads, width, extra = sum(sizes), 4, 8, 10
    parts = [torch.randn(tokens, heads, width, generator=generator) for _ in range(3)]
    slopes = torch.tensor([0.5, 0.25, 0.1, 0.0])
    bounds = [0, *torch.tensor(sizes).cumsum(0).tolist()]
    single = Attention(bounds, extra, parts[0], padded=False)(*parts, slopes)
    padded = Attention(bounds, extra, parts[0], padded=True)(*parts, slopes)
    torch.testing.assert_close(padded, single, rtol=0, atol=1e-5)
    first = sizes[0]
    alone = Attention([0, first], extra, parts[0], padded=True)(
        *(part[:first] for part in parts), slopes
    )
    torch.testing.assert_close(alone, single[:first], rtol=0, atol=1e-5)
