"""Make the bundled model again, from a corpus folder to the weights, with its figures.

    python -m training.train_mini --corpus DIR --out DIR [--folds all|shipped]

The shipped weights are those of the last fold: they never saw speakers 15 and 16.
"""

import argparse
import json
import logging
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch

from training.corpus import FOLDS, LABELS, load_corpus, split
from training.export import MODEL_NAME, write_bundled, write_checkpoint
from training.recipe import Recipe, train_model
from training.score import Score, score_model
from training.variants import make_variants

SHIPPED_FOLD = len(FOLDS) - 1

logger = logging.getLogger(__name__)


def train_fold(corpus: Path, out: Path, fold: int) -> Score:
    """Train without the fold's two speakers, write the checkpoint, and score it on them."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    clips = load_corpus(corpus)
    train, unseen = split(clips, fold)
    recipe = Recipe()
    logger.info("training without speakers %s", "+".join(FOLDS[fold]))
    model = train_model(clips, make_variants(clips, _cache(out), 1), train, recipe)
    write_checkpoint(out / f"fold{fold}", model, recipe)
    return score_model(model, clips, unseen)


def main() -> None:
    """Train the folds, write the shipped model and `report.json`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--folds", choices=("all", "shipped"), default="all")
    parser.add_argument("--processes", type=int, default=2)
    args = parser.parse_args()
    make_variants(load_corpus(args.corpus), _cache(args.out), args.processes)
    folds = [SHIPPED_FOLD] if args.folds == "shipped" else [SHIPPED_FOLD, *range(SHIPPED_FOLD)]
    with get_context("spawn").Pool(args.processes) as pool:
        jobs = [(args.corpus, args.out, fold) for fold in folds]
        scores = dict(zip(folds, pool.starmap(train_fold, jobs, chunksize=1), strict=True))
    write_bundled(args.out / MODEL_NAME, args.out / f"fold{SHIPPED_FOLD}")
    text = json.dumps(_report(scores), indent=1, ensure_ascii=False)
    (args.out / "report.json").write_text(text + "\n", "utf-8")
    print(text)


def _cache(out: Path) -> Path:
    return out / "variants.npz"


def _report(scores: dict[int, Score]) -> dict[str, object]:
    recalls = {"+".join(FOLDS[fold]): s.average_recall for fold, s in sorted(scores.items())}
    return {
        "average_recall": {speakers: round(value, 3) for speakers, value in recalls.items()},
        "mean": round(float(np.mean(list(recalls.values()))), 3),
        "shipped_accuracy": round(scores[SHIPPED_FOLD].accuracy, 3),
        "labels": LABELS,
        "shipped_confusion": scores[SHIPPED_FOLD].confusion.tolist(),
    }


if __name__ == "__main__":
    main()
