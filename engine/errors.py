"""The closed table of what can go wrong, and the one exception that carries it.

An `EmotionError` crosses process borders (decode workers, Ray replicas), so every
argument goes to `Exception.__init__`: that is what pickle rebuilds it from.
"""

from typing import Any, Final

STATUS: Final[dict[str, int]] = {
    "invalid_request": 400,
    "empty_body": 400,
    "unauthorized": 401,
    "not_found": 404,
    "method_not_allowed": 405,
    "payload_too_large": 413,
    "audio_too_long": 413,
    "unsupported_media_type": 415,
    "audio_decode_failed": 422,
    "no_audio_stream": 422,
    "audio_empty": 422,
    "audio_too_short": 422,
    "sample_rate_out_of_range": 422,
    "non_finite_audio": 422,
    "overloaded": 429,
    "internal": 500,
    "not_ready": 503,
    "timeout": 504,
}
"""HTTP status of each `error_type`; a type outside this table cannot be raised."""


class EmotionError(Exception):
    """A failure that the caller may read: one sentence with the limit and the value.

    Attributes:
        error_type: a key of `STATUS`.
        message: the sentence shown to the caller; never a path, trace or library name.
        details: structured hints, for example which parameter was refused.
        retry_after: seconds after which another try makes sense (`overloaded` only).
    """

    def __init__(
        self,
        error_type: str,
        message: str,
        details: list[dict[str, Any]] | None = None,
        retry_after: float | None = None,
    ) -> None:
        if error_type not in STATUS:
            raise ValueError(f"{error_type!r} is not in the error table")
        super().__init__(error_type, message, details, retry_after)
        self.error_type = error_type
        self.message = message
        self.details = details
        self.retry_after = retry_after

    @property
    def status(self) -> int:
        """HTTP status code of this error."""
        return STATUS[self.error_type]

    def __str__(self) -> str:
        return self.message


class ModelError(Exception):
    """A model that cannot be loaded; the message is one line for the operator."""
