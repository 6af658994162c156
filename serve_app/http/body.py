"""Reading a request's audio: raw, JSON or multipart, with the size counted while it comes."""

import asyncio
import base64
import binascii
import re
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, BinaryIO

import orjson
from fastapi import Request
from python_multipart.multipart import parse_options_header
from starlette.datastructures import FormData, Headers, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from engine.errors import EmotionError
from serve_app.parameters import merge_parameters

MEMORY_BYTES = 8 * 2**20
"""A body larger than this goes to an unlinked temporary file."""

MAX_FIELDS = 100
"""Parameters of a form; there are fewer than that."""

Body = bytes | BinaryIO


@dataclass(frozen=True, slots=True)
class AudioRequest:
    """Audio files and parameters of one request.

    Attributes:
        bodies: encoded audio, one for each file.
        is_list: the caller sent a list, or several files, and gets a list back.
        parameters: names and values as the caller wrote them.
    """

    bodies: list[Body]
    is_list: bool
    parameters: dict[str, Any]


async def read_audio_request(
    request: Request, max_body_bytes: int, max_files: int, cover: Callable[[int], None]
) -> AudioRequest:
    """Read the request by its content type; anything else than JSON or a form is raw audio.

    `cover(n)` is told how many bytes have come in, and may refuse them.

    Raises:
        EmotionError: `payload_too_large`, `empty_body` or `invalid_request`.
    """
    _check_declared(request, max_body_bytes)
    query = request.query_params.multi_items()
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    stream = _counted(request, max_body_bytes, cover)
    if kind == "multipart/form-data":
        return await _read_form(request, stream, query, max_files)
    body = await _collect(stream)
    if kind == "application/json" or kind.endswith("+json"):
        if isinstance(body, bytes):
            return _read_json(body, query, max_files)
        with body:
            # as long as it takes to parse so much, nobody else would be served
            return await asyncio.to_thread(_read_json, body, query, max_files)
    return AudioRequest([body], False, merge_parameters(query))


def declared_bytes(request: Request) -> int:
    """Content-Length, or 0 where there is none; only a hint, for it may lie."""
    declared = request.headers.get("content-length", "")
    # what else `isdigit` takes for a digit, `int` may not
    digits = declared.isascii() and declared.isdigit() and len(declared) < 20
    return int(declared) if digits else 0


def close_bodies(audio: AudioRequest) -> None:
    """Let go of the temporary files."""
    for body in audio.bodies:
        if not isinstance(body, bytes):
            body.close()


def _check_declared(request: Request, limit: int) -> None:
    declared = declared_bytes(request)
    if declared > limit:
        raise _too_large(limit, f"{declared} bytes")


def _too_large(limit: int, size: str) -> EmotionError:
    return EmotionError("payload_too_large", f"The body has {size}; the limit is {limit} bytes.")


async def _counted(
    request: Request, limit: int, cover: Callable[[int], None]
) -> AsyncGenerator[bytes]:
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > limit:
            raise _too_large(limit, f"more than {limit} bytes")
        cover(size)
        yield chunk


async def _collect(stream: AsyncIterator[bytes]) -> Body:
    # the file has no name from the start, so a killed process leaves nothing behind
    file = tempfile.SpooledTemporaryFile(max_size=MEMORY_BYTES)  # noqa: SIM115
    try:
        async for chunk in stream:
            file.write(chunk)
    except BaseException:
        file.close()
        raise
    return _settle(file, file.tell())


def _settle(file: Any, size: int) -> Body:
    """Small bodies as bytes, large ones as the file that holds them."""
    file.seek(0)
    if size > MEMORY_BYTES:
        opened: BinaryIO = file
        return opened
    with file:
        return bytes(file.read())


def _read_json(body: Body, query: list[tuple[str, str]], max_files: int) -> AudioRequest:
    try:
        value = orjson.loads(body if isinstance(body, bytes) else body.read())
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
    inputs = value["inputs"]
    items = inputs if isinstance(inputs, list) else [inputs]
    _check_count(len(items), max_files)
    bodies: list[Body] = [_decode_base64(item) for item in items]
    return AudioRequest(
        bodies, isinstance(inputs, list), merge_parameters(query, parameters.items())
    )


def _decode_base64(text: object) -> bytes:
    if not isinstance(text, str):
        raise EmotionError("invalid_request", '"inputs" must be base64 text or a list of it.')
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise EmotionError("invalid_request", '"inputs" is not base64.') from None


def _check_count(count: int, limit: int) -> None:
    if not 1 <= count <= limit:
        raise EmotionError(
            "invalid_request", f"The request holds {count} files; it may hold 1 to {limit}."
        )


class _FormParser(MultiPartParser):
    spool_max_size = MEMORY_BYTES
    complete = False

    def on_end(self) -> None:
        """The closing boundary has come."""
        self.complete = True


async def _read_form(
    request: Request, stream: AsyncGenerator[bytes], query: list[tuple[str, str]], max_files: int
) -> AudioRequest:
    async def whole() -> AsyncGenerator[bytes]:
        async for chunk in stream:
            yield chunk
        if not parser.complete:
            # said here, the parser also closes the file of the part that was cut
            raise MultiPartException("cut")

    parser = _FormParser(
        _form_headers(request), whole(), max_files=max_files, max_fields=MAX_FIELDS
    )
    try:
        form = await parser.parse()
    except (MultiPartException, KeyError, ValueError):
        message = (
            f"The multipart body is damaged, or holds more than {max_files} files, "
            f"{MAX_FIELDS} fields or 1 MiB in a field."
        )
        raise EmotionError("invalid_request", message) from None
    try:
        return _form_request(form, query, max_files)
    except EmotionError:
        await form.close()
        raise


def _form_headers(request: Request) -> Headers:
    """The content type with its boundary alone.

    A charset of the caller's choice is no part of the standard (RFC 7578, 5.1.2), and some of
    Python's give what no JSON can hold.
    """
    _, options = parse_options_header(request.headers["content-type"])
    value = b"multipart/form-data"
    if boundary := options.get(b"boundary"):
        value += b'; boundary="' + re.sub(rb'(["\\])', rb"\\\1", boundary) + b'"'
    return Headers(raw=[(b"content-type", value)])


def _form_request(form: FormData, query: list[tuple[str, str]], max_files: int) -> AudioRequest:
    files: list[UploadFile] = []
    fields: list[tuple[str, str]] = []
    for name, value in form.multi_items():
        if not isinstance(value, UploadFile):
            fields.append((name, value))
        elif name == "file":
            files.append(value)
        else:
            message = f"The file field {name[:100]!r} must be 'file'."
            raise EmotionError("invalid_request", message)
    _check_count(len(files), max_files)
    parameters = merge_parameters(query, fields)
    bodies = [_settle(upload.file, upload.size or 0) for upload in files]
    return AudioRequest(bodies, len(bodies) > 1, parameters)
