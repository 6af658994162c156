"""`e2v info`: what a server runs, or what this machine would run it with."""

import argparse
import json
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from client.client import DEFAULT_URL, Client
from client.commands import CommandError
from client.errors import ApiError

PACKAGES = ("emotion2vec-serve", "torch", "torchaudio", "ray", "av", "safetensors", "funasr")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of the command."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--url", default=DEFAULT_URL, help="server (default: %(default)s)")
    where.add_argument(
        "--local", action="store_true", help="this machine instead: versions, device, precision"
    )


def run(options: argparse.Namespace) -> int:
    """Print one JSON object."""
    print(json.dumps(local() if options.local else remote(options.url), indent=2))
    return 0


def remote(url: str) -> dict[str, Any]:
    """`GET /info` of a server."""
    try:
        with Client(url, retries=0) as client:
            return client.info()
    except ApiError as error:
        raise CommandError(str(error)) from None


def local() -> dict[str, Any]:
    """Versions, and what `auto` means on this machine."""
    import torch

    from engine.hub import cache_directory
    from engine.precision import choose_device, choose_dtype

    device = choose_device("auto")
    cuda = device.type == "cuda"
    return {
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in PACKAGES},
        "device": torch.cuda.get_device_name(device) if cuda else "cpu",
        "dtype": str(choose_dtype("auto", device)).removeprefix("torch."),
        "cpu_threads": torch.get_num_threads(),
        "models": str(cache_directory()),
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
