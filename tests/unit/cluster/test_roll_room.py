"""A roll starts a new replica first where there is room, and never waits for room for ever."""

from typing import Any

import pytest

from serve_app.builder import room_for_one_more
from serve_app.settings import Settings


@pytest.mark.parametrize(
    ("cards", "settings", "room"),
    [
        (0, {}, True),
        (1, {"device": "cpu"}, True),
        (1, {}, False),  # 0.8 + 0.2: the card is full
        (1, {"model_gpus": 0.4, "preprocess_gpus": 0.1}, True),
        (1, {"model_gpus": 0.5, "preprocess_gpus": 0.1}, False),
        (2, {"model_gpus": 0.2, "model_replicas": 3}, True),
        # 0.4 is free, but it may lie as 0.2 on each of two cards
        (2, {"model_gpus": 0.4, "preprocess_gpus": 0.4, "model_replicas": 3}, False),
        (4, {"model_gpus": 0.2, "model_max_replicas": 16}, False),
    ],
)
def test_room_for_one_more(cards: float, settings: dict[str, Any], room: bool) -> None:
    assert room_for_one_more(Settings(**settings), cards) is room
