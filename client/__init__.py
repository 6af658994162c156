"""Client of the emotion server: httpx2 only, no torch, no Ray.

from client import Client
with Client("http://127.0.0.1:8000") as emotions:
    result = emotions.predict("call.mp3", granularity="frame")
    print(result.label, result.score, result.timings["total"])
"""

from client.client import AsyncClient, Client
from client.errors import (
    ApiError,
    AudioError,
    BadRequest,
    ConnectionFailed,
    NotReady,
    Overloaded,
    Timeout,
    TooLarge,
    Unauthorized,
)
from client.results import Frames, Result, Run

__all__ = [
    "ApiError",
    "AsyncClient",
    "AudioError",
    "BadRequest",
    "Client",
    "ConnectionFailed",
    "Frames",
    "NotReady",
    "Overloaded",
    "Result",
    "Run",
    "Timeout",
    "TooLarge",
    "Unauthorized",
]
