"""The client is light, and the wheel holds what runs and nothing else."""

import subprocess
import sys
import tomllib
from importlib.resources import files
from pathlib import Path

import pytest
from setuptools import find_packages

ROOT = Path(__file__).parents[3]
BLOCKED = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked!r}:
            raise ImportError(name + " is blocked")
sys.meta_path.insert(0, Block())
"""


def run_without(blocked: tuple[str, ...], code: str) -> subprocess.CompletedProcess[str]:
    script = BLOCKED.format(blocked=blocked) + code
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)


def test_the_client_needs_neither_torch_nor_ray() -> None:
    heavy = ("torch", "torchaudio", "ray", "numpy", "av", "engine", "deployments", "serve_app")
    done = run_without(heavy, "from client import *; Client().close()")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", ["--help", "serve --help", "predict --help", "info --help"])
def test_help_imports_nothing_heavy(command: str) -> None:
    code = f"from client.cli import main; main({command.split()!r})"
    done = run_without(("torch", "ray", "numpy", "av"), code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("usage: e2v")


def test_the_wheel_holds_the_product_and_nothing_else() -> None:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    packages = find_packages(str(ROOT), include=config["packages"]["find"]["include"])
    tops = {package.partition(".")[0] for package in packages}
    assert tops <= {"engine", "deployments", "serve_app", "client", "cluster"}
    assert {"client.commands", "engine.audio", "serve_app.http"} <= set(packages)


def test_the_sample_is_package_data() -> None:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    assert config["package-data"]["serve_app"] == ["assets/*"]
    sample = files("serve_app") / "assets" / "sample.wav"
    assert 32_000 < len(sample.read_bytes()) < 150_000
