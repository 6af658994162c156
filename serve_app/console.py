"""The terminal for this program's own lines; what libraries write to stderr goes to a file."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO


class Console:
    """Log lines on stderr, each begun with the program's name."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def say(self, text: str) -> None:
        """Write one line."""
        print(f"e2v: {text}", file=self._stream, flush=True)


@contextmanager
def own_console(others: Path) -> Iterator[Console]:
    """Keep stderr for the `Console`; file descriptor 2 is the file `others` meanwhile.

    Ray's C++ side and its child processes write to the descriptor, past Python's `sys.stderr`.
    """
    saved = os.dup(2)
    target = os.open(others, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(target, 2)
    os.close(target)
    try:
        with os.fdopen(os.dup(saved), "w") as stream:
            yield Console(stream)
    finally:
        os.dup2(saved, 2)
        os.close(saved)
