"""A Ray of our own on this machine: started closed to others, stopped without a trace."""

import contextlib
import ctypes
import logging
import os
import secrets
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from serve_app.ray_environment import LARGE_BLOCKS_RETURN, NODE_ENVIRONMENT, SHARED_CORES
from serve_app.settings import APP_NAME

STOP_SECONDS = 15.0
SET_CHILD_SUBREAPER = 36
LOOPBACK_ONLY = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""Makes 127.0.0.1 the node's address on every system: Ray's ports are bound to it, and a change
of network cannot take it away. Without it Ray replaces 127.0.0.1 by the machine's own address."""

LONGEST_TEMP_PATH = 40
"""Ray puts sockets about 60 characters below; a socket's path ends at 107."""


class LocalRay:
    """Ray processes that belong to this one.

    Ray's own ports listen on every interface, and its control port runs code: hence a token.
    """

    def __init__(self, haproxy: bool) -> None:
        self.directory = _temp_directory()
        self._own_token = _prepare_environment(self.directory, haproxy)
        self._processes: list[Any] = []

    def start(self) -> None:
        """Start the node and connect; the environment is part of it from here on."""
        _adopt_orphans()
        import ray

        ray.init(
            # without it, `RAY_ADDRESS` in the environment would mean somebody else's Ray
            address="local",
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            _temp_dir=str(self.directory),
        )
        self._processes = [p for p in _family() if p.name() in ("raylet", "gcs_server")]

    def alive(self) -> bool:
        """Whether the node's two main processes run."""
        import psutil

        return all(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in self._processes)

    def how_to_join(self) -> str:
        """Environment with which another Ray job on this machine reaches the handle."""
        import ray

        variables = {
            "RAY_ADDRESS": ray.get_runtime_context().gcs_address,
            "RAY_AUTH_MODE": "token",
            **LOOPBACK_ONLY,
        }
        if self._own_token:
            variables["RAY_AUTH_TOKEN_PATH"] = os.environ["RAY_AUTH_TOKEN_PATH"]
        return " ".join(f"{name}={value}" for name, value in variables.items())

    def stop(self, at_once: Callable[[], bool], drain: bool) -> bool:
        """Stop Ray and end whatever is left of it, within `STOP_SECONDS`.

        Args:
            at_once: asked while waiting; true cuts the orderly part short.
            drain: let the replicas answer what they have begun.

        Returns:
            Whether Ray's own stop came to its end. If not, its threads in this process have lost
            their peers and only `os._exit` is safe.
        """
        import psutil

        orderly = threading.Thread(target=_shut_down, args=(drain,), daemon=True)
        orderly.start()
        deadline = time.monotonic() + STOP_SECONDS
        while orderly.is_alive() and time.monotonic() < deadline and not at_once():
            orderly.join(0.1)
        left = _family()
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(left, timeout=5)
        shutil.rmtree(self.directory, ignore_errors=True)
        return not orderly.is_alive()


def _temp_directory() -> Path:
    base = tempfile.gettempdir()
    return Path(
        tempfile.mkdtemp(prefix="e2v-", dir=base if len(base) < LONGEST_TEMP_PATH else "/tmp")
    )


def _prepare_environment(directory: Path, haproxy: bool) -> bool:
    """What Ray reads from the environment; must come before its import. True: made a token."""
    os.environ.update(
        RAY_AUTH_MODE="token",
        RAY_USAGE_STATS_ENABLED="0",
        # Ray's default of 15 would let every other program on the machine go first
        RAY_worker_niceness="0",
        **LOOPBACK_ONLY,
        **NODE_ENVIRONMENT,
        **SHARED_CORES,
        # for the proxy; on a cluster it would slow other people's jobs down
        **LARGE_BLOCKS_RETURN,
        RAY_SERVE_SLOW_STARTUP_WARNING_S="5",
        RAY_SERVE_SLOW_STARTUP_WARNING_PERIOD_S="5",
    )
    if haproxy:
        os.environ.update(
            RAY_SERVE_ENABLE_HA_PROXY="1",
            # how long a replica that is told to stop waits for callers that may still come
            RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S="1",
            RAY_SERVE_HAPROXY_CONFIG_FILE_LOC=str(directory / "haproxy" / "haproxy.cfg"),
            RAY_SERVE_HAPROXY_SOCKET_PATH=str(directory / "haproxy" / "admin.sock"),
            RAY_SERVE_HAPROXY_SERVER_STATE_BASE=str(directory / "haproxy"),
            RAY_SERVE_HAPROXY_SERVER_STATE_FILE=str(directory / "haproxy" / "server-state"),
        )
    if {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"} & set(os.environ):
        return False
    token = directory / "token"
    token.touch(mode=0o600)
    token.write_text(secrets.token_hex(32))
    os.environ["RAY_AUTH_TOKEN_PATH"] = str(token)
    return True


def _adopt_orphans() -> None:
    """Become the parent of Ray's grandchildren whose parents end, so that none is lost."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _family() -> list[Any]:
    """Every process below this one."""
    import psutil

    children: list[Any] = psutil.Process().children(recursive=True)
    return children


def _shut_down(drain: bool) -> None:
    import ray
    from ray import serve

    # its threads complain of the connections that end here
    logging.getLogger("ray").setLevel(logging.CRITICAL)
    # a Ray that has failed already cannot be asked to stop; its processes are ended all the same
    with contextlib.suppress(Exception):
        if drain:
            # unlike `serve.shutdown`, which cuts the proxy first, this lets requests end
            serve.delete(APP_NAME)
    with contextlib.suppress(Exception):
        ray.shutdown()
