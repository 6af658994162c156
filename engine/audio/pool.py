"""A bounded pool of decoding processes, for asyncio.

    pool = DecodePool(workers=2, limits=DecodeLimits())
    pool.start()
    async with await pool.open(body, DecodeRequest()) as job:
        async for excerpt in job:
            ...
        job.reports
    await pool.close()

Passes come one by one: the worker waits while the reader does, so a long file needs no more
memory than a short one. While it waits, another worker takes its place at the processors. One
that dies, hangs or loses its reader is replaced alone.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from types import TracebackType
from typing import BinaryIO, Final, Self, cast

from engine.audio import wire
from engine.audio.body import Body
from engine.audio.process import WorkerLost, WorkerProcess
from engine.audio.sniff import known_kind
from engine.audio.types import DecodeLimits, DecodeRequest, Pass, SourceReport
from engine.errors import EmotionError

_START_TRIES: Final = 3

GROW_SECONDS: Final = 0.1
"""After such a wait for a worker, one that has waited as long for its reader is made up for."""

SLOW_SECONDS: Final = 0.5
"""So is one that has been decoding for so long, which then has to give way to the others."""

_MOST_WORKERS: Final = 16
"""Processes of a small pool at most; a large one has at most three times its size."""

ABORT_SECONDS: Final = 0.5
"""How long an unwanted job may take to stop before its worker is killed."""


class DecodePool:
    """Worker processes and the jobs that wait for them, in order. For one event loop."""

    def __init__(self, workers: int | None = None, limits: DecodeLimits | None = None) -> None:
        self.limits = limits or DecodeLimits()
        self._size = workers or max(2, os.cpu_count() or 1)
        self._most = max(_MOST_WORKERS, 3 * self._size)
        self._waiting = 0
        self._timer: asyncio.TimerHandle | None = None
        self._busy: dict[WorkerProcess, tuple[bool, float]] = {}
        self._idle: asyncio.Queue[WorkerProcess] = asyncio.Queue()
        self.workers: set[WorkerProcess] = set()
        self._reclaiming: set[asyncio.Task[None]] = set()
        self._closed = False

    def start(self) -> None:
        """Start all processes; returns before their imports are done (`wait_ready`)."""
        while len(self.workers) < self._size:
            self._add_worker()

    async def wait_ready(self) -> None:
        """Until every process has done its imports."""
        await asyncio.gather(*(worker.wait_ready() for worker in self.workers))

    async def close(self) -> None:
        """Kill all processes; open jobs fail."""
        self._closed = True
        for task in self._reclaiming:
            task.cancel()
        for worker in self.workers:
            worker.kill()
            # Wakes those who wait for a worker, one after the other.
            self._idle.put_nowait(worker)
        self.workers.clear()

    async def open(self, body: bytes | BinaryIO, request: DecodeRequest) -> "DecodeJob":
        """Start decoding as soon as a worker is free.

        `body` is the bytes, or a file with a descriptor (its position does not matter; it may
        be closed once this returns).

        Raises:
            EmotionError: what is no audio, where there is a queue; `internal` where no worker
                process can be started, `not_ready` once closed.
        """
        file = _memory_file(body) if isinstance(body, bytes) else body
        try:
            if self._idle.empty() and request.pcm is None:
                # what is no audio need not wait to be told so
                await asyncio.to_thread(known_kind, Body.of_descriptor(file.fileno()))
            # those that died idle, all of them perhaps, are not failures to start
            for _ in range(_START_TRIES + len(self.workers)):
                worker = await self._free_worker()
                if self._closed:
                    self.put_back(worker)
                    raise EmotionError("not_ready", "The audio decoder is shutting down.")
                if await self._submitted(worker, file.fileno(), request):
                    return DecodeJob(self, worker)
        finally:
            if file is not body:
                file.close()
        raise EmotionError("internal", "The audio decoder could not be started.")

    async def _submitted(
        self, worker: WorkerProcess, descriptor: int, request: DecodeRequest
    ) -> bool:
        """Whether the worker took the job; one that died while idle is replaced."""
        try:
            await worker.wait_ready()
            worker.submit(descriptor, request, self.limits)
        except (WorkerLost, TimeoutError):
            self.replace(worker)
            return False
        except asyncio.CancelledError:
            self.put_back(worker)
            raise
        return True

    async def _free_worker(self) -> WorkerProcess:
        if self._idle.empty() and not self._waiting:
            self._watch()
        self._waiting += 1
        try:
            return await self._idle.get()
        finally:
            self._waiting -= 1

    def _watch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(GROW_SECONDS, self._grow)

    def _grow(self) -> None:
        """A long file holds its worker while the model hears it: others shall not wait for that."""
        if self._closed or not self._waiting:
            return
        self._watch()
        aside = sum(self._is_aside(worker) for worker in self._busy)
        if len(self.workers) - aside < self._size and len(self.workers) < self._most:
            self._add_worker()

    def _is_aside(self, worker: WorkerProcess) -> bool:
        decoding, since = self._busy[worker]
        seconds = time.monotonic() - since
        if decoding and seconds > SLOW_SECONDS:
            worker.give_way()
            return True
        return not decoding and seconds > GROW_SECONDS

    def note(self, worker: WorkerProcess, decoding: bool) -> None:
        """The worker's job decodes its next pass from now on, or waits to be asked for it."""
        self._busy[worker] = decoding, time.monotonic()

    def put_back(self, worker: WorkerProcess) -> None:
        """A worker has done its job."""
        self._busy.pop(worker, None)
        too_many = len(self.workers) > self._size and not self._waiting
        if not self._closed and (too_many or worker.gives_way):
            self.replace(worker)
        else:
            self._idle.put_nowait(worker)

    def replace(self, worker: WorkerProcess) -> None:
        """Kill a worker and start another in its place, unless there are enough."""
        worker.kill()
        self.workers.discard(worker)
        self._busy.pop(worker, None)
        if not self._closed and len(self.workers) < self._size:
            self._add_worker()

    def reclaim(self, worker: WorkerProcess) -> None:
        """Free a worker from a job that nobody wants, in the background."""
        task = asyncio.get_running_loop().create_task(self._reclaim(worker))
        self._reclaiming.add(task)
        task.add_done_callback(self._reclaiming.discard)

    async def _reclaim(self, worker: WorkerProcess) -> None:
        try:
            async with asyncio.timeout(ABORT_SECONDS):
                worker.abort()
                kind = wire.Kind.PASS
                while kind not in (wire.Kind.DONE, wire.Kind.FAILED):
                    kind, _, _ = await worker.receive(ABORT_SECONDS)
        except (WorkerLost, TimeoutError):
            self.replace(worker)
        else:
            self.put_back(worker)

    def _add_worker(self) -> None:
        worker = WorkerProcess()
        self.workers.add(worker)
        self._idle.put_nowait(worker)


class DecodeJob:
    """An async iterator of `Pass`; `reports` (one per stream) is there once it has ended.

    Leave it by its end, an error, `aclose` or `async with`: until then it occupies a worker.
    """

    def __init__(self, pool: DecodePool, worker: WorkerProcess) -> None:
        self._pool = pool
        self._worker: WorkerProcess | None = worker
        self.worker_pid = worker.pid
        self.reports: tuple[SourceReport, ...] = ()

    @property
    def report(self) -> SourceReport:
        """The report of the first (or only) stream."""
        return self.reports[0]

    def __aiter__(self) -> AsyncIterator[Pass]:
        return self

    async def __anext__(self) -> Pass:
        """The next pass.

        Raises:
            EmotionError: whatever is wrong with the file; `audio_decode_failed` also when the
                decoder crashed, or gave no samples for `decode_stall_seconds`.
        """
        if self._worker is None:
            raise StopAsyncIteration
        self._pool.note(self._worker, decoding=True)
        try:
            excerpt = await self._next(self._worker)
        except TimeoutError as error:
            self._lose()
            seconds = self._pool.limits.decode_stall_seconds
            message = f"The decoder gave no samples for {seconds:g} s."
            raise EmotionError("audio_decode_failed", message) from error
        except WorkerLost as error:
            self._lose()
            message = "The decoder crashed on this file."
            raise EmotionError("audio_decode_failed", message) from error
        self._pool.note(self._worker, decoding=False)
        return excerpt

    async def _next(self, worker: WorkerProcess) -> Pass:
        while True:
            kind, text, samples = await worker.receive(self._pool.limits.decode_stall_seconds)
            if kind == wire.Kind.PASS and samples is not None:
                return wire.read_pass(text, samples)
            if kind in (wire.Kind.DONE, wire.Kind.FAILED):
                self._worker = None
                self._pool.put_back(worker)
            if kind == wire.Kind.DONE:
                self.reports = wire.read_reports(text)
                raise StopAsyncIteration
            if kind == wire.Kind.FAILED:
                raise wire.read_error(text)

    def _lose(self) -> None:
        if self._worker is not None:
            self._pool.replace(self._worker)
            self._worker = None

    async def aclose(self) -> None:
        """Give the job up, wherever it is; the worker is free again within half a second."""
        if self._worker is not None:
            self._pool.reclaim(self._worker)
            self._worker = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()


def _memory_file(body: bytes) -> BinaryIO:
    """The bytes as a file without a name, whose descriptor can be passed on."""
    file = cast(BinaryIO, os.fdopen(os.memfd_create("body"), "w+b", buffering=0))
    # A write to memory takes 2 GiB at most in one go.
    rest = memoryview(body)
    while rest:
        rest = rest[file.write(rest) :]
    return file
