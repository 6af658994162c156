"""How many threads the encoder should use on a CPU, and how urgent they are."""

import os
import sys
import threading


def cpu_threads(wanted: int) -> int:
    """`wanted`, or with 0 every core that this process may run on.

    Ray sets OMP_NUM_THREADS from a replica's `num_cpus`, which says where it may be placed,
    not how fast it should be: one thread for a fraction of a CPU.
    """
    if wanted:
        return wanted
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


START_NICENESS = 10
"""For what a start on a CPU computes: a replica that starts beside others, at a roll or because
there is more to do, gets what they leave of the cores and a tenth of what they do not."""


def give_way(niceness: int) -> None:
    """Let other threads go first, those of this process included.

    For the calling thread, the threads that it will start, and for good: only a privileged
    process can take it back. On Linux only: elsewhere a priority belongs to the whole process.
    """
    if niceness and sys.platform == "linux":
        own = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, own, os.getpriority(os.PRIO_PROCESS, own) + niceness)
