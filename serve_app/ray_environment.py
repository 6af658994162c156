"""What Ray Serve reads from the environment.

Each value is set where only those read it whom it is for: a router on the caller's own loop, for
one, would take from every other job on the cluster the handle calls that are not asynchronous.
"""

from engine import memory

MAX_MESSAGE = {"RAY_SERVE_REPLICA_GRPC_MAX_MESSAGE_LENGTH": str(2**31 - 1)}
"""An answer with the embeddings of many frames is more than gRPC's default of 4 MB."""

LARGE_BLOCKS_RETURN = {
    "MALLOC_ARENA_MAX": "2",
    "MALLOC_MMAP_THRESHOLD_": str(2**20),
    "MALLOC_TRIM_THRESHOLD_": str(2**20),
}
"""Uploads pass through proxy and ingress in blocks of many MiB, which glibc by default learns to
keep (measured after two bodies of 109 MiB: the ingress holds 191 instead of 86 MiB). With the first
limit set it no longer adapts the second, and would return and fetch anew the pages of every block
that a socket is read into (measured, with 8 MiB kept: 0.29 against 0.11 ms for a refusal of 320 kB;
but with so much a two-hour file takes 201 instead of 173 MiB at its peak in the ingress)."""

BODIES_RETURN = {**LARGE_BLOCKS_RETURN, "MALLOC_MMAP_THRESHOLD_": str(2**17)}
"""For the ingress, which holds whole bodies of all sizes: those below a MiB would leave holes in
the heap that take half an hour to fill (in mixed traffic: 103–124 MiB, so 96–111)."""

LARGE_BLOCKS_STAY = {
    "MALLOC_ARENA_MAX": "8",
    **{name: str(value) for name, (_, value) in memory.SETTINGS.items()},
}
"""The opposite, for whoever needs the same blocks again for each clip."""

REPLICA_ENVIRONMENT = {
    **MAX_MESSAGE,
    # nothing in the deployments blocks an event loop, so one loop for everything is enough
    "RAY_SERVE_RUN_ROUTER_IN_SEPARATE_LOOP": "0",
    "RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD": "0",
    # what a replica said it holds is work of other ingresses as well, and nobody tells of its end:
    # by default one model replica stood idle for 10 s while the other had all that waited
    "RAY_SERVE_QUEUE_LENGTH_CACHE_TIMEOUT_S": "1",
}
"""For the replicas of this application; part of it, wherever it runs."""

NODE_ENVIRONMENT = {
    **MAX_MESSAGE,
    "RAY_SERVE_PROXY_USE_GRPC": "1",
    # a lost proxy is noticed after three periods; the default is 10 s each
    "RAY_SERVE_PROXY_HEALTH_CHECK_PERIOD_S": "2",
    "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH": "serve_app.http.proxy.middlewares",
}
"""For the proxies and the controller: set before a node starts. The cluster files hold the same
values; a test compares them."""

SHARED_CORES = {
    # steps of a start, of a roll and of scaling are up to 0.4 s later than with the default of 0.1
    "RAY_SERVE_CONTROL_LOOP_INTERVAL_S": "0.5",
    # by default one idle worker per core stays for ever; so each has a minute to get new work
    "RAY_num_workers_soft_limit": "0",
    "RAY_idle_worker_killing_time_threshold_ms": "60000",
    # they leave the node every ten seconds
    "RAY_SERVE_METRICS_EXPORT_INTERVAL_MS": "1000",
}
"""For a Ray of our own, whose processes share the cores with the model: whatever they do while
nothing happens is taken from it (measured: 12.2 % of a core, 8.2 % with these)."""
