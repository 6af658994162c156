"""Memory and CPU time of the processes of a server, read from the system while it works."""

import contextlib
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

SERVE_REPLICA = re.compile(r"\bServeReplica:(?P<app>[\w-]+):(?P<deployment>\w+)")
OWN_NAMES = {"ray::ProxyActor": "HTTP proxy", "ray::ServeController": "Serve controller"}


@dataclass(frozen=True, slots=True)
class Usage:
    """One process.

    Attributes:
        name: deployment, or what else it is.
        peak_bytes: most memory that it ever had in RAM.
        cpu_seconds: CPU time so far, all threads.
    """

    name: str
    peak_bytes: int
    cpu_seconds: float


def peak_memory_bytes(pid: int | None = None) -> int:
    """Most memory that a process (this one) ever had in RAM; what it has now where only that
    is known."""
    import psutil

    try:
        status = Path(f"/proc/{pid or 'self'}/status").read_text("utf-8")
    except OSError:
        return int(psutil.Process(pid).memory_info().rss)
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    return int(found[1]) * 1024 if found else int(psutil.Process(pid).memory_info().rss)


def name_of(command: str) -> str | None:
    """What a process of Ray Serve is by its command line; None for the rest."""
    if found := SERVE_REPLICA.search(command):
        return f"{found['app']}: {found['deployment']}"
    return next((name for start, name in OWN_NAMES.items() if start in command), None)


def usages(root: int) -> Iterator[Usage]:
    """The Serve processes, and the decoders, below process `root`."""
    import psutil

    for name, process in _server_processes(root):
        # it may have ended between the listing and the look
        with contextlib.suppress(psutil.NoSuchProcess, OSError):
            times = process.cpu_times()
            yield Usage(name, peak_memory_bytes(process.pid), times.user + times.system)


def resident_bytes(root: int) -> int:
    """Memory in RAM of the Serve processes and decoders below `root`, now."""
    import psutil

    total = 0
    for _, process in _server_processes(root):
        with contextlib.suppress(psutil.NoSuchProcess):
            total += process.memory_info().rss
    return total


def _server_processes(root: int) -> Iterator[tuple[str, Any]]:
    import psutil

    for process in psutil.Process(root).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            command = " ".join(process.cmdline())
            name = name_of(command) or ("decoder" if "engine.audio.worker" in command else None)
            if name is not None:
                yield name, process


@dataclass(slots=True)
class CpuLoad:
    """Share of this machine's CPUs that was busy between `start` and `stop`."""

    _idle: float = 0.0
    _total: float = 0.0
    _since: float = field(default_factory=monotonic)

    def start(self) -> None:
        """Begin."""
        self._idle, self._total = _cpu_seconds()

    def stop(self) -> float:
        """Busy share, 0 to 1."""
        idle, total = _cpu_seconds()
        spent = total - self._total
        return 1 - (idle - self._idle) / spent if spent > 0 else 0.0


def gpu_state() -> dict[str, Any] | None:
    """Busy percentage and memory of the first GPU; None without one."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return None
    free, total = torch.cuda.mem_get_info()
    try:
        busy = int(torch.cuda.utilization())
    except (ModuleNotFoundError, RuntimeError):
        # the driver's own library answers that, and its Python binding may be absent
        return {"used_bytes": total - free}
    return {"used_bytes": total - free, "busy_percent": busy}


def _cpu_seconds() -> tuple[float, float]:
    import psutil

    times = psutil.cpu_times()
    return times.idle + getattr(times, "iowait", 0.0), sum(times)
