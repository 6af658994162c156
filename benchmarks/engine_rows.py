"""The bare engine: against FunASR, against the matrix-product rate, in batches, packed."""

from collections.abc import Iterator
from functools import partial
from statistics import median

import torch

from benchmarks.audio_kinds import wav
from benchmarks.clips import clip, clips, mixed_lengths, samples_of
from benchmarks.floors import flop, matrix_rate
from benchmarks.hearing import hear
from benchmarks.plan import Plan
from benchmarks.processes import peak_memory_bytes
from benchmarks.reference import reference_process
from benchmarks.report import Budget, Row, Section, absent
from benchmarks.statistics import figure, interleaved, seconds_of
from engine.engine import Engine

FLOORS = "Floors"
ENGINE = "Engine (decode + front end + model, in one process, no server)"
TEN = 10.0
BATCHES = (1, 4, 8, 16, 32)
PUBLIC_BATCHES = "A10G, others' funasr server: 1.6 / 4.5 / 6.0 clips/s at batch 1 / 4 / 8"
FIVE_TIMES = Budget(5.0, at_most=False)
GPU_SHARE = Budget(50.0, at_most=False, unit="%")
GPU_LATENCY = Budget(8.0, at_most=True, unit="ms")


def measure_headline(plan: Plan) -> Section:
    """Engine and FunASR on the same checkpoint, taking turns with the products they are made of."""
    engine = Engine.load(plan.prepared(plan.headline))
    wave = clip(TEN)
    body = wav(wave)
    dtypes = {engine.dtype, torch.float32, torch.bfloat16}
    rates: dict[torch.dtype, list[float]] = {dtype: [] for dtype in dtypes}

    def measure_rate(dtype: torch.dtype) -> None:
        rates[dtype].append(matrix_rate(engine.device, dtype, runs=4))

    checkpoint = plan.checkpoint(plan.headline)
    with reference_process(checkpoint, torch.get_num_threads()) as reference:
        times = interleaved(
            {
                "engine": lambda: hear(engine, body),
                "products": lambda: measure_rate(engine.dtype),
                "funasr": lambda: reference(wave),
                **{str(dtype): partial(measure_rate, dtype) for dtype in dtypes - {engine.dtype}},
            },
            plan.rounds,
        )
    middle = {_name(dtype): median(values) for dtype, values in rates.items()}
    work = flop(engine.config, samples_of(TEN))
    section = Section(
        facts={
            "dtype": _name(engine.dtype),
            "flop_per_audio_second": work / TEN,
            "matrix_rates": middle,
            "engine_seconds_10s": times["engine"],
            "funasr_seconds_10s": times["funasr"],
        }
    )
    section.rows += _floor_rows(plan, engine, middle, work)
    section.rows += _headline_rows(plan, engine, times, middle[_name(engine.dtype)], work)
    return section


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _floor_rows(plan: Plan, engine: Engine, rates: dict[str, float], work: float) -> Iterator[Row]:
    dtype = _name(engine.dtype)
    for name in sorted(rates, reverse=True):
        served = ", which the engine uses here" if name == dtype else ""
        text = f"{figure(rates[name] / 1e9)} GFLOP/s"
        yield Row(FLOORS, f"matrix products, {name}{served}", text, rates[name])
    yield Row(
        FLOORS,
        f"matrix products of a 10 s clip alone ({plan.headline}, "
        f"{figure(work / TEN / 1e9)} GFLOP per audio-second)",
        f"{figure(work / rates[dtype])} s",
        work / rates[dtype],
    )


def _headline_rows(
    plan: Plan, engine: Engine, times: dict[str, float], rate: float, work: float
) -> Iterator[Row]:
    ratio = times["funasr"] / times["engine"]
    ceiling = times["funasr"] / (work / rate)
    text = f"{ratio:.2f}× ({figure(times['engine'])} s against {figure(times['funasr'])} s)"
    where = f"engine, 10 s clip, {plan.headline}, against funasr.AutoModel.generate"
    on_cpu = engine.device.type == "cpu"
    budget = FIVE_TIMES if on_cpu else None
    note = headline_note(ceiling) if on_cpu else ""
    yield Row(ENGINE, where, text, ratio, budget, note)
    share = 100 * work / times["engine"] / rate
    dtype = _name(engine.dtype)
    yield Row(
        ENGINE,
        f"engine, 10 s clip, {plan.headline}, share of the matrix-product rate ({dtype})",
        f"{share:.0f} %",
        share,
        Budget(75.0, at_most=False, unit="%") if on_cpu else None,
    )
    theirs = 100 * work / times["funasr"] / rate
    yield Row(ENGINE, "funasr on the same clip, share of that rate", f"{theirs:.0f} %", theirs)


def headline_note(ceiling: float) -> str:
    """How far from FunASR any engine could get, for the products alone take their time.

    Args:
        ceiling: FunASR's time over that of the clip's matrix products alone.
    """
    bound = f"the matrix products alone bound any engine to {ceiling:.1f}× funasr"
    if ceiling >= FIVE_TIMES.limit:
        return bound
    return (
        f"out of reach on this CPU: {bound}, whose own products run at the same rate. The budget "
        "was made where bfloat16 products are 5 times as fast as float32 ones (AMX)."
    )


def measure_batches(plan: Plan) -> Section:
    """Batches of one length, 64 short clips, mixed lengths, memory."""
    engine = Engine.load(plan.prepared(plan.subject))
    short = clips([3.0] * max(BATCHES))
    works = {str(n): (lambda n=n: engine.infer(short[:n])) for n in BATCHES}
    times = interleaved(works, max(2, plan.rounds // 2))
    rates = {n: n / times[str(n)] for n in BATCHES}
    text = " / ".join(figure(rate) for rate in rates.values()) + " clips/s"
    names = " / ".join(map(str, BATCHES))
    quantity = f"batch {names}, 3 s clips, {plan.subject}"
    section = Section(facts={"engine_clips_per_second_3s": rates})
    section.rows.append(Row(ENGINE, quantity, text, max(rates.values()), note=PUBLIC_BATCHES))
    section.rows.append(_together_row(plan, engine))
    section.rows += _mixed_rows(plan, engine, section)
    section.rows += _gpu_rows(engine)
    if engine.device.type == "cuda":
        section.facts["gpu_replica_bytes"] = torch.cuda.max_memory_reserved()
        section.facts["gpu_device_bytes"] = torch.cuda.get_device_properties(0).total_memory
    section.facts["engine_process_peak_bytes"] = peak_memory_bytes()
    return section


def _together_row(plan: Plan, engine: Engine) -> Row:
    waves = clips([1.0] * 64)
    times = interleaved(
        {
            "together": lambda: engine.infer(waves),
            "apart": lambda: [engine.infer([wave]) for wave in waves],
        },
        max(2, plan.rounds // 2),
    )
    ratio = times["apart"] / times["together"]
    return Row(
        ENGINE,
        f"64 clips of 1 s in one call against 64 calls, {plan.subject}",
        f"{ratio:.2f}×",
        ratio,
        Budget(1.5, at_most=False),
    )


def _mixed_rows(plan: Plan, engine: Engine, section: Section) -> Iterator[Row]:
    lengths = mixed_lengths(60.0 if engine.device.type == "cpu" else 600.0)
    waves = clips(lengths)
    rows = [0]

    def count(_: object, inputs: tuple[torch.Tensor, ...]) -> None:
        rows[0] += inputs[0].shape[0]

    hook = engine.encoder.blocks[0].qkv.register_forward_pre_hook(count)  # type: ignore[union-attr]
    engine.infer(waves)
    hook.remove()
    frames = sum(engine.config.frames(wave.size) for wave in waves)
    padding = 100 * (1 - frames / rows[0])
    yield Row(
        ENGINE,
        f"padding share, {len(lengths)} clips of 1–30 s packed "
        "(the model's extra tokens count as padding)",
        f"{padding:.1f} %",
        padding,
        Budget(5.0, at_most=True, unit="%"),
    )
    seconds = median(seconds_of(lambda: engine.infer(waves)) for _ in range(2))
    rate = sum(lengths) / seconds
    section.facts["engine_audio_seconds_per_second"] = rate
    section.facts["dtype"] = _name(engine.dtype)
    text = f"{figure(rate)} audio-s/s"
    yield Row(ENGINE, f"{len(lengths)} clips of 1–30 s at saturation, {plan.subject}", text, rate)


def _gpu_rows(engine: Engine) -> Iterator[Row]:
    rate_quantity = "engine on a GPU, 32 × 10 s, share of the matrix-product rate"
    latency_quantity = "engine on a GPU, one clip of 3 s (H200)"
    if engine.device.type != "cuda":
        why = "there is no GPU in this machine; `python -m benchmarks.gpu_check` measures it"
        yield absent(ENGINE, rate_quantity, why, GPU_SHARE)
        yield absent(ENGINE, latency_quantity, why, GPU_LATENCY)
        return
    waves, wave = clips([TEN] * 32), clip(3.0)
    engine.infer(waves)
    rate = matrix_rate(engine.device, engine.dtype)
    seconds = median(seconds_of(lambda: engine.infer(waves)) for _ in range(5))
    share = 100 * 32 * flop(engine.config, samples_of(TEN)) / seconds / rate
    yield Row(ENGINE, rate_quantity, f"{share:.0f} %", share, GPU_SHARE)
    engine.infer([wave])
    latency = 1000 * median(seconds_of(lambda: engine.infer([wave])) for _ in range(20))
    yield Row(ENGINE, latency_quantity, f"{figure(latency)} ms", latency, GPU_LATENCY)
