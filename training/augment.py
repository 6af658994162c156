"""What is changed anew in every batch: channel colour and background noise."""

import torch
from torch import Tensor


def random_colour(waves: Tensor, generator: torch.Generator, depth_db: float) -> Tensor:
    """Filter each wave `[B, samples]` by a smooth random gain curve of about ±`depth_db`."""
    bins = waves.shape[1] // 2 + 1
    knots = torch.randn(len(waves), 1, 8, generator=generator) * depth_db / 2
    curve = torch.nn.functional.interpolate(knots, size=bins, mode="linear", align_corners=True)
    gain = torch.pow(10.0, curve.squeeze(1) / 20)
    coloured: Tensor = torch.fft.irfft(torch.fft.rfft(waves) * gain, n=waves.shape[1])
    return coloured


def random_noise(
    waves: Tensor, generator: torch.Generator, snr_db: tuple[float, float], share: float
) -> Tensor:
    """Add noise with a random spectral tilt (white to brown) to a `share` of the waves."""
    count, samples = waves.shape
    spectrum = torch.fft.rfft(torch.randn(count, samples, generator=generator))
    tilt = torch.rand(count, 1, generator=generator) * 2
    bins = torch.arange(1, spectrum.shape[1] + 1, dtype=torch.float32)
    noise = torch.fft.irfft(spectrum * bins.pow(-tilt), n=samples)
    noise = noise / noise.pow(2).mean(dim=1, keepdim=True).sqrt()
    low, high = snr_db
    snr = low + (high - low) * torch.rand(count, 1, generator=generator)
    level = waves.pow(2).mean(dim=1, keepdim=True).sqrt() * torch.pow(10.0, -snr / 20)
    chosen = torch.rand(count, 1, generator=generator) < share
    noisy: Tensor = waves + noise * level * chosen
    return noisy


def random_mask(waves: Tensor, generator: torch.Generator, share: float, depth: float) -> Tensor:
    """Mask short stretches of a `share` of the waves down to `depth` of their level."""
    count, samples = waves.shape
    starts = (torch.rand(count, 1, generator=generator) * samples).long()
    lengths = (torch.rand(count, 1, generator=generator) * samples * 0.15).long()
    position = torch.arange(samples).unsqueeze(0)
    hidden = (position >= starts) & (position < starts + lengths)
    chosen = torch.rand(count, 1, generator=generator) < share
    return torch.where(hidden & chosen, waves * depth, waves)
