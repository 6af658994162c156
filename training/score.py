"""What is measured on speakers that a model never saw."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from training.corpus import LABELS, Clip
from training.model import TrainedModel


@dataclass(frozen=True)
class Score:
    """`confusion [9, 9]` counts clips by true label (row) and answered label (column)."""

    confusion: NDArray[np.int64]

    @property
    def average_recall(self) -> float:
        """Unweighted average recall over the labels that occur."""
        occurring = self.confusion.sum(axis=1) > 0
        counts = self.confusion[occurring]
        return float(np.mean(self.confusion.diagonal()[occurring] / counts.sum(axis=1)))

    @property
    def accuracy(self) -> float:
        """Share of the clips that were answered right."""
        return float(self.confusion.trace() / self.confusion.sum())


def count_answers(truth: list[int], answers: list[int]) -> Score:
    """The score of `answers`, both given as indices in LABELS."""
    confusion = np.zeros((len(LABELS), len(LABELS)), dtype=np.int64)
    np.add.at(confusion, (truth, answers), 1)
    return Score(confusion)


def score_model(model: TrainedModel, clips: list[Clip], unseen: list[int]) -> Score:
    """Score a model on the clips `unseen` (indices), each as it is and on its own."""
    with torch.inference_mode():
        answers = [
            int(model(torch.from_numpy(clips[index].wave)[None]).logits.argmax())
            for index in unseen
        ]
    return count_answers([clips[index].label for index in unseen], answers)
