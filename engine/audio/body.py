"""The bytes of an upload as the decoder reads them: seekable, read-only, any sub-range."""

import os
from collections.abc import Callable
from typing import BinaryIO, Self

ReadAt = Callable[[int, int], bytes]
"""(offset, length) → at most that many bytes."""


class Body:
    """A byte range with the `read`, `seek`, `tell` that FFmpeg calls.

    Positions past the end are allowed, as in a file: broken containers point there.
    It has no name, so no file ending can sway what the content is taken for.
    """

    def __init__(self, read_at: ReadAt, offset: int, size: int) -> None:
        self._read_at = read_at
        self._offset = offset
        self._position = 0
        self.size = size

    @classmethod
    def of_bytes(cls, data: bytes | memoryview) -> Self:
        """The body that `data` is."""
        return cls(lambda offset, length: bytes(data[offset : offset + length]), 0, len(data))

    @classmethod
    def of_descriptor(cls, descriptor: int) -> Self:
        """The body in an open file; its own position is neither used nor moved."""
        size = os.fstat(descriptor).st_size
        return cls(lambda offset, length: os.pread(descriptor, length, offset), 0, size)

    @classmethod
    def of_file(cls, file: BinaryIO) -> Self:
        """The body in a seekable binary file object, from its first byte."""

        def read_at(offset: int, length: int) -> bytes:
            file.seek(offset)
            return file.read(length)

        return cls(read_at, 0, file.seek(0, os.SEEK_END))

    def part(self, offset: int) -> "Body":
        """The rest of the body from `offset`, as a body of its own."""
        return Body(self._read_at, self._offset + offset, max(0, self.size - offset))

    def at(self, offset: int, length: int) -> bytes:
        """At most `length` bytes from `offset`, whatever the position; none outside of the body."""
        length = min(length, self.size - offset)
        return self._read_at(self._offset + offset, length) if offset >= 0 < length else b""

    def read(self, length: int = -1) -> bytes:
        """The next bytes; empty at the end."""
        data = self.at(self._position, self.size if length < 0 else length)
        self._position += len(data)
        return data

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move, as `io.IOBase.seek`."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self.size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def tell(self) -> int:
        """The position in bytes."""
        return self._position
