"""The API keys in force, and whether a presented one is among them.

Only keyed digests are kept: a key is in no attribute, representation, log line or error.
"""

import hmac
import logging
import os
import re
import secrets
from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b
from pathlib import Path
from time import monotonic

logger = logging.getLogger("ray.serve")

ENVIRONMENT = "E2V_API_KEYS"
CHECK_SECONDS = 1.0
MAX_FILE_BYTES = 2**20

_LINE = re.compile(r"\s*(?P<key>[^\s#]\S*+)?\s*(#.*)?")

FileState = tuple[int, int, int]


class KeysError(Exception):
    """A keys file that cannot be read at the start; the message is one line."""


class ApiKeys:
    """Keys of the environment and of a file; the file is read again when it changes."""

    def __init__(
        self,
        keys: Iterable[str] = (),
        file: Path | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """Begin with the keys as they are now.

        Args:
            keys: those that stay.
            file: one key a line; `#` begins a comment, after white space also behind a key.
            clock: seconds that only rise.

        Raises:
            KeysError: there is a file, and it cannot be read. Later it may: the keys stay.
        """
        self._secret = secrets.token_bytes(32)
        self._fixed = frozenset(self._digest(key.encode()) for key in keys)
        self._file = file
        self._clock = clock
        self._of_file: frozenset[bytes] = frozenset()
        self._state: FileState | None = None
        self._checked = clock()
        self._warned = False
        if file is not None:
            try:
                self._read(file)
            except (OSError, ValueError) as error:
                raise KeysError(f"api_keys_file cannot be read: {_reason(error)}") from None

    @property
    def required(self) -> bool:
        """Whether a caller needs a key: always with a file, even one that has become empty."""
        return self._file is not None or bool(self._fixed)

    def accept(self, presented: bytes) -> bool:
        """Whether it is a key in force; as long for a near miss as for a far one.

        The comparison is of digests of one length under a secret of this process, and with
        every key in turn, whatever the earlier ones gave.
        """
        self._refresh()
        candidate = self._digest(presented)
        found = False
        for known in self._fixed | self._of_file:
            found |= hmac.compare_digest(known, candidate)
        return found

    def _digest(self, key: bytes) -> bytes:
        return blake2b(key, key=self._secret, digest_size=32).digest()

    def _refresh(self) -> None:
        now = self._clock()
        if self._file is None or now - self._checked < CHECK_SECONDS:
            return
        self._checked = now
        try:
            if _state(os.stat(self._file)) != self._state:
                self._read(self._file)
            self._warned = False
        except (OSError, ValueError) as error:
            if not self._warned:
                logger.warning(
                    "api_keys_file cannot be read (%s): the keys read before stay in force",
                    _reason(error),
                )
            self._warned = True

    def _read(self, file: Path) -> None:
        with file.open("rb") as opened:
            state = _state(os.fstat(opened.fileno()))
            text = opened.read(MAX_FILE_BYTES + 1)
        if len(text) > MAX_FILE_BYTES:
            raise ValueError(f"it has more than {MAX_FILE_BYTES} bytes")
        self._of_file = frozenset(self._digest(key.encode()) for key in _parse(text))
        self._state = state
        if not self._of_file:
            logger.warning("api_keys_file holds no key: those of the environment alone are left")


def keys_from(file: str | None, environment: Mapping[str, str]) -> ApiKeys:
    """The keys of `api_keys_file` and of `E2V_API_KEYS` (separated by commas), together.

    Raises:
        KeysError: the file cannot be read.
    """
    listed = (key.strip() for key in environment.get(ENVIRONMENT, "").split(","))
    return ApiKeys([key for key in listed if key], Path(file) if file else None)


def _parse(text: bytes) -> list[str]:
    try:
        lines = text.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8 text") from None
    keys = []
    for number, line in enumerate(lines, 1):
        match = _LINE.fullmatch(line)
        if match is None:
            logger.warning("api_keys_file: line %d is not one key, it is left out", number)
        elif match["key"]:
            keys.append(match["key"])
    return keys


def _state(stat: os.stat_result) -> FileState:
    return stat.st_mtime_ns, stat.st_size, stat.st_ino


def _reason(error: Exception) -> str:
    """Never the path: this line goes to logs that callers of the service may see."""
    return (error.strerror or "no reason given") if isinstance(error, OSError) else str(error)
