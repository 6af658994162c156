"""Numbers and foreign text as every text format needs them."""

from typing import Any

from serve_app.results import to_json


def number_text(value: Any) -> str:
    """The number as in the JSON answer: the shortest form that reads back as the same."""
    return to_json(value).decode()


def one_line(text: str) -> str:
    """`text` without line ends and other control characters."""
    return "".join(c if c.isprintable() else " " for c in text)


def error_text(item: dict[str, Any]) -> str:
    """What a timeline says of an item that failed."""
    return one_line(f"{item['error_type']}: {item['error']}")
