"""JSON bodies: long base64 text is cut out of the document before it is parsed.

A parser would hold a large file several times over, and a hostile document a hundred times.
So the base64 goes piece by piece to where bodies are kept, and what is left must be small.
"""

import base64
import binascii
import mmap
import re
import secrets
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import orjson

from engine.errors import EmotionError
from serve_app.bodies import Body, close_bodies, settle, spool

LONG_TEXT = re.compile(rb'"([A-Za-z0-9+/=\\]{65536,})"')
"""A string that holds base64 and nothing else; some writers escape its slashes."""

MAX_DOCUMENT_BYTES = 2 * 2**20
"""What is left without long base64: sixteen files under 64 KiB, and parameters."""

PIECE_BYTES = 2**20
"""Base64 text that is decoded at once; a multiple of four."""

Buffer = bytes | mmap.mmap
Span = tuple[int, int]


def read_json(body: Body, max_files: int) -> tuple[list[Body], bool, dict[str, Any]]:
    """The files, whether they came as a list, and the parameters.

    Raises:
        EmotionError: `invalid_request`, or `payload_too_large` for what is left without the
            long base64.
    """
    with ExitStack() as held:
        buffer: Buffer = body if isinstance(body, bytes) else held.enter_context(_mapped(body))
        document, texts = _cut_out(buffer)
        inputs, parameters = _members(document)
        items = inputs if isinstance(inputs, list) else [inputs]
        check_count(len(items), max_files)
        bodies: list[Body] = []
        try:
            for item in items:
                span = texts.pop(item, None) if isinstance(item, str) else None
                bodies.append(_decode(item) if span is None else _decode_pieces(buffer, *span))
            if texts:
                raise EmotionError("invalid_request", 'Long text belongs into "inputs" only.')
        except BaseException:
            close_bodies(bodies)
            raise
        return bodies, isinstance(inputs, list), parameters


def check_count(count: int, limit: int) -> None:
    """Refuse no files and too many."""
    if not 1 <= count <= limit:
        raise EmotionError(
            "invalid_request", f"The request holds {count} files; it may hold 1 to {limit}."
        )


def _mapped(file: Any) -> mmap.mmap:
    return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _cut_out(buffer: Buffer) -> tuple[bytes, dict[str, Span]]:
    """The document with names in place of long texts, and where those texts are."""
    # nobody can write a name that stands for another's text
    secret = secrets.token_hex(16)
    rest, texts, end = bytearray(), dict[str, Span](), 0
    for first, last in [match.span(1) for match in LONG_TEXT.finditer(buffer)]:
        name = f"{secret}{len(texts)}"
        texts[name] = first, last
        _add(rest, buffer, end, first)
        rest += name.encode()
        end = last
    _add(rest, buffer, end, len(buffer))
    return bytes(rest), texts


def _add(rest: bytearray, buffer: Buffer, first: int, end: int) -> None:
    size = len(rest) + end - first
    if size > MAX_DOCUMENT_BYTES:
        message = (
            f"The JSON body has {size} bytes beside long base64 text, or more; the limit is "
            f"{MAX_DOCUMENT_BYTES} bytes."
        )
        raise EmotionError("payload_too_large", message)
    rest += buffer[first:end]


def _members(document: bytes) -> tuple[Any, dict[str, Any]]:
    """`inputs` and `parameters`."""
    try:
        value = orjson.loads(document)
    except orjson.JSONDecodeError:
        raise EmotionError("invalid_request", "The body is not JSON.") from None
    if not isinstance(value, dict) or "inputs" not in value:
        raise EmotionError("invalid_request", 'The JSON body must be an object with "inputs".')
    unknown = sorted(set(value) - {"inputs", "parameters"})
    if unknown:
        raise EmotionError("invalid_request", f"{unknown[0][:100]!r} in the JSON body is unknown.")
    parameters = value.get("parameters") or {}
    if not isinstance(parameters, dict):
        raise EmotionError("invalid_request", '"parameters" must be an object.')
    return value["inputs"], parameters


def _decode(text: object) -> bytes:
    if not isinstance(text, str):
        raise EmotionError("invalid_request", '"inputs" must be base64 text or a list of it.')
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise _not_base64() from None


def _decode_pieces(buffer: Buffer, first: int, end: int) -> Body:
    file = spool()
    padded = False
    try:
        for piece in _pieces(buffer, first, end):
            if padded and piece:
                raise binascii.Error
            file.write(base64.b64decode(piece, validate=True))
            padded = piece.endswith(b"=")
    except binascii.Error:
        file.close()
        raise _not_base64() from None
    except BaseException:
        file.close()
        raise
    return settle(file, file.tell())


def _pieces(buffer: Buffer, first: int, end: int) -> Iterator[bytes]:
    """Whole groups of four characters, without the escapes of slashes."""
    rest = b""
    for start in range(first, end, PIECE_BYTES):
        rest += buffer[start : min(start + PIECE_BYTES, end)]
        # an escape may lie across two pieces
        open_escape = rest.endswith(b"\\")
        text = rest.removesuffix(b"\\").replace(b"\\/", b"/")
        whole = len(text) // 4 * 4
        yield text[:whole]
        rest = text[whole:] + (b"\\" if open_escape else b"")
    yield rest


def _not_base64() -> EmotionError:
    return EmotionError("invalid_request", '"inputs" is not base64.')
