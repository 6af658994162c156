"""The processes of a Ray on this machine by what they do; ended by force, and measured."""

import contextlib
import itertools
import re
import signal
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field

import psutil

from serve_app.settings import APP_NAME

REPLICA = re.compile(rf"ray::ServeReplica:{APP_NAME}:(?P<name>\w+)")
MIB = 2**20
QUARTERS = 4


def role(process: psutil.Process) -> str:
    """`Model`, `Ingress`, `controller`, `proxy` …; a raylet's own helpers as Ray calls them."""
    command = process.cmdline() or [process.name()]
    if found := REPLICA.match(command[0]):
        return found["name"]
    if "engine.audio" in " ".join(command):
        return "decoder"
    titles = {"ray::ServeController": "controller", "ray::ProxyActor": "proxy"}
    for title, name in titles.items():
        if command[0].startswith(title):
            return name
    return str(process.name())


def family(root: psutil.Process | None = None) -> dict[int, str]:
    """Role of every process below `root` (default: below this one), by process number."""
    found = {}
    for process in (root or psutil.Process()).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
            found[process.pid] = role(process)
    return found


def members(name: str, root: psutil.Process | None = None) -> list[int]:
    """Process numbers of a role, oldest first."""
    return sorted(pid for pid, found in family(root).items() if found == name)


def kill(pid: int) -> None:
    """SIGKILL: nothing is finished, nobody is told."""
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(pid).send_signal(signal.SIGKILL)


@dataclass(frozen=True, slots=True)
class Sample:
    """One process at one moment; bytes of memory that are its own (USS)."""

    at: float
    pid: int
    role: str
    own_bytes: int
    descriptors: int


@dataclass(frozen=True, slots=True)
class Growth:
    """One process over time.

    Attributes:
        own_bytes: median memory of each quarter of the time after warm-up: what levels off grows
            less from one to the next, what leaks grows by as much each time.
        descriptors: the same of file descriptors.
    """

    pid: int
    role: str
    seconds: float
    own_bytes: tuple[int, ...]
    descriptors: tuple[int, ...]


@dataclass(slots=True)
class Watch:
    """Memory and file descriptors of the whole family over time."""

    samples: list[Sample] = field(default_factory=list)

    def look(self) -> None:
        """Take one sample of every process."""
        now = time.monotonic()
        for pid, name in family().items():
            with contextlib.suppress(psutil.Error):
                process = psutil.Process(pid)
                own = process.memory_full_info().uss
                self.samples.append(Sample(now, pid, name, own, process.num_fds()))

    def growth(self, warm_up_seconds: float) -> list[Growth]:
        """Processes that lived long enough after their warm-up, by role."""
        by_pid: dict[int, list[Sample]] = defaultdict(list)
        for sample in self.samples:
            by_pid[sample.pid].append(sample)
        found = []
        for pid, series in by_pid.items():
            warm = [s for s in series if s.at - series[0].at >= warm_up_seconds]
            if len(warm) >= QUARTERS:
                found.append(_growth(pid, warm))
        return sorted(found, key=lambda one: (one.role, one.pid))

    def peaks(self) -> dict[str, int]:
        """Highest memory of a process of each role, in bytes."""
        highest: Counter[str] = Counter()
        for sample in self.samples:
            highest[sample.role] = max(highest[sample.role], sample.own_bytes)
        return dict(highest)


def _growth(pid: int, warm: list[Sample]) -> Growth:
    bounds = [len(warm) * number // QUARTERS for number in range(QUARTERS + 1)]
    parts = [warm[begin:end] for begin, end in itertools.pairwise(bounds)]
    return Growth(
        pid,
        Counter(s.role for s in warm).most_common(1)[0][0],
        warm[-1].at - warm[0].at,
        tuple(_median([s.own_bytes for s in part]) for part in parts),
        tuple(_median([s.descriptors for s in part]) for part in parts),
    )


def _median(values: list[int]) -> int:
    return sorted(values)[len(values) // 2]
