"""One worker process as the pool sees it: start, talk, end."""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Final

import numpy as np

from engine.audio import wire
from engine.audio.types import DecodeLimits, DecodeRequest, Samples

logger = logging.getLogger(__name__)

START_SECONDS: Final = 60.0
"""Longest wait for a new worker's imports, on a machine that is busy with other things."""

_SETTINGS: Final = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    # Arrays of some hundred kB are otherwise mapped anew, page by page, for every clip: measured
    # 3.9 against 2.8 ms of processor time for 10 s of WAV.
    "MALLOC_MMAP_THRESHOLD_": str(8 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(16 << 20),
}

_LAST_PRIORITY: Final = 15

_SOCKET_BYTES: Final = 1 << 20

_ROOT: Final = str(Path(__file__).parents[2])


class WorkerLost(Exception):
    """The worker ended, or sent what no worker sends."""


class WorkerProcess:
    """A worker process and the socket to it. Reads are for one task at a time."""

    def __init__(self) -> None:
        self._sock, theirs = socket.socketpair()
        with theirs:
            for end in (self._sock, theirs):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BYTES)
            self._sock.setblocking(False)
            self._process = subprocess.Popen(
                [sys.executable, "-m", "engine.audio.worker", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=_environment(),
            )
        self.gives_way = False
        self._ready = self._within_message = self._killed = self._died = False
        self._readable: asyncio.Future[None] | None = None
        self._starting = asyncio.Lock()

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    async def wait_ready(self) -> None:
        """Until its imports are done.

        Raises:
            WorkerLost: it ended, or took longer than `START_SECONDS`.
        """
        async with self._starting:
            if self._ready:
                return
            kind, _, _ = await self.receive(START_SECONDS)
            if kind != wire.Kind.READY:
                raise WorkerLost
            self._ready = True

    def submit(self, descriptor: int, request: DecodeRequest, limits: DecodeLimits) -> None:
        """Hand over a job; the descriptor is duplicated into the worker.

        Raises:
            WorkerLost: it is gone.
        """
        # Small, and the worker is waiting for it: this cannot block.
        self._send(wire.job_message(request, limits), [descriptor])

    def abort(self) -> None:
        """Ask the worker to end its job early; it answers with the job's last message.

        Raises:
            WorkerLost: it is gone, or a message of it was read in part only.
        """
        if self._within_message:
            raise WorkerLost
        self._send(wire.pack(wire.Kind.ABORT), [])

    def _send(self, message: bytes, descriptors: list[int]) -> None:
        try:
            socket.send_fds(self._sock, [message], descriptors)
        except OSError as error:
            raise WorkerLost from error

    def give_way(self) -> None:
        """Let all other processes go first; there is no way back, so this is its last job."""
        if not self.gives_way:
            self.gives_way = True
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.setpriority(os.PRIO_PROCESS, self.pid, _LAST_PRIORITY)

    async def receive(self, wait_seconds: float) -> tuple[wire.Kind, bytes, Samples | None]:
        """The next message; `wait_seconds` is the longest wait for any part of it.

        Raises:
            TimeoutError: nothing came for so long.
            WorkerLost: the worker is gone.
        """
        message = await self._read_message(wait_seconds)
        self._within_message = False
        return message

    async def _read_message(self, wait_seconds: float) -> tuple[wire.Kind, bytes, Samples | None]:
        head = bytearray(wire.HEAD.size)
        await self._fill(memoryview(head), wait_seconds)
        kind, json_bytes, sample_bytes = wire.HEAD.unpack(head)
        if json_bytes > wire.MAX_JSON_BYTES or sample_bytes > wire.MAX_SAMPLE_BYTES:
            raise WorkerLost
        text = bytearray(json_bytes)
        await self._fill(memoryview(text), wait_seconds)
        if kind != wire.Kind.PASS:
            return wire.Kind(kind), bytes(text), None
        samples = wire.empty_samples(text, sample_bytes)
        await self._fill(samples.view(np.uint8).data, wait_seconds)
        return wire.Kind(kind), bytes(text), samples

    async def _fill(self, room: memoryview, wait_seconds: float) -> None:
        while room:
            try:
                count = self._sock.recv_into(room)
            except BlockingIOError:
                await self._wait_readable(wait_seconds)
                continue
            except OSError as error:
                raise WorkerLost from error
            if not count:
                self._died = not self._killed
                raise WorkerLost
            self._within_message = True
            room = room[count:]

    async def _wait_readable(self, wait_seconds: float) -> None:
        # Not `loop.sock_recv_into`: cancelled at the wrong moment it loses what it has read.
        loop = asyncio.get_running_loop()
        self._readable = loop.create_future()
        loop.add_reader(self._sock, _finish, self._readable)
        try:
            async with asyncio.timeout(wait_seconds):
                await self._readable
        finally:
            loop.remove_reader(self._sock)
            self._readable = None
            if self._killed:
                self._sock.close()

    def kill(self) -> None:
        """End the process at once, hung or not; whoever reads from it gets `WorkerLost`."""
        self._killed = True
        self._process.kill()
        # A socket that the loop watches must not be closed under it: its reader closes it.
        if self._readable is None:
            self._sock.close()
        else:
            _finish(self._readable)
        # Collected by a thread: a process can take a while to give back its memory.
        threading.Thread(target=self._collect, daemon=True).start()

    def _collect(self) -> None:
        """Wait for its end, and tell of one that was not of our making."""
        code = self._process.wait()
        if self._died:
            cause = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            logger.warning("a decoder process has ended: %s", cause)


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _environment() -> dict[str, str]:
    """The parent's environment, with the package importable."""
    path = os.pathsep.join(filter(None, [_ROOT, os.environ.get("PYTHONPATH")]))
    return {**os.environ, **_SETTINGS, "PYTHONPATH": path}
