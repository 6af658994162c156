"""`python -m cluster.dashboard`: the Grafana dashboard, made from the metrics in the code."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from cluster.metric_names import Metric, read_metrics

QUANTILES = (0.5, 0.95, 0.99)
UNITS = {"milliseconds": "ms", "seconds": "s", "bytes": "bytes", "ratio": "percentunit"}
COLUMNS, WIDTH, HEIGHT = 2, 12, 8
SOURCE = {"type": "prometheus", "uid": "${datasource}"}

SERVE_PANELS = (
    (
        "Replicas",
        "Healthy replicas of each deployment, and those that the autoscaler asks for.",
        (
            ("sum by (deployment) (ray_serve_deployment_replica_healthy)", "{{deployment}}"),
            (
                "max by (deployment) (ray_serve_autoscaling_target_replicas)",
                "{{deployment}} target",
            ),
        ),
    ),
    (
        "Replica starts per hour",
        "Starts of replicas, restarts after a failure among them.",
        (
            (
                "sum by (deployment) (increase(ray_serve_deployment_replica_starts_total[1h]))",
                "{{deployment}}",
            ),
        ),
    ),
)
"""(title, description, ((expression, legend), …)) of Ray Serve's own metrics."""


def dashboard() -> dict[str, Any]:
    """The dashboard as Grafana imports it."""
    return {
        "uid": "emotion2vec-serve",
        "title": "Emotion2Vec on Ray Serve",
        "tags": ["emotion2vec", "ray-serve"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [_datasource_variable()]},
        "panels": list(_placed(_panels())),
    }


def expressions() -> list[str]:
    """Every PromQL expression of the dashboard."""
    panels = dashboard()["panels"]
    return [target["expr"] for panel in panels for target in panel.get("targets", [])]


def _panels() -> Iterator[dict[str, Any]]:
    yield _row("Ray Serve")
    for title, description, targets in SERVE_PANELS:
        yield _panel(title, description, "short", targets)
    group = ""
    for metric in read_metrics():
        if metric.group != group:
            group = metric.group
            yield _row(group.removesuffix("Metrics"))
        yield _panel(_title(metric), metric.description, _unit(metric), _targets(metric))


def _targets(metric: Metric) -> list[tuple[str, str]]:
    by = f" by ({', '.join(metric.tags)})" if metric.tags else ""
    legend = " ".join(f"{{{{{tag}}}}}" for tag in metric.tags)
    if metric.kind == "Counter":
        return [(f"sum{by} (rate({metric.name}[$__rate_interval]))", legend or "per second")]
    if metric.kind == "Gauge":
        return [(f"max by (deployment, replica) ({metric.name})", "{{deployment}} {{replica}}")]
    labels = ", ".join(("le", *metric.tags))
    rate = f"sum by ({labels}) (rate({metric.name}_bucket[$__rate_interval]))"
    return [
        (f"histogram_quantile({quantile}, {rate})", f"p{quantile * 100:g} {legend}".strip())
        for quantile in QUANTILES
    ]


def _title(metric: Metric) -> str:
    words = metric.name.removeprefix("ray_e2v_").removesuffix("_total").replace("_", " ")
    return words.capitalize() + (" per second" if metric.kind == "Counter" else "")


def _unit(metric: Metric) -> str:
    last = metric.name.removesuffix("_total").rsplit("_", 1)[-1]
    # audio-seconds per second of time are a plain number
    return "short" if metric.kind == "Counter" else UNITS.get(last, "short")


def _panel(
    title: str, description: str, unit: str, targets: Iterable[tuple[str, str]]
) -> dict[str, Any]:
    return {
        "type": "timeseries",
        "title": title,
        "description": description,
        "datasource": SOURCE,
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom", "showLegend": True}},
        "targets": [
            {"refId": chr(ord("A") + index), "expr": expression, "legendFormat": legend}
            for index, (expression, legend) in enumerate(targets)
        ],
    }


def _row(title: str) -> dict[str, Any]:
    return {"type": "row", "title": title, "collapsed": False, "panels": []}


def _placed(panels: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Number the panels and lay them out from left to right."""
    x = y = 0
    for number, panel in enumerate(panels, start=1):
        row = panel["type"] == "row"
        if row and x:
            x, y = 0, y + HEIGHT
        size = {"h": 1, "w": WIDTH * COLUMNS} if row else {"h": HEIGHT, "w": WIDTH}
        yield {"id": number, "gridPos": {"x": x, "y": y, **size}, **panel}
        x += size["w"]
        if x >= WIDTH * COLUMNS:
            x, y = 0, y + size["h"]


def _datasource_variable() -> dict[str, Any]:
    return {
        "name": "datasource",
        "label": "Prometheus",
        "type": "datasource",
        "query": "prometheus",
        "current": {},
        "hide": 0,
    }


def to_json() -> str:
    """The file's text."""
    return json.dumps(dashboard(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    print(to_json(), end="")
