"""`e2v serve` for tests: in a process and a session of its own."""

import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from cluster.chaos.server import free_port

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "serve_app" / "assets" / "sample.wav"
E2V = [sys.executable, "-m", "client.cli"]
STOP_SECONDS = 30


@dataclass
class Server:
    """A running `e2v serve` in a session of its own."""

    process: subprocess.Popen[str]
    url: str
    log: Path
    ready: list[str] = field(default_factory=list)

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()

    def stop(self, number: int) -> int:
        """Send a signal, as the terminal does to the whole group; the exit code."""
        os.killpg(self.process.pid, number)
        return self.process.wait(STOP_SECONDS)

    def family(self) -> list[psutil.Process]:
        """The launcher and everything below it."""
        launcher = psutil.Process(self.process.pid)
        return [launcher, *launcher.children(recursive=True)]


def session_members(session: int) -> list[str]:
    """Command lines of the processes of a session."""
    found = []
    for process in psutil.process_iter(["pid", "cmdline"]):
        try:
            if os.getsid(process.pid) == session:
                found.append(" ".join(process.info["cmdline"]))
        except ProcessLookupError:
            continue
    return found


def environment() -> dict[str, str]:
    """As of a fresh shell: other tests of this run have a Ray of their own."""
    return {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}


def spawn(log: Path, *flags: str, **variables: str) -> subprocess.Popen[str]:
    """`e2v serve` with flags, its messages in `log`."""
    with log.open("w") as errors:
        return subprocess.Popen(
            [*E2V, "serve", *flags],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            cwd=ROOT,
            env={**environment(), **variables},
            start_new_session=True,
        )


def start(log: Path, *flags: str, **variables: str) -> Server:
    """A server that is ready; variables are added to its environment."""
    port = free_port()
    process = spawn(log, "--port", str(port), *flags, **variables)
    server = Server(process, f"http://127.0.0.1:{port}", log)
    assert process.stdout is not None
    for line in process.stdout:
        server.ready.append(line.rstrip("\n"))
        if line.startswith("curl "):
            return server
    pytest.fail(f"e2v serve ended with {process.wait()}: {log.read_text()}")
