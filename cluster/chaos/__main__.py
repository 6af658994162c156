"""`python -m cluster.chaos [--seconds 600] [--rate auto]`: load, faults, and the account of both.

Starts a server of its own on a free port, measures what it can do, sends 60 % of that, and does
one fault after another meanwhile. Exit code 1: a request failed that no fault explains, the
server was not whole again after a fault, or the scores after the run are not those before it.
"""

import argparse
import asyncio
import io
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import redirect_stdout
from pathlib import Path

from cluster.chaos.accounts import Fault
from cluster.chaos.clips import mixed_clips
from cluster.chaos.faults import KINDS, Faults, Models, schedule
from cluster.chaos.load import TOLERANCE, Background, Load, largest_difference, reference
from cluster.chaos.processes import Watch
from cluster.chaos.report import Run, to_text, write_json
from cluster.chaos.server import Server, another_model, broken_model, free_port
from serve_app.console import own_console

USUAL = "emotion2vec_mini"
BUNDLED = Path(__file__).parents[2] / "engine" / "models" / USUAL
SHARE_OF_CAPACITY = 0.6
CAPACITY_SECONDS = 10.0
CALLERS = 16
LOOK_SECONDS = 5.0
WARM_UP_SECONDS = 30.0

CACHE_BYTES = 2**22
"""Full, and evicting, within the first minute: its growth up to the limit is no leak."""

Say = Callable[[str], None]


def main(arguments: list[str] | None = None) -> int:
    """Run it; the exit code."""
    chosen = _parser().parse_args(arguments)
    # so that the Ray below ends with this process
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with tempfile.TemporaryDirectory() as scratch:
        # Ray tells of dead workers on stdout
        with own_console(Path(os.devnull)) as console, redirect_stdout(io.StringIO()):
            run = _with_ray(chosen, Path(scratch), console.say)
        print(to_text(run))
        verdict = run.failures(TOLERANCE)
        write_json(run, chosen.json, verdict)
    for line in verdict:
        print(f"FAILED: {line}")
    return 1 if verdict else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m cluster.chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0, help="length of the load")
    parser.add_argument(
        "--rate", default="auto", help="requests per second; auto: 60 %% of capacity"
    )
    parser.add_argument("--gap", type=float, default=8.0, help="seconds of quiet between faults")
    parser.add_argument(
        "--faults", type=_kinds, default=KINDS, help=f"in turn: {', '.join(KINDS)}; none: a soak"
    )
    parser.add_argument("--json", type=Path, default=Path("build/chaos.json"), help="report")
    return parser


def _kinds(text: str) -> tuple[str, ...]:
    kinds = () if text == "none" else tuple(part.strip() for part in text.split(","))
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(KINDS)}")
    return kinds


def _with_ray(chosen: argparse.Namespace, scratch: Path, say: Say) -> Run:
    # late: Ray's environment must be complete before its import
    from serve_app.local_ray import LocalRay

    local = LocalRay(haproxy=False)
    try:
        say("starting Ray …")
        local.start()
        return _run(chosen, _models(scratch), say)
    finally:
        local.stop(lambda: False, drain=False)


def _models(scratch: Path) -> Models:
    return Models(
        USUAL,
        another_model(BUNDLED, scratch / "other", f"{USUAL}_other"),
        broken_model(BUNDLED, scratch / "damaged"),
    )


def _run(chosen: argparse.Namespace, models: Models, say: Say) -> Run:
    server = Server(
        free_port(),
        model=str(models.other),
        dtype="float32",
        cpu_threads=1,
        decode_workers=1,
        model_replicas=2,
        preprocess_replicas=2,
        ingress_replicas=2,
        cache_bytes=CACHE_BYTES,
    )
    load = Load(server.url, mixed_clips())
    say("starting the server …")
    server.start()
    _add_reference(load, 1)
    server.deploy(model=models.usual)
    server.until_running()
    _add_reference(load, 2)
    capacity, rate = _rates(chosen.rate, load, say)
    say(f"capacity {capacity:.1f} requests/s; sending {rate:.1f}/s for {chosen.seconds:g} s …")
    begun, watch = time.monotonic(), Watch()
    with Background(load, rate), _Watching(watch):
        kinds = schedule(chosen.faults, chosen.seconds, chosen.gap, time.sleep)
        faults = _do_faults(kinds, Faults(server, models), say)
    say("every request has ended")
    difference = _difference_after(load, server)
    growth, peaks = watch.growth(WARM_UP_SECONDS), watch.peaks()
    return Run(
        begun, capacity, rate, load.records, faults, chosen.faults, difference, growth, peaks
    )


def _add_reference(load: Load, nonce: int) -> None:
    model, answers = asyncio.run(reference(load.url, load.clips, nonce))
    load.references[model] = answers


def _rates(asked: str, load: Load, say: Say) -> tuple[float, float]:
    say("measuring capacity …")
    for seconds in (CAPACITY_SECONDS / 4, CAPACITY_SECONDS):
        capacity = asyncio.run(load.closed(CALLERS, _over(seconds)))
    load.records.clear()
    return capacity, capacity * SHARE_OF_CAPACITY if asked == "auto" else float(asked)


def _over(seconds: float) -> Callable[[], bool]:
    end = time.monotonic() + seconds
    return lambda: time.monotonic() > end


def _do_faults(kinds: Iterable[str], faults: Faults, say: Say) -> list[Fault]:
    done = []
    for kind in kinds:
        fault = faults.run(kind)
        took = "not whole again" if fault.seconds is None else f"{fault.seconds:.1f} s"
        say(f"{kind}: {took} {fault.note}")
        done.append(fault)
    return done


def _difference_after(load: Load, server: Server) -> float:
    model, after = asyncio.run(reference(server.url, load.clips, 3))
    before = load.references[model]
    return max(largest_difference(before[name], answer) for name, answer in after.items())


class _Watching:
    """Looks at the processes every `LOOK_SECONDS`, in a thread of its own."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, name="watch")

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._stop.wait(LOOK_SECONDS):
            self._watch.look()


if __name__ == "__main__":
    sys.exit(main())
