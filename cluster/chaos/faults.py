"""What is done to the server, and how one knows that it is whole again."""

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from cluster.chaos.accounts import Fault
from cluster.chaos.processes import kill, members
from cluster.chaos.server import Server, wait_until

BACK_SECONDS = 180.0
"""After this a fault counts as not recovered from."""

KINDS = (
    *("kill Model", "live limits", "kill Preprocess", "roll settings", "kill Cache"),
    *("kill controller", "roll model", "kill Ingress", "roll model back", "wrong weights"),
    *("kill proxy", "roll code"),
)
"""In the order of a cycle: what costs requests by its nature comes late."""


@dataclass(frozen=True, slots=True)
class Models:
    """Where the models lie: the one served, another version of it, and a damaged one."""

    usual: str
    other: Path
    damaged: Path


class Faults:
    """Does one fault after another; each is over when the server is whole again."""

    def __init__(self, server: Server, models: Models) -> None:
        self._server = server
        self._models = models
        self._fresh = itertools.count(1)

    def run(self, kind: str) -> Fault:
        """Do it and wait, at most `BACK_SECONDS` each time."""
        fault = Fault(kind, time.monotonic())
        action, _, role = kind.partition(" ")
        try:
            if action == "kill":
                self._kill(fault, role)
            else:
                getattr(self, "_" + kind.replace(" ", "_"))(fault)
            fault.back = time.monotonic()
        except (TimeoutError, RuntimeError) as error:
            fault.note = str(error).splitlines()[0]
        return fault

    def _kill(self, fault: Fault, role: str) -> None:
        before = members(role)
        fault.at = time.monotonic()
        kill(before[0])

        def replaced() -> bool:
            now = members(role)
            return len(now) == len(before) and before[0] not in now

        wait_until(replaced, BACK_SECONDS, f"no new {role}")
        self._whole()

    def _live_limits(self, _: Fault) -> None:
        self._changed(user_config={"max_batch_frames": 1000 + next(self._fresh)})

    def _roll_settings(self, _: Fault) -> None:
        self._changed(max_files=16 + next(self._fresh))

    def _roll_model(self, _: Fault) -> None:
        self._changed(model=str(self._models.other))

    def _roll_model_back(self, _: Fault) -> None:
        self._changed(model=self._models.usual)

    def _roll_code(self, _: Fault) -> None:
        self._changed(variables={"E2V_CHAOS_CODE": str(next(self._fresh))})

    def _wrong_weights(self, fault: Fault) -> None:
        good = self._server.args["model"]
        self._server.deploy(model=str(self._models.damaged))
        failed = self._server.until_failed(BACK_SECONDS)
        fault.note = f"refused after {failed:.0f} s"
        self._changed(model=good)

    def _changed(self, **change: Any) -> None:
        self._server.deploy(**change)
        self._whole()

    def _whole(self) -> None:
        self._server.until_running(BACK_SECONDS)
        wait_until(self._answers, BACK_SECONDS, "/health does not answer")

    def _answers(self) -> bool:
        try:
            return (
                httpx2.get(f"{self._server.url}/health", timeout=5).status_code == httpx2.codes.OK
            )
        except httpx2.HTTPError:
            return False


def schedule(
    kinds: Sequence[str], seconds: float, gap_seconds: float, idle: Callable[[float], None]
) -> Iterator[str]:
    """`kinds` in turn, `gap_seconds` of quiet before each, while `seconds` last.

    Args:
        idle: waits that long.
    """
    end = time.monotonic() + seconds
    for kind in itertools.cycle(kinds):
        if time.monotonic() + gap_seconds >= end:
            break
        idle(gap_seconds)
        yield kind
    idle(max(0.0, end - time.monotonic()))
