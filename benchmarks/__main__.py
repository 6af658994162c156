"""One command, one report: `python -m benchmarks [--quick | --full] [--out DIR]`."""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter
from typing import Any, TypeVar

from benchmarks.plan import Plan, full, quick
from benchmarks.report import OutputsDiffer, Report, Section, render, tally

T = TypeVar("T")
SECTIONS = ("engine", "batches", "cold-start", "first-request", "http", "endurance")
DEFAULT_OUT = Path("benchmarks/results")
DEFAULT_WORK = Path("build/benchmarks")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure everything; 1 where outputs differ, in which case no time is printed."""
    options = _parser().parse_args(arguments)
    plan = (full if options.full else quick)(options.work)
    try:
        options.out.mkdir(parents=True, exist_ok=True)
        options.work.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        print(f"the results cannot be written to {options.out}: {error.strerror}", file=sys.stderr)
        return 1
    try:
        report = run(plan, options.only, lambda part: part.write_json(options.out / "report.json"))
    except OutputsDiffer as error:
        print(f"the outputs differ, so no time is printed: {error}", file=sys.stderr)
        return 1
    print(render(report) + "\n" + tally(report.rows))
    _write(report, options.out)
    return 0


def run(
    plan: Plan, only: Sequence[str] = SECTIONS, so_far: Callable[[Report], None] = lambda _: None
) -> Report:
    """All sections, each in a process of its own, so that none inherits another's memory.

    Args:
        so_far: given the report after each section, so that a run which fails late leaves
            what it had found.

    Raises:
        OutputsDiffer: what would be timed does not compute the same thing.
    """
    from benchmarks import (
        cold_start,
        endurance,
        engine_rows,
        environment,
        equality,
        first_request,
        http_rows,
        unmeasured,
    )
    from benchmarks.plan import make_checkpoints

    measures: dict[str, Callable[[Plan], Section]] = {
        "engine": engine_rows.measure_headline,
        "batches": engine_rows.measure_batches,
        "cold-start": cold_start.measure_cold_start,
        "first-request": first_request.measure_first_request,
        "http": http_rows.measure_http,
        "endurance": endurance.measure_endurance,
    }
    began = perf_counter()
    described = _apart("environment", environment.describe)
    _apart("random checkpoints", make_checkpoints, plan)
    agreed = _apart("equality of outputs", equality.check_equality, plan)
    part = "" if tuple(only) == SECTIONS else " --only " + " ".join(only)
    report = Report(plan.mode, f"python -m benchmarks --{plan.mode}{part}", described, agreed)
    for name in only:
        report.add(_apart(name, measures[name], plan))
        so_far(report)
    report.equality += report.facts.pop("equality", [])
    if not part:
        report.add(Section(unmeasured.unmeasured_rows()))
    report.environment["load after the run"] = environment.load_average()
    report.environment["elapsed"] = f"{(perf_counter() - began) / 60:.1f} minutes"
    # the sections' floors stand together
    report.rows.sort(key=lambda row: row.group != "Floors")
    return report


def _apart(name: str, work: Callable[..., T], *arguments: Any) -> T:
    """`work` in a fresh process; says on stderr what it is about."""
    print(f"… {name}", file=sys.stderr, flush=True)
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(work, *arguments).result()


def _write(report: Report, out: Path) -> None:
    from benchmarks.picture import svg
    from benchmarks.sizing import sizing_entry, with_entry

    report.write_json(out / "report.json")
    (out / "report.svg").write_text(svg(report), "utf-8")
    entry = sizing_entry(report)
    if entry is not None:
        sizes = out / "sizing.json"
        known = json.loads(sizes.read_text("utf-8")) if sizes.exists() else []
        text = json.dumps(with_entry(known, entry), ensure_ascii=False, indent=1)
        sizes.write_text(text + "\n", "utf-8")
    print(f"written to {out}: report.json, report.svg" + (", sizing.json" if entry else ""))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, allow_abbrev=False
    )
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--quick", action="store_true", help="some minutes on two cores (default)")
    mode.add_argument("--full", action="store_true", help="the large shape everywhere")
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT, help=f"default: {DEFAULT_OUT}")
    parser.add_argument(
        "--work", type=Path, default=DEFAULT_WORK, help=f"random checkpoints: {DEFAULT_WORK}"
    )
    parser.add_argument(
        "--only", nargs="+", choices=SECTIONS, default=SECTIONS, help="some of the sections"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
