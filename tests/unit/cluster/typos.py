"""Every key of a document, misspelt one at a time."""

import json
from collections.abc import Iterator
from typing import Any

Path = tuple[str | int, ...]

LABELS = ("app.kubernetes.io/", "emotion2vec.serve/", "ray.io/")


def is_label(key: str | int) -> bool:
    """Labels are free: to a schema any name is a good name."""
    return str(key).startswith(LABELS)


def key_paths(value: Any, path: Path = ()) -> Iterator[Path]:
    """Paths of all keys."""
    if isinstance(value, dict):
        for key, child in value.items():
            yield (*path, key)
            yield from key_paths(child, (*path, key))
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield from key_paths(child, (*path, index))


def misspelt(document: Any, path: Path) -> Any:
    """A copy in which the key at `path` has its last letter twice."""
    broken = json.loads(json.dumps(document))  # a deep copy would keep what YAML's aliases share
    parent = broken
    for step in path[:-1]:
        parent = parent[step]
    key = str(path[-1])
    parent[key + key[-1]] = parent.pop(path[-1])
    return broken


def path_name(path: Path) -> str:
    return ".".join(str(step) for step in path)
