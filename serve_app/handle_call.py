"""The handle face: `serve.get_app_handle("emotion2vec").predict.remote(audio, **parameters)`."""

import logging
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.errors import EmotionError
from serve_app.parameters import parse_parameters
from serve_app.results import error_object, to_plain
from serve_app.timings import Timings

if TYPE_CHECKING:
    from serve_app.service import EmotionService

logger = logging.getLogger("ray.serve")


async def predict(
    service: "EmotionService", audio: Any, sample_rate: int | None, parameters: dict[str, Any]
) -> dict[str, Any]:
    """The dict that HTTP would answer; errors as a dict with `status`, never an exception."""
    request_id = current_request_id()
    try:
        if parameters.get("stream"):
            raise EmotionError("invalid_request", "A handle call cannot have stream=true.")
        body, added = encoded_audio(audio, sample_rate)
        check_body_bytes(len(body), service.settings.max_body_bytes)
        wanted = parse_parameters({**parameters, **added})
        with service.admission.request(len(body)):
            done = await service.analyze(body, wanted, request_id, Timings())
    except EmotionError as error:
        return _refusal(error, request_id)
    except Exception:
        logger.exception("request %s failed", request_id)
        return _refusal(EmotionError("internal", "The server failed on this request."), request_id)
    return dict(to_plain(done.result))


def _refusal(error: EmotionError, request_id: str) -> dict[str, Any]:
    return {**error_object(error, request_id), "status": error.status}


def encoded_audio(audio: Any, sample_rate: int | None) -> tuple[bytes, dict[str, Any]]:
    """Encoded bytes as they are; an array as headerless PCM, so that every rule holds for it.

    Returns:
        The body, and the parameters that say what it is.
    """
    if isinstance(audio, (bytes, bytearray, memoryview)):
        return bytes(audio), {} if sample_rate is None else {"sample_rate": sample_rate}
    if not isinstance(audio, np.ndarray) or audio.ndim != 1 or audio.dtype != np.float32:
        found = type(audio).__name__
        if isinstance(audio, np.ndarray):
            found = f"a {audio.ndim}-D {audio.dtype} array"
        message = f"Audio must be encoded bytes or a 1-D float32 array, not {found}."
        raise EmotionError("invalid_request", message)
    if not isinstance(sample_rate, int):
        raise EmotionError("invalid_request", "An array needs its sample_rate in Hz.")
    body = np.ascontiguousarray(audio, "<f4").tobytes()
    return body, {"encoding": "pcm_f32le", "sample_rate": sample_rate, "num_channels": 1}


def check_body_bytes(size: int, limit: int) -> None:
    """Refuse what HTTP would refuse."""
    if size > limit:
        message = f"The body has {size} bytes; the limit is {limit} bytes."
        raise EmotionError("payload_too_large", message)


def current_request_id() -> str:
    """The id under which Serve logs this request."""
    from ray.serve.context import _get_serve_request_context

    return str(_get_serve_request_context().request_id)
