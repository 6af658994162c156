"""The metrics of `deployments/metrics.py`, read from its source: no Ray is started for them."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "deployments" / "metrics.py"
KINDS = ("Counter", "Gauge", "Histogram")


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric as Prometheus sees it.

    Attributes:
        group: class that holds it.
        kind: Counter, Gauge or Histogram.
        name: as exported: Ray puts `ray_` in front.
        description: one sentence.
        tags: labels beside Ray's own.
    """

    group: str
    kind: str
    name: str
    description: str
    tags: tuple[str, ...]


def read_metrics(source: Path = SOURCE) -> list[Metric]:
    """Every metric, in the order of the source."""
    tree = ast.parse(source.read_text("utf-8"))
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    return [metric for node in classes for metric in _metrics_of(node)]


def _metrics_of(node: ast.ClassDef) -> Iterator[Metric]:
    for call in ast.walk(node):
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            continue
        if call.func.id in KINDS:
            name, description = (str(ast.literal_eval(argument)) for argument in call.args[:2])
            tags = [word.value for word in call.keywords if word.arg == "tag_keys"]
            yield Metric(
                group=node.name,
                kind=call.func.id,
                name=f"ray_{name}",
                description=description,
                tags=tuple(ast.literal_eval(tags[0])) if tags else (),
            )


def markdown_table() -> str:
    """The table of the operations page."""
    rows = [
        f"| `{metric.name}` | {metric.kind.lower()} | {', '.join(metric.tags) or '–'} "
        f"| {metric.description} |"
        for metric in read_metrics()
    ]
    head = ["| Metric | Kind | Labels | Meaning |", "| --- | --- | --- | --- |"]
    return "\n".join([*head, *rows]) + "\n"


if __name__ == "__main__":
    print(markdown_table(), end="")
