"""Alert rules and dashboard: real parsers, and only names that the code exports."""

import json
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import ray.serve
import yaml
from typos import key_paths, misspelt, path_name

from cluster import dashboard, metric_names
from cluster.metric_names import Metric, read_metrics
from engine.errors import STATUS

CLUSTER = Path(dashboard.__file__).parent
ALERTS: dict[str, Any] = yaml.safe_load((CLUSTER / "alerts.yaml").read_text("utf-8"))
RULES = ALERTS["groups"][0]["rules"]
EXPRESSIONS = [rule["expr"] for rule in RULES] + dashboard.expressions()
NO_PROMTOOL = "needs promtool (Debian: the package prometheus)"


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    binary = shutil.which("promtool")
    if binary is None:
        pytest.skip(NO_PROMTOOL)
    command = [binary, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_prometheus_takes_the_rules() -> None:
    done = promtool("check", "rules", "--lint=all", "--lint-fatal", CLUSTER / "alerts.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(RULES)} rules found" in done.stdout


@pytest.mark.parametrize("keys", list(key_paths(ALERTS)), ids=path_name)
def test_a_typo_in_any_key_is_caught(keys: tuple[str | int, ...], tmp_path: Path) -> None:
    if keys[-1] in ("severity", "summary"):
        broken = misspelt(ALERTS, keys)
        rules = broken["groups"][0]["rules"]
        with pytest.raises(AssertionError):
            check_labels(rules)
        return
    file = tmp_path / "alerts.yaml"
    file.write_text(yaml.safe_dump(misspelt(ALERTS, keys)))
    assert promtool("check", "rules", file).returncode != 0


def check_labels(rules: list[dict[str, Any]]) -> None:
    for rule in rules:
        assert set(rule["labels"]) == {"severity"}
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert set(rule["annotations"]) == {"summary"}


def test_every_alert_has_a_severity_and_a_summary() -> None:
    check_labels(RULES)


def test_alerts_are_silent_on_a_sound_server_and_fire_on_a_sick_one(tmp_path: Path) -> None:
    cases = Path(__file__).with_name("alerts_test.yaml")
    document = yaml.safe_load(cases.read_text("utf-8"))
    for test in document["tests"][:2]:
        tested = {case["alertname"] for case in test["alert_rule_test"]}
        assert tested == {rule["alert"] for rule in RULES}
    shutil.copy(cases, tmp_path)
    shutil.copy(CLUSTER / "alerts.yaml", tmp_path)
    done = promtool("test", "rules", tmp_path / cases.name)
    assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_takes_every_expression_of_the_dashboard(tmp_path: Path) -> None:
    rules = [
        {"record": f"panel:{index}", "expr": expression.replace("$__rate_interval", "5m")}
        for index, expression in enumerate(dashboard.expressions())
    ]
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    done = promtool("check", "rules", file)
    assert done.returncode == 0, done.stderr


@cache
def serve_source() -> str:
    folder = Path(ray.serve.__file__).parent / "_private"
    return "".join(path.read_text("utf-8") for path in sorted(folder.glob("*.py")))


def exported(metric: Metric) -> set[str]:
    if metric.kind == "Histogram":
        return {f"{metric.name}_{part}" for part in ("bucket", "sum", "count")}
    return {metric.name}


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_only_metrics_that_exist_are_used(expression: str) -> None:
    ours = {name for metric in read_metrics() for name in exported(metric)}
    names = set(re.findall(r"\bray_\w+", expression))
    assert names
    for name in names - ours:
        assert name.startswith("ray_serve_"), name
        assert f'"{name.removeprefix("ray_").removesuffix("_total")}"' in serve_source()


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_only_labels_that_exist_are_used(expression: str) -> None:
    tags = {tag for metric in read_metrics() for tag in metric.tags}
    matched = set(re.findall(r'[{,]\s*(\w+)=~?"', expression))
    grouped = re.findall(r"by \(([^)]*)\)", expression)
    by = {label.strip() for group in grouped for label in group.split(",")}
    assert matched | by <= tags | {"deployment", "replica", "le"}


def test_results_in_the_alerts_are_error_types() -> None:
    results = {
        result
        for rule in RULES
        for group in re.findall(r'result=~?"([^"]*)"', rule["expr"])
        for result in group.split("|")
    }
    assert results == {"internal", "timeout", "not_ready", "overloaded"}
    assert results <= set(STATUS)


def test_the_dashboard_is_what_the_generator_makes() -> None:
    """Anew: python -m cluster.dashboard > cluster/grafana_dashboard.json"""
    assert (CLUSTER / "grafana_dashboard.json").read_text("utf-8") == dashboard.to_json()


def test_every_metric_has_a_panel() -> None:
    drawn = " ".join(dashboard.expressions())
    for metric in read_metrics():
        assert metric.name in drawn


def test_panels_do_not_overlap_and_have_their_own_numbers() -> None:
    panels = json.loads(dashboard.to_json())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        columns = range(place["x"], place["x"] + place["w"])
        area = {(x, y) for x in columns for y in range(place["y"], place["y"] + place["h"])}
        assert not area & cells
        cells |= area


def test_metrics_are_read_from_the_source_as_ray_makes_them() -> None:
    from deployments.metrics import ModelMetrics, RequestMetrics

    made = [*vars(RequestMetrics()).values(), *vars(ModelMetrics()).values()]
    infos = {f"ray_{metric.info['name']}": metric.info for metric in made}
    read = {metric.name: metric for metric in read_metrics()}
    assert set(read) == set(infos)
    for name, metric in read.items():
        assert metric.tags == tuple(infos[name]["tag_keys"])
        assert metric.description == infos[name]["description"]


def test_the_operations_page_lists_every_metric_and_every_alert() -> None:
    page = (CLUSTER.parent / "docs" / "operations.md").read_text("utf-8")
    assert metric_names.markdown_table() in page
    for rule in RULES:
        assert f"`{rule['alert']}`" in page
