"""`python -m benchmarks.gpu_check` on the CPU: the whole of it, at the tiny size."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from benchmarks import gpu_check
from benchmarks.comparing import Distance

ROOT = Path(__file__).parents[3]

REFUSED = ("ray", "funasr", "yaml", "av", "psutil", "httpx2", "fastapi", "pydantic", "litserve")


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Tiny products on several threads of a busy machine only wait for one another."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("one_thread")
def test_all_checks_run_and_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--size", "tiny", "--device", "cpu", "--runs", "1", "--out", str(tmp_path)]
    assert gpu_check.main(arguments) == 0
    written = json.loads((tmp_path / "gpu_check.json").read_text("utf-8"))
    rows = {row["quantity"]: row for row in written["rows"]}
    assert rows["recompiles"]["verdict"] == "met"
    assert rows["one clip of 3 s"]["value"] > 0
    assert rows["device memory"]["verdict"] == "not measurable here"
    # 32 clips, at most 4 at a time: 1 + 2 + 4 refused, 8 answered
    assert rows["out of memory within the process's share"]["value"] == 15
    assert len(written["equality"]) >= 3
    assert "one clip of 3 s" in capsys.readouterr().out


@pytest.mark.usefixtures("one_thread")
def test_no_time_is_printed_where_company_changes_a_result(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gpu_check, "company", lambda *_: Distance(0.1, 0.1, 1.0))
    assert gpu_check.main(["--size", "tiny", "--device", "cpu"]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "the outputs differ" in printed.err


def test_it_needs_four_packages_only() -> None:
    code = (
        "import sys\n"
        f"for name in {REFUSED}: sys.modules[name] = None\n"
        "from benchmarks import gpu_check\n"
        "from benchmarks.random_model import random_checkpoint, engine_of\n"
        "from benchmarks.clips import clip\n"
        "import torch\n"
        "engine = engine_of(random_checkpoint('tiny'), torch.device('cpu'), torch.float32)\n"
        "print(engine.infer([clip(0.5)])[0].label)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
