"""How many threads the encoder should use on a CPU."""

import os


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
