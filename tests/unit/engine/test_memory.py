"""Large blocks of memory stay with the process."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import ctypes, os, resource, sys
from engine.memory import keep_large_blocks

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
size, rounds = 20 * 2**20, 20
os.environ.update(argument.split("=") for argument in sys.argv[2:])
if sys.argv[1] == "keep":
    keep_large_blocks()

def use() -> None:
    blocks = [libc.malloc(size) for _ in range(3)]
    for block in blocks:
        ctypes.memset(block, 1, size)
    for block in blocks:
        libc.free(block)

use()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(rounds):
    use()
faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(faults * resource.getpagesize() / (3 * size * rounds))
"""


def made_anew(*arguments: str, **variables: str) -> float:
    """Share of the blocks whose pages the system had to make again."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("MALLOC_")} | variables
    command = [sys.executable, "-c", PROGRAM, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return float(done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="glibc")
def test_large_blocks_are_used_again() -> None:
    # a huge page is one fault, so the pages that are made are at least a few
    assert made_anew("keep") < made_anew("default") / 4


@pytest.mark.skipif(sys.platform != "linux", reason="glibc")
def test_the_environment_comes_first() -> None:
    own = {"MALLOC_MMAP_THRESHOLD_": str(2**20), "MALLOC_TRIM_THRESHOLD_": str(2**20)}
    assert made_anew("keep", **own) == pytest.approx(made_anew("default", **own), rel=0.5)


@pytest.mark.skipif(sys.platform != "linux", reason="glibc")
def test_what_was_set_since_is_for_others() -> None:
    # glibc reads it as a process starts, and has not seen this
    assert made_anew("keep", f"MALLOC_TRIM_THRESHOLD_={2**20}") < made_anew("default") / 4
