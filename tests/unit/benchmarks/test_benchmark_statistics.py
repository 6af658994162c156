"""Medians that take turns, percentiles, figures."""

import pytest

from benchmarks.statistics import figure, in_turns, interleaved, percentile


def test_percentile_is_linear_between_neighbours() -> None:
    values = [4.0, 1.0, 3.0, 2.0]
    assert percentile(values, 0.5) == 2.5
    assert percentile(values, 0.95) == pytest.approx(3.85)
    assert (percentile(values, 0.0), percentile(values, 1.0)) == (1.0, 4.0)
    assert percentile([7.0], 0.95) == 7.0


def test_percentile_of_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="no values"):
        percentile([], 0.5)


def test_works_take_turns_after_their_warm_up() -> None:
    calls: list[str] = []
    times = interleaved({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, 3)
    assert calls == ["a", "b"] + ["a", "b"] * 3
    assert set(times) == {"a", "b"}


async def test_coroutines_take_turns_too() -> None:
    calls: list[str] = []

    async def note(name: str) -> None:
        calls.append(name)

    await in_turns({"a": lambda: note("a"), "b": lambda: note("b")}, 2)
    assert calls == ["a", "b"] * 3


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.012345, "0.0123"), (1234.6, "1 230"), (3.0, "3"), (float("nan"), "–"), (0.0, "0")],
)
def test_figures_have_three_digits(value: float, text: str) -> None:
    assert figure(value) == text
