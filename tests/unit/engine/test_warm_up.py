"""After the warm-up no length of audio makes the CPU's library build another kernel."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.engine import Engine
from engine.packing import bucket, buckets
from engine.warm_up import kernel_sizes, warm_up

COUNT_KERNELS = """
import sys
import numpy as np
import torch
from engine.engine import Engine
from engine.warm_up import warm_up

torch.set_num_threads(2)
engine = Engine.load(sys.argv[1], "cpu", sys.argv[2])
for _ in warm_up(engine, 1500):
    pass
print("ready", flush=True)
for lengths in ([400], [21_013], [57_855], [80_413, 31_532], [48_000] * 9, [480_777]):
    engine.infer([np.random.default_rng(n).standard_normal(n, np.float32) for n in lengths])
"""


NO_KERNELS = pytest.mark.skipif(
    not torch.ops.mkldnn._is_mkldnn_bf16_supported(),
    reason="oneDNN makes no bfloat16 kernels on this CPU",
)


@pytest.mark.parametrize("dtype", ["float32", pytest.param("bfloat16", marks=NO_KERNELS)])
def test_no_kernel_is_made_after_the_warm_up(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    monkeypatch.setenv("ONEDNN_VERBOSE", "profile_create")
    command = [sys.executable, "-c", COUNT_KERNELS, str(tiny), dtype]
    log = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    before, after = log.split("ready\n")
    made = "primitive,create:cache_miss"
    assert made in before  # this is what the library calls it
    assert [line for line in after.splitlines() if made in line] == []


@pytest.mark.parametrize("rows", [1, 8, 9, 63, 129, 257, 509, 1510, 31_999])
def test_a_bucket_is_little_more_than_what_it_holds(rows: int) -> None:
    assert rows <= bucket(rows) <= max(rows + (7 if rows <= 128 else 15), rows * 17 / 16)
    assert bucket(bucket(rows)) == bucket(rows)


def test_buckets_are_all_that_occur() -> None:
    assert buckets(600) == sorted({bucket(rows) for rows in range(1, 601)})


def test_sizes_hold_the_longest_pass_and_a_full_batch(tiny_engine: Engine) -> None:
    extra = tiny_engine.config.extra_tokens
    longest = tiny_engine.config.frames(35 * 16_000) + extra
    assert kernel_sizes(tiny_engine, 1)[0] == bucket(longest)
    assert kernel_sizes(tiny_engine, 4_900)[0] == bucket(100 * (49 + extra))


def test_steps_are_reported_with_their_seconds_of_audio(tiny_engine: Engine) -> None:
    steps: dict[str, Any] = {name: seconds for name, _, seconds in warm_up(tiny_engine, 150)}
    assert steps["1 s"] == 1.0
    assert steps["batch of 1 s"] == 3.0
