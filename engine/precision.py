"""Which device and which number format this machine computes best in."""

from functools import lru_cache
from time import perf_counter

import torch

from engine.errors import ModelError

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}

CLEARLY_FASTER = 1.2
"""How much faster bfloat16 must be to be worth its rounding."""

PROBES = 16
"""Pairs of products that are timed to tell which format is faster; the first pair warms up."""


def choose_device(device: str) -> torch.device:
    """`auto` is the first CUDA device where there is one, else the CPU."""
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        chosen = torch.device(device)
    except RuntimeError:
        raise ModelError(f"device {device!r} is not auto, cpu or cuda") from None
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise ModelError(f"device {device!r} was asked for, but this process sees no CUDA device")
    return chosen


def choose_dtype(dtype: str, device: torch.device) -> torch.dtype:
    """`auto` is float16 on CUDA; on a CPU bfloat16 where it multiplies faster, else float32."""
    if dtype == "auto":
        if device.type == "cuda":
            return torch.float16
        return torch.bfloat16 if bfloat16_is_faster() else torch.float32
    if dtype not in DTYPES:
        raise ModelError(f"dtype {dtype!r} is not auto, {', '.join(DTYPES)}")
    return DTYPES[dtype]


def cpu_has_bfloat16() -> bool:
    """Whether the CPU multiplies bfloat16 matrices in hardware (AVX-512-BF16 or AMX)."""
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


@lru_cache(maxsize=1)
def bfloat16_is_faster() -> bool:
    """Whether bfloat16 products are clearly faster than float32 ones on this CPU.

    The CPU's flags do not tell: with AMX they measured 5 times as fast, with AVX-512-BF16 alone
    (AMX hidden by a hypervisor) half as fast. Both are so far from 1 that replicas agree.
    """
    if not cpu_has_bfloat16():
        return False
    if torch.cpu._is_amx_tile_supported():
        return True
    left, right = torch.randn(512, 1024), torch.randn(1024, 1024)
    exact, rounded = (left, right), (left.bfloat16(), right.bfloat16())
    # in turns, and the median of the ratios: replicas that start on a busy machine must agree
    ratios = [_seconds(*exact) / _seconds(*rounded) for _ in range(PROBES)]
    return sorted(ratios[1:])[len(ratios) // 2] > CLEARLY_FASTER


def _seconds(left: torch.Tensor, right: torch.Tensor) -> float:
    started = perf_counter()
    torch.mm(left, right)
    return perf_counter() - started
