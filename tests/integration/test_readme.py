"""The README's request gives the README's answer."""

import json
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_the_request_gives_the_answer(deploy: Callable[..., str]) -> None:
    server = deploy()
    readme = (ROOT / "README.md").read_text()
    match = re.search(r"\$ (curl .+?)\n(\{.+?\})\n```", readme, re.DOTALL)
    assert match
    command = match[1].replace("http://127.0.0.1:8000", server)
    expected = json.loads(match[2].replace("\n", ""))
    done = subprocess.run(
        shlex.split(command), cwd=ROOT, capture_output=True, check=True, timeout=60
    )
    answer = json.loads(done.stdout)
    assert set(answer) == set(expected)
    for name in ("object", "model", "duration", "granularity", "label", "warnings"):
        assert answer[name] == expected[name]
    scores = {item["label"]: item["score"] for item in answer["scores"]}
    # the precision is the machine's choice, so the last digits are its own
    for item in expected["scores"]:
        assert scores[item["label"]] == pytest.approx(item["score"], abs=0.02)
