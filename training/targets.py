"""Auxiliary targets, brought to a common scale with statistics of the training clips alone."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import QuantileTransformer
from torch import Tensor

from training.corpus import LABELS
from training.variants import PITCH_COLUMN, VariantSet

LIMIT = 3.0
TEACHER_C = 0.01


@dataclass(frozen=True)
class Targets:
    """`functionals [clips, versions, 88]`, `descriptors [clips, versions, 99, 26]` (NaN: none).

    `judgement [clips, versions, 9]` is what a logistic regression on the functionals answers.
    """

    functionals: Tensor
    descriptors: Tensor
    judgement: Tensor


def make_targets(variants: VariantSet, labels: NDArray[np.int64], train: list[int]) -> Targets:
    """Functionals by rank to a normal distribution; descriptors by median and spread."""
    functionals = _ranked(variants.functionals, train)
    return Targets(
        torch.from_numpy(functionals),
        torch.from_numpy(_scaled(_with_voicing(variants.descriptors), train)),
        torch.from_numpy(_judged(functionals, labels, train)),
    )


def _judged(
    functionals: NDArray[np.float32], labels: NDArray[np.int64], train: list[int]
) -> NDArray[np.float32]:
    """Probabilities of a strongly regularised linear teacher that saw the training clips only."""
    clips, versions, columns = functionals.shape
    teacher = LogisticRegression(C=TEACHER_C, class_weight="balanced", max_iter=500)
    teacher.fit(functionals[train].reshape(-1, columns), np.repeat(labels[train], versions))
    judgement = np.zeros((clips * versions, len(LABELS)), dtype=np.float32)
    judgement[:, teacher.classes_] = teacher.predict_proba(functionals.reshape(-1, columns))
    return judgement.reshape(clips, versions, -1)


def _ranked(values: NDArray[np.float32], train: list[int]) -> NDArray[np.float32]:
    columns = values.shape[-1]
    ranks = QuantileTransformer(n_quantiles=200, output_distribution="normal", random_state=0)
    ranks.fit(values[train].reshape(-1, columns))
    normal = ranks.transform(values.reshape(-1, columns)).reshape(values.shape)
    return np.asarray(np.clip(normal, -LIMIT, LIMIT), dtype=np.float32)


def _with_voicing(descriptors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Move "has a pitch" from the pitch column, where it is a zero, into a column of its own."""
    pitch = descriptors[..., PITCH_COLUMN]
    voiced = np.where(np.isnan(pitch), np.nan, pitch > 0).astype(np.float32)
    split = np.concatenate([descriptors, voiced[..., None]], axis=-1)
    split[..., PITCH_COLUMN][pitch == 0] = np.nan
    return split


def _scaled(values: NDArray[np.float32], train: list[int]) -> NDArray[np.float32]:
    seen = values[train, 0].reshape(-1, values.shape[-1])
    centre = np.nanmedian(seen, axis=0)
    spread = np.nanstd(np.clip(seen, *np.nanpercentile(seen, [1, 99], axis=0)), axis=0)
    scaled = np.clip((values - centre) / (spread + 1e-6), -LIMIT, LIMIT)
    return np.asarray(scaled, dtype=np.float32)
