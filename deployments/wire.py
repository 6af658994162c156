"""What travels between the deployments. Plain dataclasses of numpy arrays: cheap to pickle."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.errors import EmotionError
from engine.passes import MODEL_RATE

Samples = NDArray[np.int16] | NDArray[np.float32]
Floats = NDArray[np.float32]

IN_THE_CALL: dict[str, Any] = {"_by_reference": False}
"""Options of a handle whose payloads travel in the call itself, by gRPC, and not through Ray's
object store. Said where a handle is used: what it would do by default was decided in the process
that built the application."""


ModelName = tuple[str, str]
"""Name and revision of a model: in a roll two serve at once."""


@dataclass(frozen=True, slots=True)
class AudioPass:
    """One pass of mono audio.

    Attributes:
        samples: int16 where the decoded samples are int16 and unmixed (half the bytes),
            else float32 in [-1, 1]; [n].
        sample_rate: Hz.
        frame_embeddings: whether the features of every frame are wanted.
        model: which one is to score it; None: whichever gets it.
    """

    samples: Samples
    sample_rate: int
    frame_embeddings: bool = False
    model: ModelName | None = None

    @property
    def seconds(self) -> float:
        """Length of the audio."""
        return self.samples.size / self.sample_rate

    @property
    def at_model_rate(self) -> bool:
        """Whether the model can take it as it is."""
        return self.sample_rate == MODEL_RATE

    def as_float(self) -> Floats:
        """Samples as float32 in [-1, 1]."""
        if self.samples.dtype == np.int16:
            return self.samples.astype(np.float32) / np.float32(32768)
        return np.asarray(self.samples, np.float32)

    def with_samples(self, samples: Samples, sample_rate: int) -> "AudioPass":
        """The same request for other samples."""
        return replace(self, samples=samples, sample_rate=sample_rate)


@dataclass(frozen=True, slots=True)
class Preprocessed:
    """A pass ready for the model (16 kHz), and how long that took."""

    audio: AudioPass
    preprocess_ms: float


@dataclass(frozen=True, slots=True)
class Scored:
    """What the model says about one pass.

    Attributes:
        frame_logits: float32 [T, n_labels], columns in the order of `labels`.
        embedding: float32 [D], mean over the frames.
        frame_embeddings: float32 [T, D] where they were asked for.
        labels: the checkpoint's tokens.
        model, revision: which model said so.
        queue_ms, model_ms: time waited for the batch, time in the batch.
    """

    frame_logits: Floats
    embedding: Floats
    frame_embeddings: Floats | None
    labels: tuple[str, ...]
    model: str
    revision: str
    queue_ms: float
    model_ms: float


@dataclass(frozen=True, slots=True)
class OtherModel:
    """Not scored: the replica has another model than the pass asks for."""


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What a model replica is; the source of `/info`."""

    model: str
    revision: str
    dtype: str
    device: str
    compiled: bool
    labels: tuple[str, ...]
    embedding_size: int
    sample_rate: int
    frame_seconds: float
    receptive_field: int
    max_batch_frames: int
    versions: dict[str, str]

    def to_dict(self) -> dict[str, Any]:
        """The fields, for a JSON answer."""
        return {name: getattr(self, name) for name in self.__slots__}


Result = Scored | OtherModel | EmotionError
