"""Reading a request's audio: raw, JSON or multipart, with the size counted while it comes."""

import base64
import binascii
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import orjson
from fastapi import Request
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from engine.errors import EmotionError
from serve_app.parameters import merge_parameters

MEMORY_BYTES = 8 * 2**20
"""A body larger than this goes to an unlinked temporary file."""

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


async def read_audio_request(request: Request, max_body_bytes: int, max_files: int) -> AudioRequest:
    """Read the request by its content type; anything else than JSON or a form is raw audio.

    Raises:
        EmotionError: `payload_too_large`, `empty_body` or `invalid_request`.
    """
    _check_declared(request, max_body_bytes)
    query = request.query_params.multi_items()
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    stream = _counted(request, max_body_bytes)
    if kind == "multipart/form-data":
        return await _read_form(request, stream, query, max_files)
    body = await _collect(stream)
    if kind == "application/json" or kind.endswith("+json"):
        return _read_json(body, query, max_files)
    return AudioRequest([body], False, merge_parameters(query))


def _check_declared(request: Request, limit: int) -> None:
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limit:
        raise _too_large(limit, f"{int(declared)} bytes")


def _too_large(limit: int, size: str) -> EmotionError:
    return EmotionError("payload_too_large", f"the body has {size}, the limit is {limit} bytes")


async def _counted(request: Request, limit: int) -> AsyncGenerator[bytes]:
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > limit:
            raise _too_large(limit, f"more than {limit} bytes")
        yield chunk


async def _collect(stream: AsyncIterator[bytes]) -> Body:
    # the file has no name from the start, so a killed process leaves nothing behind
    file = tempfile.SpooledTemporaryFile(max_size=MEMORY_BYTES)  # noqa: SIM115
    size = 0
    async for chunk in stream:
        file.write(chunk)
        size += len(chunk)
    return _settle(file, size)


def _settle(file: Any, size: int) -> Body:
    if size > MEMORY_BYTES:
        file.rollover()
        file.seek(0)
        opened: BinaryIO = file._file
        return opened
    file.seek(0)
    with file:
        return bytes(file.read())


def _read_json(body: Body, query: list[tuple[str, str]], max_files: int) -> AudioRequest:
    try:
        value = orjson.loads(body if isinstance(body, bytes) else body.read())
    except orjson.JSONDecodeError:
        raise EmotionError("invalid_request", "the body is not JSON") from None
    if not isinstance(value, dict) or "inputs" not in value:
        raise EmotionError("invalid_request", 'the JSON body must be an object with "inputs"')
    unknown = sorted(set(value) - {"inputs", "parameters"})
    if unknown:
        raise EmotionError("invalid_request", f"the JSON body's {unknown[0]!r} is unknown")
    parameters = value.get("parameters") or {}
    if not isinstance(parameters, dict):
        raise EmotionError("invalid_request", '"parameters" must be an object')
    inputs = value["inputs"]
    items = inputs if isinstance(inputs, list) else [inputs]
    _check_count(len(items), max_files)
    bodies: list[Body] = [_decode_base64(item) for item in items]
    return AudioRequest(
        bodies, isinstance(inputs, list), merge_parameters(query, parameters.items())
    )


def _decode_base64(text: object) -> bytes:
    if not isinstance(text, str):
        raise EmotionError("invalid_request", '"inputs" must be base64 text or a list of it')
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise EmotionError("invalid_request", '"inputs" is not base64') from None


def _check_count(count: int, limit: int) -> None:
    if not 1 <= count <= limit:
        raise EmotionError(
            "invalid_request", f"the request holds {count} files, it may hold 1 to {limit}"
        )


class _FormParser(MultiPartParser):
    spool_max_size = MEMORY_BYTES


async def _read_form(
    request: Request, stream: AsyncGenerator[bytes], query: list[tuple[str, str]], max_files: int
) -> AudioRequest:
    parser = _FormParser(request.headers, stream, max_files=max_files + 1, max_fields=100)
    try:
        form = await parser.parse()
    except (MultiPartException, KeyError, UnicodeError):
        raise EmotionError("invalid_request", "the multipart body is damaged") from None
    bodies: list[Body] = []
    fields: list[tuple[str, str]] = []
    for name, value in form.multi_items():
        if isinstance(value, UploadFile):
            if name != "file":
                raise EmotionError("invalid_request", f"the file field {name!r} must be 'file'")
            bodies.append(_settle(value.file, value.size or 0))
        else:
            fields.append((name, value))
    _check_count(len(bodies), max_files)
    return AudioRequest(bodies, len(bodies) > 1, merge_parameters(query, fields))
