"""Verdicts, the table, the JSON, the picture, and what is never printed."""

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from benchmarks.markdown import table
from benchmarks.picture import margin, svg
from benchmarks.report import Budget, OutputsDiffer, Report, Row, Section, absent, render, tally


def report(*rows: Row) -> Report:
    environment = {"cpu": "a <fast> one", "gpu": "none"}
    made = Report("quick", "python -m benchmarks --quick", environment, ["outputs agree"])
    made.add(Section(list(rows), {"seconds": 1.5}))
    return made


AT_MOST, AT_LEAST = Budget(1.1, at_most=True), Budget(75, at_most=False, unit="%")
MET = Row("HTTP", "first / warm", "1.05×", 1.05, AT_MOST)
MISSED = Row("Engine", "share of the rate", "60 %", 60.0, AT_LEAST, note="a reason")
ABSENT = absent("Engine", "on a GPU", "there is no GPU", AT_LEAST)
PLAIN = Row("HTTP", "CPU load", "90 %", 0.9)


@pytest.mark.parametrize(
    ("row", "verdict"),
    [(MET, "met"), (MISSED, "missed"), (ABSENT, "not measurable here"), (PLAIN, "reported")],
)
def test_verdicts(row: Row, verdict: str) -> None:
    assert row.verdict == verdict


def test_the_limit_itself_is_met_and_a_nan_is_not() -> None:
    assert AT_MOST.met_by(1.1)
    assert AT_LEAST.met_by(75.0)
    assert not AT_MOST.met_by(float("nan"))
    assert not AT_LEAST.met_by(float("nan"))


def test_budgets_read_as_in_the_design() -> None:
    assert str(AT_MOST) == "≤ 1.1×"
    assert str(AT_LEAST) == "≥ 75%"
    assert str(Budget(8, at_most=True, unit="ms")) == "≤ 8 ms"


def test_the_table_has_every_row_under_its_heading_with_verdict_and_reason() -> None:
    text = render(report(MET, MISSED, ABSENT, PLAIN))
    lines = [line.strip() for line in text.splitlines()]
    assert lines.index("HTTP") < next(i for i, line in enumerate(lines) if "CPU load" in line)
    assert next(line for line in lines if "first / warm" in line).endswith("MET")
    assert next(line for line in lines if "share of" in line).endswith("MISSED")
    assert "· a reason" in text
    assert "· there is no GPU" in text
    assert "outputs agree" in text


def test_long_quantities_are_wrapped_not_cut() -> None:
    words = " ".join(f"word{number}" for number in range(30))
    printed = " ".join(render(report(Row("g", words, "1"))).split())
    assert all(f"word{number}" in printed for number in range(30))


def test_no_time_is_printed_before_outputs_were_compared() -> None:
    unchecked = report(MET)
    unchecked.equality = []
    with pytest.raises(OutputsDiffer):
        render(unchecked)


def test_tally_counts_budgets_only() -> None:
    assert tally([MET, MISSED, ABSENT, PLAIN]) == (
        "budgets: 1 met, 1 missed, 1 not measurable here"
    )


def test_json_holds_rows_verdicts_and_facts(tmp_path: Path) -> None:
    report(MET, ABSENT).write_json(tmp_path / "report.json")
    read = json.loads((tmp_path / "report.json").read_text("utf-8"))
    assert [row["verdict"] for row in read["rows"]] == ["met", "not measurable here"]
    assert read["rows"][0]["budget"] == {"limit": 1.1, "at_most": True, "unit": "×"}
    assert read["facts"] == {"seconds": 1.5}


def test_the_picture_is_xml_with_a_bar_for_each_judged_row() -> None:
    made = report(MET, MISSED, ABSENT, PLAIN)
    made.facts["concurrency"] = {
        "1": {"per_second": 2.0, "p50": 0.5, "p95": 0.6},
        "4": {"per_second": 3.0, "p50": 1.2, "p95": 1.4},
    }
    root = ElementTree.fromstring(svg(made))
    bars = root.findall("{http://www.w3.org/2000/svg}rect")
    assert len(bars) == 1 + 2
    assert "a <fast> one" in "".join(root.itertext())


def test_margins_compare_both_kinds_of_budget() -> None:
    assert margin(Row("g", "q", "m", 0.55, AT_MOST)) == pytest.approx(2)
    assert margin(Row("g", "q", "m", 37.5, AT_LEAST)) == pytest.approx(0.5)
    assert margin(Row("g", "q", "m", 0.0, AT_LEAST)) == 0


def test_markdown_has_a_line_for_each_row_and_the_command() -> None:
    made = report(MET, MISSED, ABSENT, PLAIN)
    made.environment |= {"load before the run": "0.1", "revision": "abc"}
    values = json.loads(json.dumps(made.to_json()))
    lines = table(values).splitlines()
    assert "`python -m benchmarks --quick`" in lines[0]
    assert "| first / warm | 1.05× | ≤ 1.1× | met |" in lines
    assert "| share of the rate | 60 % | ≥ 75% | missed: a reason |" in lines
    assert len(lines) == 4 + 4
    assert len(table(values, judged_only=True).splitlines()) == 4 + 3
