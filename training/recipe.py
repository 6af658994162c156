"""One training run: from the clips of eight speakers to a model, with no look at the others."""

import copy
import logging
import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from training.augment import random_colour, random_mask, random_noise
from training.corpus import Clip
from training.model import FIRST_CONVOLUTION_SCALE, Outputs, Shape, TrainedModel
from training.targets import make_targets
from training.variants import FRAME_HOP_SAMPLES, VariantSet

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Recipe:
    """Every choice of a run. Fixed lengths and a weight average stand in for early stopping."""

    shape: Shape = field(default_factory=Shape)
    auxiliary_epochs: int = 15
    joint_epochs: int = 25
    batch_size: int = 16
    peak_learning_rate: float = 1e-3
    weight_decay: float = 0.05
    dropout: float = 0.1
    teacher_share: float = 0.5
    functionals_weight: float = 1.0
    descriptors_weight: float = 1.0
    average_decay: float = 0.995
    seed: int = 0


def train_model(
    clips: list[Clip], variants: VariantSet, train: list[int], recipe: Recipe
) -> TrainedModel:
    """Train on the clips `train` (indices) and return the averaged weights, in eval mode."""
    torch.manual_seed(recipe.seed)
    run = _Run(clips, variants, train, recipe)
    for epoch in range(recipe.auxiliary_epochs + recipe.joint_epochs):
        losses = run.epoch(label_weight=float(epoch >= recipe.auxiliary_epochs))
        logger.info("epoch %d %s", epoch, {name: round(loss, 3) for name, loss in losses.items()})
    return run.average.eval()


class _Run:
    def __init__(
        self, clips: list[Clip], variants: VariantSet, train: list[int], recipe: Recipe
    ) -> None:
        self.recipe, self.variants, self.train = recipe, variants, train
        self.labels = torch.tensor([clip.label for clip in clips])
        self.targets = make_targets(variants, self.labels.numpy(), train)
        self.waves = torch.from_numpy(variants.waves)
        self.class_weight = _class_weight(self.labels[train])
        n_descriptors = self.targets.descriptors.shape[-1]
        self.model = TrainedModel(
            recipe.shape, self.targets.functionals.shape[-1], n_descriptors, recipe.dropout
        )
        self.average = copy.deepcopy(self.model)
        self.optimizer = _optimizer(self.model, recipe)
        self.generator = torch.Generator().manual_seed(recipe.seed)
        self.rng = np.random.default_rng(recipe.seed)
        self.step = 0
        epochs = recipe.auxiliary_epochs + recipe.joint_epochs
        self.steps = epochs * (len(train) // recipe.batch_size)

    def epoch(self, label_weight: float) -> dict[str, float]:
        """One pass over the clips, each in one of its versions; returns the mean losses."""
        self.model.train()
        sums = np.zeros(3)
        for index, version in self._batches():
            losses = self._losses(index, version)
            weights = (label_weight, self.recipe.functionals_weight, self.recipe.descriptors_weight)
            loss = sum((w * part for w, part in zip(weights, losses, strict=True)), torch.zeros(()))
            self._update(loss)
            sums += [float(part.detach()) for part in losses]
        count = len(self.train) // self.recipe.batch_size
        names = ("label", "functionals", "descriptors")
        return dict(zip(names, (sums / count).tolist(), strict=True))

    def _batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        size = self.recipe.batch_size
        order = self.rng.permutation(self.train)
        versions = self.rng.integers(self.variants.waves.shape[1], size=len(order))
        for start in range(0, len(order) - size + 1, size):
            part = slice(start, start + size)
            yield torch.from_numpy(order[part]), torch.from_numpy(versions[part])

    def _losses(self, index: Tensor, version: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        frames = int(self.rng.integers(80, 100))
        start = int(self.rng.integers(0, 100 - frames))
        samples = slice(start * FRAME_HOP_SAMPLES, (start + frames) * FRAME_HOP_SAMPLES + 80)
        outputs = self.model(self._augmented(self.waves[index, version, samples]))
        seen = self.targets.descriptors[index, version, start : start + frames]
        return (
            self._label_loss(outputs.logits, index, version),
            nn.functional.smooth_l1_loss(
                outputs.functionals, self.targets.functionals[index, version]
            ),
            _masked_loss(outputs, seen),
        )

    def _label_loss(self, logits: Tensor, index: Tensor, version: Tensor) -> Tensor:
        """Cross entropy against a mixture of the label and the teacher's judgement."""
        share = self.recipe.teacher_share
        truth = nn.functional.one_hot(self.labels[index], logits.shape[1]).float()
        target = (1 - share) * truth + share * self.targets.judgement[index, version]
        loss = nn.functional.cross_entropy(logits, target, reduction="none")
        return (loss * self.class_weight[self.labels[index]]).mean()

    def _augmented(self, waves: Tensor) -> Tensor:
        waves = random_colour(waves, self.generator, depth_db=4.0)
        waves = random_mask(waves, self.generator, share=0.3, depth=0.03)
        return random_noise(waves, self.generator, snr_db=(10.0, 40.0), share=0.5)

    def _update(self, loss: Tensor) -> None:
        rate = _learning_rate(self.step / self.steps)
        for group in self.optimizer.param_groups:
            group["lr"] = group["peak"] * rate
        self.optimizer.zero_grad()
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(self.model.parameters(), 5.0)
        self.optimizer.step()
        self.step += 1
        decay = min(self.recipe.average_decay, self.step / (self.step + 10))
        with torch.no_grad():
            pairs = zip(self.average.parameters(), self.model.parameters(), strict=True)
            for kept, current in pairs:
                kept.lerp_(current, 1 - decay)


def _masked_loss(outputs: Outputs, target: Tensor) -> Tensor:
    known = ~target.isnan()
    return nn.functional.smooth_l1_loss(outputs.descriptors[known], target[known])


def _class_weight(labels: Tensor) -> Tensor:
    """Weights that give every label that occurs the same share of the loss; 1 for the others."""
    counts = torch.bincount(labels, minlength=9).float()
    occurring = counts > 0
    weight = torch.ones(9)
    weight[occurring] = counts[occurring].mean() / counts[occurring]
    return weight


def _learning_rate(progress: float) -> float:
    warm_up = min(1.0, progress / 0.05)
    return warm_up * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * progress)))


def _optimizer(model: TrainedModel, recipe: Recipe) -> torch.optim.AdamW:
    first = model.first_convolution
    others = [parameter for parameter in model.parameters() if parameter is not first]
    matrices = [parameter for parameter in others if parameter.dim() > 1]
    vectors = [parameter for parameter in others if parameter.dim() <= 1]
    peak = recipe.peak_learning_rate
    return torch.optim.AdamW(
        [
            {"params": matrices, "peak": peak, "weight_decay": recipe.weight_decay},
            {"params": vectors, "peak": peak, "weight_decay": 0.0},
            {"params": [first], "peak": peak * FIRST_CONVOLUTION_SCALE, "weight_decay": 0.0},
        ],
        lr=peak,
    )
