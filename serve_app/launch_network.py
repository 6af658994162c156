"""Ports and addresses, looked at before anything is started and while it comes up."""

import http.client
import re
import socket

CONNECT_SECONDS = 5.0
WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}


class LaunchError(Exception):
    """A start that failed; the message is one line."""


def reachable_host(host: str) -> str:
    """The address by which this machine reaches a server that listens on `host`."""
    return WILDCARDS.get(host, host)


def check_port(host: str, port: int) -> None:
    """Raise LaunchError where a server could not listen."""
    try:
        family, kind, _, _, target = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(target)
    except OSError as error:
        raise LaunchError(f"cannot listen on {host} port {port}: {error.strerror}") from None


def check_cluster(address: str) -> None:
    """Raise LaunchError where HOST:PORT does not answer; Ray itself would try for minutes."""
    if (parts := re.fullmatch(r"\[?([\w.:-]+?)\]?:(\d+)", address)) is None:
        return
    try:
        socket.create_connection((parts[1], int(parts[2])), CONNECT_SECONDS).close()
    except OSError as error:
        reason = error.strerror or "no answer"
        raise LaunchError(f"no Ray cluster at {address}: {reason}") from None


def health(host: str, port: int) -> bool:
    """Whether `GET /health` answers 200."""
    connection = http.client.HTTPConnection(host, port, timeout=CONNECT_SECONDS)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
