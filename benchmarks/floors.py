"""What no engine can beat: the work of a pass, and the rate of this device's matrix products."""

from collections.abc import Callable
from statistics import median

import torch

from benchmarks.statistics import seconds_of
from engine.config import ModelConfig

PRODUCTS = ((512, 1024, 4096), (512, 4096, 1024), (1024, 1024, 1024))
"""Rows, inner, columns: what the encoder multiplies for a clip of 10 s, and a square one."""
CUDA_PRODUCTS = ((16384, 1024, 4096), (8192, 8192, 8192))
RATE_RUNS = 12


def flop(config: ModelConfig, samples: int) -> float:
    """Floating-point operations of one clip of `samples`; two for each multiply-add.

    Matrix products and convolutions only: norms and activations are no work for the units
    whose rate is the floor.
    """
    dim, frames = config.embed_dim, config.frames(samples)
    total, length, channels = 0.0, samples, 1
    for outputs, kernel, stride in config.convs:
        length = (length - kernel) // stride + 1
        total += 2.0 * length * kernel * channels * outputs
        channels = outputs
    total += 2.0 * frames * channels * dim
    kernel_work = config.positional_kernel * dim * dim / config.positional_groups
    total += 2.0 * frames * config.positional_depth * kernel_work
    tokens = frames + config.extra_tokens
    linear = 2.0 * tokens * dim * dim * (4 + 2 * config.mlp_ratio)
    attention = 4.0 * tokens * tokens * dim
    return total + config.layers * (linear + attention)


def matrix_rate(device: torch.device, dtype: torch.dtype, runs: int = RATE_RUNS) -> float:
    """Operations per second of plain matrix products: the best of a few sizes, each a median."""
    shapes = CUDA_PRODUCTS if device.type == "cuda" else PRODUCTS
    return max(_rate(shape, device, dtype, runs) for shape in shapes)


def matrix_seconds(device: torch.device, dtype: torch.dtype) -> Callable[[], float]:
    """A call that measures `matrix_rate` quickly, to take turns with what it is the floor of."""
    return lambda: matrix_rate(device, dtype, runs=4)


@torch.inference_mode()
def _rate(
    shape: tuple[int, int, int], device: torch.device, dtype: torch.dtype, runs: int
) -> float:
    rows, inner, columns = shape
    left = torch.randn(rows, inner, device=device).to(dtype)
    right = torch.randn(inner, columns, device=device).to(dtype)
    out = torch.empty(rows, columns, device=device, dtype=dtype)

    def multiply() -> None:
        torch.mm(left, right, out=out)
        if device.type == "cuda":
            torch.cuda.synchronize()

    multiply()
    return 2.0 * rows * inner * columns / median(seconds_of(multiply) for _ in range(runs))
