"""Where and with what a benchmark ran."""

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("torch", "torchaudio", "ray", "funasr", "av", "litserve", "numpy", "safetensors")
ROOT = Path(__file__).parents[1]


def describe() -> dict[str, Any]:
    """Machine, load, versions and revision as plain values."""
    import torch

    from engine.threads import cpu_threads

    facts: dict[str, Any] = {
        "revision": revision(),
        "cpu": f"{cpu_name()}, {cpu_threads(0)} cores to use",
        "cpu features": cpu_features(),
        "memory": f"{_memory_bytes() / 2**30:.0f} GiB",
        "load before the run": load_average(),
        "python": f"{platform.python_version()} on {platform.system()} {platform.release()}",
        "versions": ", ".join(f"{name} {_version(name)}" for name in PACKAGES),
    }
    if torch.cuda.is_available():
        card = torch.cuda.get_device_properties(0)
        facts["gpu"] = (
            f"{card.name}, {card.total_memory / 2**30:.0f} GiB, CUDA {torch.version.cuda}"
        )
    else:
        facts["gpu"] = "none"
    return facts


def load_average() -> str:
    """Of the last 1, 5 and 15 minutes."""
    return " / ".join(f"{load:.2f}" for load in os.getloadavg())


def revision() -> str:
    """The commit of the code, and whether files were changed since; "unknown" without git."""
    try:
        commit = _git("rev-parse", "--short=12", "HEAD")
        changed = _git("status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return commit + (" with changes" if changed else "")


def cpu_name() -> str:
    """The processor's own name where the system tells it.

    With family and model, for a virtual machine may name only the maker: two generations with
    half and twice the product rate would be one device.
    """
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    pairs = (line.partition(":") for line in lines)
    # of the first processor
    facts = {key.strip(): value.strip() for key, _, value in reversed(list(pairs))}
    name = facts.get("model name", platform.machine())
    if {"cpu family", "model"} <= set(facts):
        name += f" (family {facts['cpu family']}, model {facts['model']})"
    return name


def cpu_features() -> str:
    """Which of the matrix instructions that matter here the CPU has."""
    import torch

    found = {
        "AVX-512": torch.backends.cpu.get_cpu_capability() == "AVX512",
        "AVX-512-BF16": torch.cpu._is_avx512_bf16_supported(),
        "AMX": torch.cpu._is_amx_tile_supported(),
    }
    return ", ".join(f"{name} {'yes' if has else 'no'}" for name, has in found.items())


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
