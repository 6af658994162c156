"""Where encoded audio is kept while its request lasts: small in memory, large in a file."""

import tempfile
from collections.abc import Iterable
from typing import Any, BinaryIO

MEMORY_BYTES = 8 * 2**20
"""A body larger than this goes to an unlinked temporary file."""

Body = bytes | BinaryIO


def spool() -> Any:
    """A file object that leaves memory for a temporary file by itself.

    The file has no name from the start, so a killed process leaves nothing behind.
    """
    return tempfile.SpooledTemporaryFile(max_size=MEMORY_BYTES)


def settle(file: Any, size: int) -> Body:
    """Small bodies as bytes, large ones as the file that holds them, at its start."""
    file.seek(0)
    if size > MEMORY_BYTES:
        opened: BinaryIO = file
        return opened
    with file:
        return bytes(file.read())


def close_bodies(bodies: Iterable[Body]) -> None:
    """Let go of the temporary files."""
    for body in bodies:
        if not isinstance(body, bytes):
            body.close()
