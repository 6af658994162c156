"""The process that decodes: one job after the other, nothing else in it.

It imports neither torch nor ray, holds one socket and the body of its job, cannot write files
or leave core dumps, and ends when the pool's end of the socket closes. A file that crashes or
hangs the decoder costs this process alone.
"""

import contextlib
import os
import resource
import select
import signal
import socket
import sys
import threading
import time
from typing import Final

# Imported before the first job, so that no job waits for it.
import engine.audio.decode  # noqa: F401
from engine.audio import wire
from engine.audio.body import Body
from engine.audio.passes import read_passes
from engine.errors import EmotionError

MAX_DATA_BYTES: Final = 2 << 30
"""Private memory of a worker: four times what a pass may hold. A decoder that wants more fails."""

_PROGRESS_SHARE: Final = 0.2
"""A sign of life after this share of the time in which the pool gives up a silent worker."""

_CHECK_SECONDS: Final = 0.02


class _Aborted(Exception):
    """The pool no longer wants this job."""


class Worker:
    """Serves the pool at the other end of `sock` until that end closes."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._last_sent = self._last_check = 0.0
        self._progress_seconds = 1.0

    def serve(self) -> None:
        """Take jobs until the pool is gone."""
        self._send(wire.pack(wire.Kind.READY))
        while True:
            head, descriptors = self._receive_head()
            kind, size, _ = wire.HEAD.unpack(head)
            text = self._receive(size)
            # An ABORT may cross the end of its job: then there is nothing left to end.
            if kind == wire.Kind.JOB:
                self._run(text, descriptors[0])

    def _run(self, text: bytes, descriptor: int) -> None:
        try:
            answer = self._decode(text, descriptor)
        except EmotionError as error:
            answer = wire.failed_message(error)
        except _Aborted:
            answer = wire.done_message(())
        except MemoryError:
            message = "Decoding the audio takes more memory than the limit of 2 GiB."
            answer = wire.failed_message(EmotionError("audio_decode_failed", message))
        finally:
            os.close(descriptor)
        self._send(answer)

    def _decode(self, text: bytes, descriptor: int) -> bytes:
        request, limits = wire.read_job(text)
        self._progress_seconds = _PROGRESS_SHARE * limits.decode_stall_seconds
        self._last_sent = time.monotonic()
        reader = read_passes(Body.of_descriptor(descriptor), request, limits, self._on_block)
        for excerpt in reader:
            self._send(wire.pass_message(excerpt))
            self._sock.sendall(excerpt.samples.data)
        return wire.done_message(reader.reports)

    def _on_block(self) -> None:
        """Between two blocks: has the pool lost interest, does it need a sign of life?"""
        now = time.monotonic()
        if now - self._last_check > _CHECK_SECONDS:
            self._last_check = now
            if select.select([self._sock], [], [], 0)[0]:
                raise _Aborted
        if now - self._last_sent > self._progress_seconds:
            self._send(wire.pack(wire.Kind.PROGRESS))

    def _send(self, message: bytes) -> None:
        self._sock.sendall(message)
        self._last_sent = time.monotonic()

    def _receive_head(self) -> tuple[bytes, list[int]]:
        head, descriptors, _, _ = socket.recv_fds(self._sock, wire.HEAD.size, 1)
        if not head:
            raise SystemExit
        return head + self._receive(wire.HEAD.size - len(head)), descriptors

    def _receive(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self._sock.recv(size - len(data))
            if not more:
                raise SystemExit
            data += more
        return data


def confine() -> None:
    """Take from this process what decoding does not need."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_DATA, (MAX_DATA_BYTES, MAX_DATA_BYTES))


def end_with_pool(sock: socket.socket) -> None:
    """End this process when the pool's process is gone, even if a decoder hangs."""
    poll = select.poll()
    poll.register(sock, select.POLLHUP)
    poll.poll()
    os._exit(0)


def main() -> None:
    """Run as `python -m engine.audio.worker DESCRIPTOR`."""
    sock = socket.socket(fileno=int(sys.argv[1]))
    confine()
    threading.Thread(target=end_with_pool, args=(sock,), daemon=True).start()
    # The pool may go at any moment: nothing is wrong then.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        Worker(sock).serve()


if __name__ == "__main__":
    main()
