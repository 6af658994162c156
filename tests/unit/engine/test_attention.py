"""All forms of attention are the same mathematics."""

import pytest
import torch

from engine.attention import Attention
from engine.packing import bucket


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


@pytest.mark.parametrize("sizes", [[11], [60, 11, 59, 12, 201], [24] * 7])
def test_products_equal_the_fused_kernel(sizes: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(1)
    tokens, heads, width = sum(sizes), 4, 8
    parts = [3 * torch.randn(tokens + 5, heads, width, generator=generator) for _ in range(3)]
    # negative scores throughout: places that are no clip's would weigh most
    parts[0], parts[1] = parts[0].abs(), -parts[1].abs()
    slopes = torch.tensor([0.5, 0.25, 0.1, 0.0])
    bounds = [0, *torch.tensor(sizes).cumsum(0).tolist()]
    fused = Attention(bounds, 10, parts[0])(*parts, slopes)
    monkeypatch.setattr("engine.attention.by_products", lambda like: True)
    # three heads at a time, then one
    monkeypatch.setattr("engine.attention.CACHED_SCORES", 3 * bucket(max(sizes)) ** 2)
    products = Attention(bounds, 10, parts[0])(*parts, slopes)
    torch.testing.assert_close(products, fused, rtol=0, atol=1e-5)
