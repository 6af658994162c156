"""From an empty process to an engine that answers, step by step, beside FunASR's way there."""

import json
import subprocess
import sys
from pathlib import Path
from statistics import median

from benchmarks.environment import ROOT
from benchmarks.plan import Plan
from benchmarks.report import Budget, Row, Section
from benchmarks.statistics import figure

COLD = "Cold start (a fresh process each time; files in the page cache)"

OURS = """
import json, sys, time
started = time.perf_counter()
from engine.engine import Engine
from engine.warm_up import warm_up
imported = time.perf_counter()
engine = Engine.load(sys.argv[1])
loaded = time.perf_counter()
warm = {name: ms / 1000 for name, ms, _ in warm_up(engine, 1500)}
ready = time.perf_counter()
print(json.dumps({"import": imported - started, "weights on the device": loaded - imported,
                  "warm-up": ready - loaded, "warm-up steps": warm}))
"""

THEIRS = """
import contextlib, io, json, logging, sys, time, warnings
warnings.simplefilter("ignore")
logging.disable(logging.ERROR)
started = time.perf_counter()
with contextlib.redirect_stdout(io.StringIO()):
    from funasr import AutoModel
    imported = time.perf_counter()
    AutoModel(model=sys.argv[1], device=sys.argv[2], disable_update=True, disable_pbar=True)
    loaded = time.perf_counter()
print(json.dumps({"import": imported - started, "weights on the device": loaded - imported}))
"""


def measure_cold_start(plan: Plan) -> Section:
    """Both, in turns."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    ours: list[dict[str, float]] = []
    theirs: list[dict[str, float]] = []
    for _ in range(plan.cold_rounds):
        ours.append(_fresh(OURS, plan.prepared(plan.headline)))
        theirs.append(_fresh(THEIRS, plan.checkpoint(plan.headline), device))
    return cold_section(plan.headline, ours, theirs)


def cold_section(
    shape: str, ours: list[dict[str, float]], theirs: list[dict[str, float]]
) -> Section:
    """Rows of the steps of several starts of each."""
    mine = {name: median(one[name] for one in ours) for name in ours[0] if "steps" not in name}
    other = {name: median(one[name] for one in theirs) for name in theirs[0]}
    on_device = mine["import"] + mine["weights on the device"]
    ready, reference = sum(mine.values()), sum(other.values())
    section = Section(facts={"cold_start": mine, "cold_start_funasr": other})
    section.rows = [
        Row(COLD, f"engine, {shape}: import, weights, warm-up", _steps(mine), ready),
        Row(COLD, f"funasr, {shape}: import, AutoModel(...)", _steps(other), reference),
        _ratio_row("weights on the device (import included)", on_device / reference, 1 / 3),
        _ratio_row("warmed and ready", ready / reference, 1.0),
    ]
    return section


def _ratio_row(name: str, ratio: float, limit: float) -> Row:
    quantity = f"{name} / importing funasr and loading"
    return Row(COLD, quantity, f"{ratio:.2f}×", ratio, Budget(limit, at_most=True))


def _steps(steps: dict[str, float]) -> str:
    return " + ".join(figure(value) for value in steps.values()) + " s"


def _fresh(code: str, model: Path, *arguments: str) -> dict[str, float]:
    """Run `code` in a process of its own; the JSON of its last line."""
    command = [sys.executable, "-c", code, str(model.resolve()), *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"a fresh process failed: {done.stderr.strip().splitlines()[-1:]}")
    steps: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return steps
