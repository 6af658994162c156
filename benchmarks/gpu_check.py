"""The engine on this machine's GPU: exact, fast, within its memory. One table, one JSON file.

    python -m benchmarks.gpu_check --out results

Needs torch, torchaudio, numpy and safetensors only; random weights, no network. On a machine
without a GPU it checks the CPU, where `--size tiny` takes seconds.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import torch

from benchmarks.checkpoints import SHAPES
from benchmarks.clips import Samples, clip, clips, mixed_lengths, samples_of
from benchmarks.comparing import company, distance, require
from benchmarks.environment import cpu_name, revision
from benchmarks.floors import flop, matrix_rate
from benchmarks.random_model import engine_of, random_checkpoint
from benchmarks.report import Budget, OutputsDiffer, Report, Row, absent, render, tally
from benchmarks.statistics import figure, percentile, seconds_of
from engine.engine import Engine
from engine.precision import choose_device, choose_dtype
from engine.warm_up import warm_up

CHECK_SECONDS = (0.4, 1.0, 3.1, 10.0)
SIZES = {
    "cuda": ((1, 3.0), (1, 10.0), (8, 10.0), (32, 10.0)),
    "cpu": ((1, 1.0), (1, 3.0), (4, 3.0)),
}
MIXED_SECONDS = {"cuda": 600.0, "cpu": 10.0}
LATENCY_MS = Budget(8.0, at_most=True, unit="ms")
RATE_SHARE = Budget(50.0, at_most=False, unit="%")
SCORES_LOW, SCORES_COMPANY, FEATURES_FLOAT32 = 0.02, 0.005, 1e-4
GROUP = "engine on this device"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all checks; 1 where outputs differ, in which case no time is printed."""
    options = _parser().parse_args(arguments)
    device = choose_device(options.device)
    try:
        report = check(options.size, device, options.runs)
    except OutputsDiffer as error:
        print(f"the outputs differ, so no time is printed: {error}", file=sys.stderr)
        return 1
    print(render(report) + "\n" + tally(report.rows))
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        report.write_json(options.out / "gpu_check.json")
    return 0


def check(size: str, device: torch.device, runs: int) -> Report:
    """Correctness first, then the figures.

    Raises:
        OutputsDiffer: half precision, or company, changes a result too much.
    """
    checkpoint = random_checkpoint(size)
    exact = engine_of(checkpoint, device, torch.float32)
    served = engine_of(checkpoint, device, choose_dtype("auto", device))
    low = served if served.dtype != torch.float32 else None
    sentences = list(_exactness(exact, low or engine_of(checkpoint, device, torch.bfloat16)))
    command = f"python -m benchmarks.gpu_check --size {size}"
    report = Report(size, command, _environment(served), sentences)
    del exact
    _free()
    for _ in warm_up(served, 1500 if size == "large" else 150):
        pass
    report.rows += [_recompiles(), *_speed(served, runs), *_memory(served)]
    return report


def _exactness(exact: Engine, low: Engine) -> Iterator[str]:
    waves = clips(list(CHECK_SECONDS))
    in_float32 = company(exact, waves)
    yield require("float32, in company against alone, features", in_float32.features, 1e-4)
    name = str(low.dtype).removeprefix("torch.")
    reference = exact.infer(waves, frame_embeddings=True)
    apart = distance(low.infer(waves, frame_embeddings=True), reference)
    yield require(f"{name} against float32, scores", apart.scores, SCORES_LOW)
    yield require(f"{name}, in company against alone, scores", company(low, waves).scores, 5e-3)
    yield f"same top label in {name} and float32: {apart.same_top:.0%} (random weights)"
    if exact.device.type == "cuda":
        on_cpu = engine_of(exact.checkpoint, torch.device("cpu"), torch.float32)
        short = waves[:2]
        ours = exact.infer(short, frame_embeddings=True)
        apart = distance(ours, on_cpu.infer(short, frame_embeddings=True))
        # cuDNN convolves float32 in TF32, so this is no bit-for-bit comparison
        yield require("float32 on the GPU against the CPU, scores", apart.scores, SCORES_COMPANY)


def _recompiles() -> Row:
    """Nothing is compiled; a graph that TorchDynamo made would say otherwise."""
    dynamo: Any = sys.modules.get("torch._dynamo.utils")
    graphs = dynamo.counters["stats"].get("unique_graphs", 0) if dynamo else 0
    return Row(GROUP, "recompiles", str(graphs), float(graphs), Budget(0, True, ""))


def _speed(engine: Engine, runs: int) -> Iterator[Row]:
    kind, config = engine.device.type, engine.config
    rates = {dtype: matrix_rate(engine.device, dtype) for dtype in {engine.dtype, torch.float32}}
    for dtype, rate in rates.items():
        name = str(dtype).removeprefix("torch.")
        yield Row(GROUP, f"matrix products, {name}", f"{figure(rate / 1e12)} TFLOP/s", rate)
    wave = clip(3.0)
    times = [seconds_of(lambda: engine.infer([wave])) * 1000 for _ in range(runs * 4)]
    middle, slow = median(times), percentile(times, 0.95)
    text = f"P50 {figure(middle)} ms, P95 {figure(slow)} ms"
    budget = LATENCY_MS if kind == "cuda" and config.layers == 24 else None
    yield Row(GROUP, "one clip of 3 s", text, middle, budget)
    batches = [[seconds] * count for count, seconds in SIZES[kind]]
    for lengths in [*batches, mixed_lengths(MIXED_SECONDS[kind])]:
        yield _rate_row(engine, lengths, rates[engine.dtype], runs)


def _rate_row(engine: Engine, lengths: list[float], rate: float, runs: int) -> Row:
    waves = clips(lengths)
    rows = _linear_rows(engine, waves)
    seconds = median(seconds_of(lambda: engine.infer(waves)) for _ in range(runs))
    work = sum(flop(engine.config, samples_of(length)) for length in lengths)
    share = 100 * work / seconds / rate
    uniform = len(set(lengths)) == 1
    name = f"{len(lengths)} × {lengths[0]:g} s" if uniform else f"{len(lengths)} clips of 1–30 s"
    frames = sum(engine.config.frames(wave.size) for wave in waves)
    text = (
        f"{figure(share)} % of the product rate, {figure(sum(lengths) / seconds)} audio-s/s, "
        f"{figure(seconds * 1000)} ms, padding {100 * (1 - frames / rows):.1f} %"
    )
    wanted = engine.device.type == "cuda" and len(lengths) == 32 and engine.config.layers == 24
    return Row(GROUP, name, text, share, RATE_SHARE if wanted else None)


def _linear_rows(engine: Engine, waves: Sequence[Samples]) -> int:
    """Rows that a block's linear layers see; also the warm-up of this size."""
    counted = [0]

    def count(_: Any, inputs: tuple[torch.Tensor, ...]) -> None:
        counted[0] += inputs[0].shape[0]

    block: Any = engine.encoder.blocks[0]
    hook = block.qkv.register_forward_pre_hook(count)
    engine.infer(waves)
    hook.remove()
    return counted[0]


def _memory(engine: Engine) -> Iterator[Row]:
    waves = clips([10.0 if engine.device.type == "cuda" else 1.0] * 32)
    if engine.device.type != "cuda":
        yield absent(GROUP, "device memory", "there is no GPU in this machine")
        yield _out_of_memory_row(engine, waves, lambda: _refusing(engine, most=4))
        return
    _free()
    weights = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    engine.infer(waves)
    peak = torch.cuda.max_memory_allocated()
    text = f"weights {figure(weights / 2**30)} GiB, peak at 32 × 10 s {figure(peak / 2**30)} GiB"
    yield Row(GROUP, "device memory", text, float(peak))
    allowed = weights + 0.6 * (peak - weights)
    yield _out_of_memory_row(engine, waves, lambda: _fraction(allowed))


def _out_of_memory_row(engine: Engine, waves: Sequence[Samples], limit: Callable[[], Any]) -> Row:
    """A batch that does not fit is halved and gives the results that it gives with room."""
    wanted = engine.infer(waves, frame_embeddings=True)
    calls = [0]

    def count(*_: Any) -> None:
        calls[0] += 1

    hook = engine.encoder.register_forward_pre_hook(count)
    with limit():
        found = engine.infer(waves, frame_embeddings=True)
    hook.remove()
    require("out of memory, scores", distance(found, wanted).scores, SCORES_COMPANY)
    text = f"answered, same results, {calls[0]} encoder calls for 32 clips"
    return Row(GROUP, "out of memory within the process's share", text, float(calls[0]))


@contextmanager
def _refusing(engine: Engine, most: int) -> Iterator[None]:
    """On a CPU: an encoder that claims to have no memory for more than `most` clips."""

    def refuse(_: Any, inputs: tuple[Sequence[torch.Tensor], ...]) -> None:
        if len(inputs[0]) > most:
            raise torch.OutOfMemoryError("more clips than this check allows")

    hook = engine.encoder.register_forward_pre_hook(refuse)
    try:
        yield
    finally:
        hook.remove()


@contextmanager
def _fraction(allowed: float) -> Iterator[None]:
    """On CUDA: this process may hold `allowed` bytes only."""
    _free()
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1.0, allowed / total))
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


def _free() -> None:
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _environment(engine: Engine) -> dict[str, Any]:
    facts = {
        "revision": revision(),
        "device": cpu_name(),
        "precision": str(engine.dtype).removeprefix("torch."),
        "torch": torch.__version__,
    }
    if engine.device.type == "cuda":
        card = torch.cuda.get_device_properties(engine.device)
        facts["device"] = f"{card.name}, {card.total_memory / 2**30:.0f} GiB"
    return facts


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_check", allow_abbrev=False)
    parser.add_argument("--size", choices=tuple(SHAPES), default="large", help="default: large")
    parser.add_argument("--device", default="auto", help="cuda, cpu or auto (default)")
    parser.add_argument("--runs", type=int, default=10, help="runs of each figure")
    parser.add_argument("--out", type=Path, help="folder for gpu_check.json")
    return parser


if __name__ == "__main__":
    sys.exit(main())
