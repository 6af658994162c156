"""Reading a request's audio: raw, JSON or multipart, with the size counted while it comes."""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

from fastapi import Request
from python_multipart.multipart import parse_options_header
from starlette.datastructures import FormData, Headers, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from engine.errors import EmotionError
from serve_app.bodies import MEMORY_BYTES, Body, close_bodies, settle, spool
from serve_app.http.json_body import check_count, read_json
from serve_app.parameters import merge_parameters

MAX_FIELDS = 100
"""Parameters of a form; there are fewer than that."""


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
    file = spool()
    try:
        async for chunk in stream:
            file.write(chunk)
    except BaseException:
        file.close()
        raise
    return settle(file, file.tell())


def _read_json(body: Body, query: list[tuple[str, str]], max_files: int) -> AudioRequest:
    bodies, is_list, parameters = read_json(body, max_files)
    try:
        return AudioRequest(bodies, is_list, merge_parameters(query, parameters.items()))
    except EmotionError:
        close_bodies(bodies)
        raise


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
    check_count(len(files), max_files)
    parameters = merge_parameters(query, fields)
    bodies = [settle(upload.file, upload.size or 0) for upload in files]
    return AudioRequest(bodies, len(bodies) > 1, parameters)
