"""Labels, passes, emotions and the choice of device and precision."""

import numpy as np
import pytest
import torch

from engine import Emotions, ModelError
from engine.emotions import sorted_scores
from engine.labels import label_name, used_columns
from engine.passes import pass_bounds
from engine.precision import choose_device, choose_dtype


@pytest.mark.parametrize(
    ("token", "english", "chinese"),
    [
        ("生气/angry", "angry", "生气"),
        ("<unk>", "unknown", "未知"),
        ("calm", "calm", "calm"),
        ("难过/sad/down", "sad/down", "难过"),
    ],
)
def test_label_names(token: str, english: str, chinese: str) -> None:
    assert label_name(token) == label_name(token, "en") == english
    assert label_name(token, "zh") == chinese


def test_unused_labels_are_left_out_by_their_prefix_only() -> None:
    assert used_columns(["a", "unuse_0", "b/unuse", "unused", "<unk>"]) == [0, 2, 4]
    assert used_columns([]) == []


@pytest.mark.parametrize(
    ("samples", "bounds"),
    [
        (0, [(0, 0)]),
        (1, [(0, 1)]),
        (10, [(0, 10)]),
        (12, [(0, 12)]),
        (13, [(0, 10), (10, 13)]),
        (20, [(0, 10), (10, 20)]),
        (22, [(0, 10), (10, 22)]),
        (33, [(0, 10), (10, 20), (20, 30), (30, 33)]),
    ],
)
def test_passes_cover_the_clip_and_a_short_tail_joins_its_neighbour(
    samples: int, bounds: list[tuple[int, int]]
) -> None:
    assert pass_bounds(samples, 10, 3) == bounds


def test_scores_are_sorted_and_ties_keep_the_order_of_the_file() -> None:
    logits = np.array([[0, 2, 1, 2], [2, 2, 1, 2]], np.float32)
    emotions = Emotions(("a", "甲/b", "c", "<unk>"), logits, (2,), np.zeros(3, np.float32))
    assert list(emotions.scores) == ["b", "unknown", "a", "c"]
    assert (emotions.label, emotions.score) == ("b", emotions.scores["b"])
    assert sum(emotions.scores.values()) == pytest.approx(1, abs=1e-6)
    assert list(sorted_scores(("a", "甲/b"), np.array([0.2, 0.8], np.float32), "zh")) == ["甲", "a"]


def test_large_logits_stay_finite() -> None:
    emotions = Emotions(("a", "b"), np.array([[3e4, -3e4]], np.float32), (1,), np.zeros(1))
    assert emotions.scores == {"a": 1.0, "b": 0.0}


def test_devices_and_precisions() -> None:
    cpu = choose_device("cpu")
    assert choose_device("auto").type in ("cpu", "cuda")
    assert choose_dtype("float32", cpu) == torch.float32
    assert choose_dtype("auto", cpu) in (torch.float32, torch.bfloat16)
    assert choose_dtype("auto", torch.device("cuda")) == torch.float16
    with pytest.raises(ModelError, match="dtype 'int8' is not auto, float32"):
        choose_dtype("int8", cpu)
    with pytest.raises(ModelError, match="device 'gpu' is not auto, cpu or cuda"):
        choose_device("gpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has CUDA")
def test_cuda_that_is_not_there_is_named() -> None:
    with pytest.raises(ModelError, match="device 'cuda:1' was asked for, but"):
        choose_device("cuda:1")
