"""The bundled model on real emotional speech, where the EmoDB corpus lies beside the repository."""

import csv
from pathlib import Path

import numpy as np
import pytest

from engine import Emotions, Engine
from engine.audio import load
from engine.precision import cpu_has_bfloat16
from engine.resample import resample

CORPUS = Path(__file__).parents[3] / ".." / "shared" / "emodb"
UNSEEN = {"15", "16"}

pytestmark = [
    pytest.mark.corpus,
    pytest.mark.skipif(not CORPUS.is_dir(), reason="needs the EmoDB corpus"),
]


def clips(speakers: set[str] | None) -> tuple[list[np.ndarray], list[str]]:
    """16 kHz waves and their labels."""
    with (CORPUS / "labels.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if not speakers or row["speaker"] in speakers]
    waves, rates = [], []
    for row in rows:
        [excerpt], _ = load(CORPUS / row["file"])
        waves.append(excerpt.samples.astype(np.float32) / 32768)
        rates.append(excerpt.sample_rate)
    return resample(waves, rates), [row["label"] for row in rows]


def table(emotions: list[Emotions]) -> np.ndarray:
    names = sorted(emotions[0].scores)
    return np.array([[item.scores[name] for name in names] for item in emotions])


def check_bfloat16(speakers: set[str] | None) -> None:
    waves, _ = clips(speakers)
    exact = table(Engine.load("emotion2vec_mini", "cpu", "float32").infer(waves))
    engine = Engine.load("emotion2vec_mini", "cpu", "bfloat16")
    rounded = table(engine.infer(waves))
    distance = np.abs(exact - rounded).max(axis=1)
    assert np.quantile(distance, 0.99) <= 0.02
    assert (exact.argmax(axis=1) == rounded.argmax(axis=1)).mean() >= 0.99
    alone = table([engine.infer([wave])[0] for wave in waves[:40]])
    assert np.abs(alone - rounded[:40]).max() <= 0.005


@pytest.mark.skipif(not cpu_has_bfloat16(), reason="needs a CPU with bfloat16")
def test_bfloat16_agrees_on_unseen_speakers() -> None:
    check_bfloat16(UNSEEN)


@pytest.mark.slow
@pytest.mark.skipif(not cpu_has_bfloat16(), reason="needs a CPU with bfloat16")
def test_bfloat16_agrees_on_the_whole_corpus() -> None:
    check_bfloat16(None)


def test_recall_on_unseen_speakers() -> None:
    waves, labels = clips(UNSEEN)
    answers = [
        item.label for item in Engine.load("emotion2vec_mini", "cpu", "float32").infer(waves)
    ]
    right = np.array(answers) == np.array(labels)
    recalls = [right[np.array(labels) == label].mean() for label in sorted(set(labels))]
    assert len(recalls) == 7
    assert np.mean(recalls) >= 0.45
