"""Messages between the pool and its workers, over one socket pair each.

A message is a fixed head (kind, bytes of JSON, bytes of samples), the JSON, the samples.
JSON and never pickle: a worker that a hostile file has taken over must not gain its parent.
"""

import json
import struct
from dataclasses import asdict
from enum import IntEnum
from typing import Any, Final

import numpy as np

from engine.audio.types import (
    DecodeLimits,
    DecodeRequest,
    Pass,
    PcmFormat,
    Samples,
    SourceReport,
)
from engine.errors import EmotionError

HEAD: Final = struct.Struct("!BII")

MAX_JSON_BYTES: Final = 1 << 20
MAX_SAMPLE_BYTES: Final = 512 << 20
"""Larger messages than these come from a worker that is no longer itself."""


class Kind(IntEnum):
    """READY, PASS, PROGRESS, DONE, FAILED come from a worker; JOB and ABORT go to it."""

    READY = 1
    PASS = 2
    PROGRESS = 3
    DONE = 4
    FAILED = 5
    JOB = 6
    ABORT = 7


def pack(kind: Kind, content: Any = None, samples: int = 0) -> bytes:
    """Head and JSON of a message that `samples` bytes of samples follow."""
    text = b"" if content is None else json.dumps(content).encode()
    return HEAD.pack(kind, len(text), samples) + text


def job_message(request: DecodeRequest, limits: DecodeLimits) -> bytes:
    """A JOB; the descriptor of the body travels beside it."""
    return pack(Kind.JOB, {"request": asdict(request), "limits": asdict(limits)})


def read_job(text: bytes) -> tuple[DecodeRequest, DecodeLimits]:
    """What `job_message` wrote."""
    content = json.loads(text)
    fields = content["request"]
    fields["pcm"] = PcmFormat(**fields["pcm"]) if fields["pcm"] else None
    return DecodeRequest(**fields), DecodeLimits(**content["limits"])


def pass_message(excerpt: Pass) -> bytes:
    """A PASS, without its samples."""
    content = {
        "index": excerpt.index,
        "channel": excerpt.channel,
        "start": excerpt.start,
        "sample_rate": excerpt.sample_rate,
        "dtype": excerpt.samples.dtype.name,
    }
    return pack(Kind.PASS, content, excerpt.samples.nbytes)


def empty_samples(text: bytes | bytearray, size: int) -> Samples:
    """Room for the samples of a PASS."""
    dtype = np.dtype({"int16": np.int16, "float32": np.float32}[json.loads(text)["dtype"]])
    room: Samples = np.empty(size // dtype.itemsize, dtype)
    return room


def read_pass(text: bytes, samples: Samples) -> Pass:
    """What `pass_message` wrote, around its samples."""
    fields = json.loads(text)
    del fields["dtype"]
    return Pass(samples=samples, **fields)


def failed_message(error: EmotionError) -> bytes:
    """A FAILED, with the error that the caller shall see."""
    return pack(Kind.FAILED, [error.error_type, error.message, error.details])


def read_error(text: bytes) -> EmotionError:
    """What `failed_message` wrote."""
    error_type, message, details = json.loads(text)
    return EmotionError(error_type, message, details)


def done_message(reports: tuple[SourceReport, ...]) -> bytes:
    """A DONE, with the reports of all streams."""
    return pack(Kind.DONE, [asdict(report) for report in reports])


def read_reports(text: bytes) -> tuple[SourceReport, ...]:
    """What `done_message` wrote."""
    return tuple(
        SourceReport(**{**fields, "warnings": tuple(map(tuple, fields["warnings"]))})
        for fields in json.loads(text)
    )
