"""The field's plain baseline on the same folds: eGeMAPS functionals and a support vector machine.

python -m training.baseline --corpus DIR
"""

import argparse
from pathlib import Path

import numpy as np
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from training.corpus import FOLDS, SAMPLE_RATE_HZ, Clip, load_corpus, split
from training.score import Score, count_answers
from training.variants import functionals


def baseline_scores(clips: list[Clip]) -> list[Score]:
    """One score per fold; features are standardised with the training clips' statistics."""
    features = np.stack([functionals(clip.wave, SAMPLE_RATE_HZ) for clip in clips])
    labels = np.array([clip.label for clip in clips])
    scores = []
    for fold in range(len(FOLDS)):
        train, test = split(clips, fold)
        machine = make_pipeline(StandardScaler(), SVC(C=1.0, class_weight="balanced"))
        machine.fit(features[train], labels[train])
        answers = machine.predict(features[test])
        scores.append(count_answers(labels[test].tolist(), answers.tolist()))
    return scores


def main() -> None:
    """Print the unweighted average recall per fold and its mean."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", type=Path, required=True)
    scores = baseline_scores(load_corpus(parser.parse_args().corpus))
    for speakers, score in zip(FOLDS, scores, strict=True):
        print(f"{'+'.join(speakers)}  {score.average_recall:.3f}")
    print(f"mean   {np.mean([score.average_recall for score in scores]):.3f}")


if __name__ == "__main__":
    main()
