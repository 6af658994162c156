"""JSON bodies: what is large goes to a file, what is hostile is refused, what is small is exact."""

import base64
import json
import os
import tempfile
import tracemalloc
from collections.abc import Callable
from typing import Any, BinaryIO

import pytest

from engine.errors import EmotionError
from serve_app.bodies import MEMORY_BYTES
from serve_app.http.json_body import MAX_DOCUMENT_BYTES, PIECE_BYTES, read_json

LARGE = os.urandom(MEMORY_BYTES + 1)
MIDDLING = os.urandom(2**20 + 1)
SMALL = b"RIFF and so on"


def text_of(data: bytes) -> str:
    return base64.b64encode(data).decode()


def bytes_of(body: bytes | BinaryIO) -> bytes:
    if isinstance(body, bytes):
        return body
    with body:
        return body.read()


def in_memory(document: bytes) -> tuple[list[Any], bool, dict[str, Any]]:
    return read_json(document, 16)


def in_a_file(document: bytes) -> tuple[list[Any], bool, dict[str, Any]]:
    with tempfile.TemporaryFile() as file:
        file.write(document)
        file.flush()
        return read_json(file, 16)


both_ways = pytest.mark.parametrize("read", [in_memory, in_a_file])
Read = Callable[[bytes], tuple[list[Any], bool, dict[str, Any]]]


@both_ways
def test_small_and_large_audio_comes_out_as_it_went_in(read: Read) -> None:
    data = [SMALL, MIDDLING, LARGE, SMALL]
    document = {"inputs": [text_of(d) for d in data], "parameters": {"top_k": 3}}
    bodies, is_list, parameters = read(json.dumps(document).encode())
    assert [isinstance(body, bytes) for body in bodies] == [True, True, False, True]
    assert [bytes_of(body) for body in bodies] == data
    assert is_list
    assert parameters == {"top_k": 3}


@both_ways
def test_escaped_slashes_are_slashes(read: Read) -> None:
    text = text_of(b"\xff" * 3_000_001)  # nothing but slashes: each is two characters
    document = json.dumps({"inputs": text}).replace("/", "\\/").encode()
    [body], is_list, _ = read(document)
    assert bytes_of(body) == b"\xff" * 3_000_001
    assert not is_list


@both_ways
@pytest.mark.parametrize(
    "text",
    [
        text_of(MIDDLING)[:-1],
        text_of(MIDDLING)[:-4] + "A===",
        text_of(SMALL) + "==" + text_of(MIDDLING),
        "A" * (PIECE_BYTES - 2) + "==" + "AAAA",
        text_of(MIDDLING) + "\\n",
        text_of(MIDDLING) + "\\\\",
        text_of(MIDDLING[:-1]) + "\u00e9",
        "*",
    ],
    ids=[
        "cut",
        "padding",
        "padding within",
        "padding ends a piece",
        "new line",
        "backslash",
        "accent",
        "short",
    ],
)
def test_what_is_no_base64_is_refused(text: str, read: Read) -> None:
    with pytest.raises(EmotionError, match='"inputs" is not base64'):
        read(f'{{"inputs": "{text}"}}'.encode())


@both_ways
@pytest.mark.parametrize(
    "document",
    [
        b'{"inputs": [' + b'"a",' * MAX_DOCUMENT_BYTES + b'"a"]}',
        b'{"inputs": "AAAA", "parameters": {"labels": "' + b"* " * MAX_DOCUMENT_BYTES + b'"}}',
    ],
    ids=["many", "long"],
)
def test_a_document_that_is_no_audio_is_refused_before_it_is_parsed(
    document: bytes, read: Read
) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(EmotionError, match=f"limit is {MAX_DOCUMENT_BYTES} bytes") as caught:
            read(document)
        assert caught.value.error_type == "payload_too_large"
        assert tracemalloc.get_traced_memory()[1] < 3 * MAX_DOCUMENT_BYTES
    finally:
        tracemalloc.stop()


def test_a_large_file_is_never_whole_in_memory() -> None:
    document = json.dumps({"inputs": text_of(LARGE * 4)}).encode()
    with tempfile.TemporaryFile() as file:
        file.write(document)
        file.flush()
        tracemalloc.start()
        try:
            [body], _, _ = read_json(file, 16)
            # decoded pieces, and the part that a spooled file keeps until it leaves memory
            assert tracemalloc.get_traced_memory()[1] < 3 * MEMORY_BYTES
        finally:
            tracemalloc.stop()
    assert bytes_of(body) == LARGE * 4


@both_ways
def test_long_text_elsewhere_is_refused(read: Read) -> None:
    document = {"inputs": text_of(SMALL), "parameters": {"labels": "A" * 100_000}}
    with pytest.raises(EmotionError, match='"inputs" only'):
        read(json.dumps(document).encode())


def test_files_are_counted_before_they_are_decoded() -> None:
    document = {"inputs": [text_of(MIDDLING)] * 17}
    with pytest.raises(EmotionError, match="17 files; it may hold 1 to 16"):
        read_json(json.dumps(document).encode(), 16)
