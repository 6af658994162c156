"""Where long audio is cut: consecutive passes, each the reference on exactly that excerpt."""

MODEL_RATE = 16_000
"""Hz; what the models hear."""

TAIL_SECONDS = 5
"""A tail shorter than this joins its neighbour: too short for a pass of its own."""


def pass_bounds(samples: int, pass_samples: int, tail_samples: int) -> list[tuple[int, int]]:
    """(first, end) sample of each pass of a clip of `samples`."""
    cuts = list(range(0, samples, pass_samples)) or [0]
    if len(cuts) > 1 and samples - cuts[-1] < tail_samples:
        cuts.pop()
    return list(zip(cuts, [*cuts[1:], samples], strict=True))
