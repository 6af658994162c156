"""Small work that need not be done at once, put off and done together."""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

PUT_OFF_SECONDS = 0.2

Item = TypeVar("Item")


class Together(Generic[Item]):
    """Collects items, and hands them on as a list a moment after the first of them.

    On CPUs that are busy with a model, what a single refusal has to touch (log formatting, metrics)
    comes from memory each time, and takes several times as long as one after another.

    Args:
        hand_on: gets all items of that moment, in their order.
        seconds: the moment.
    """

    def __init__(
        self, hand_on: Callable[[list[Item]], object], seconds: float = PUT_OFF_SECONDS
    ) -> None:
        self._hand_on = hand_on
        self._seconds = seconds
        self._items: list[Item] = []

    def add(self, item: Item) -> None:
        """Needs a running event loop."""
        if not self._items:
            asyncio.get_running_loop().call_later(self._seconds, self._all)
        self._items.append(item)

    def _all(self) -> None:
        items, self._items = self._items, []
        self._hand_on(items)
