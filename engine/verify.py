"""Our encoder against the reference, FunASR's `AutoModel`, on one checkpoint directory.

The one test that published weights get: three clips, together in one batch on our side and
one by one on the reference's.
"""

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from engine.checkpoint import read_checkpoint
from engine.emotions import Emotions, mean_logits, softmax
from engine.engine import Engine
from engine.errors import EmotionError, ModelError
from engine.passes import MODEL_RATE

TOLERANCE = 1e-4
CLIP_SECONDS = (0.7, 3.1, 6.4)

Samples = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """Largest absolute differences between our engine in float32 and the reference.

    Attributes:
        clip_seconds: length of each clip that was compared.
        features: over all frames and dimensions.
        scores: over all labels; 0.0 for a model without a classifier.
    """

    clip_seconds: tuple[float, ...]
    features: float
    scores: float

    def __str__(self) -> str:
        return (
            f"{len(self.clip_seconds)} clips agree with funasr: features within "
            f"{self.features:.1e}, scores within {self.scores:.1e}"
        )


def verify(directory: Path) -> VerifyReport:
    """Compare three clips with FunASR on the checkpoint in `directory` (FunASR's layout).

    Raises:
        ModelError: the checkpoint cannot be read, funasr is not installed or cannot load it,
            or labels, features or scores differ by more than 1e-4.
    """
    # our reader goes first: it refuses what FunASR would evaluate
    checkpoint = read_checkpoint(directory)
    engine = Engine(checkpoint, directory.name, "local", torch.device("cpu"), torch.float32)
    waves = [speech_like(seconds, seed) for seed, seconds in enumerate(CLIP_SECONDS)]
    ours = _infer(engine, waves)
    theirs = _reference(directory, waves)
    labels = [list(engine.labels), *(result["labels"] for result in theirs)]
    if any(other != labels[0] for other in labels):
        raise ModelError(f"the labels differ from funasr's: {labels[0]} and {labels[-1]}")
    pairs = list(zip(ours, theirs, strict=True))
    report = VerifyReport(
        CLIP_SECONDS,
        max(_distance(mine.frame_embeddings, other["feats"]) for mine, other in pairs),
        max(_distance(_file_order(mine), other["scores"]) for mine, other in pairs),
    )
    # written so that a distance which is not a number fails as well
    if not max(report.features, report.scores) <= TOLERANCE:
        raise ModelError(
            f"the model differs from funasr by {report.features:.1e} in features and "
            f"{report.scores:.1e} in scores, more than {TOLERANCE:.0e}"
        )
    return report


def _infer(engine: Engine, waves: Sequence[Samples]) -> list[Emotions]:
    try:
        return engine.infer(waves, frame_embeddings=True)
    except EmotionError:
        raise ModelError("the model's output is not finite for ordinary audio") from None


def speech_like(seconds: float, seed: int) -> Samples:
    """Harmonics of a gliding pitch under syllables of 4 a second, with noise: float32 [n]."""
    rng = np.random.default_rng(seed)
    time = np.arange(round(seconds * MODEL_RATE)) / MODEL_RATE
    pitch = rng.uniform(90, 240) * (1 + 0.15 * np.sin(2 * np.pi * 0.7 * time))
    phase = 2 * np.pi * np.cumsum(pitch) / MODEL_RATE
    voice = sum(np.sin(k * phase + rng.uniform(0, 6)) / k for k in range(1, 20))
    syllables = 0.5 + 0.5 * np.sin(2 * np.pi * 4 * time + rng.uniform(0, 6))
    wave = 0.1 * voice * syllables + 0.01 * rng.standard_normal(time.size)
    return wave.astype(np.float32)


def _file_order(emotions: Emotions) -> Samples:
    return softmax(mean_logits(emotions.frame_logits))


def _distance(mine: Any, other: Any) -> float:
    mine, other = np.asarray(mine, np.float64), np.asarray(other, np.float64)
    if mine.shape != other.shape:
        raise ModelError(f"the model's output is {mine.shape}, funasr's is {other.shape}")
    difference = np.abs(mine - other)
    return float(np.where(np.isnan(difference), np.inf, difference).max(initial=0.0))


def _reference(directory: Path, waves: Sequence[Samples]) -> list[dict[str, Any]]:
    with _quiet():
        try:
            from funasr import AutoModel
        except ImportError:
            raise ModelError(
                "comparing with the reference needs funasr: pip install funasr"
            ) from None
        try:
            # the switches keep config.yaml from asking for code, other models or half precision
            model = AutoModel(
                model=str(directory.resolve()),
                device="cpu",
                ncpu=torch.get_num_threads(),
                fp16=False,
                bf16=False,
                vad_model=None,
                punc_model=None,
                spk_model=None,
                trust_remote_code=False,
                disable_update=True,
                disable_pbar=True,
            )
            return [
                model.generate(wave, granularity="frame", extract_embedding=True)[0]
                for wave in waves
            ]
        except Exception as error:
            # whatever FunASR stumbles over, the comparison did not happen
            reason = str(error).strip().splitlines()[:1] or [type(error).__name__]
            raise ModelError(f"funasr cannot load the model: {reason[0]}") from error


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep FunASR's prints, warnings and logging set-up to itself."""
    root = logging.getLogger()
    handlers, disabled = list(root.handlers), root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)
        for handler in [other for other in root.handlers if other not in handlers]:
            root.removeHandler(handler)
