"""What Serve's status says about a start: running, failed, or without room.

An application that does not fit stays DEPLOYING for ever, and Serve tries a failed replica
again and again: both are told here from one that only needs time.
"""

import ast
import re
from collections.abc import Mapping
from typing import Any

NO_ROOM = re.compile(
    r"Deployment '(?P<name>[^']+)'.*taken more than .* to be scheduled.*"
    r"Resources required for each replica: (?P<needed>\{.*?\}), total resources available",
    re.DOTALL,
)
MODEL_ERROR = re.compile(r"\bModelError: (.+)")
EXCEPTION = re.compile(r"^(?:[\w.]+\.)?\w*(?:Error|Exception): .+$", re.MULTILINE)


def failure(application: Any) -> str | None:
    """One line for an application (Serve's `ApplicationStatusOverview`) that will not start."""
    messages = [application.message, *(d.message for d in application.deployments.values())]
    for message in messages:
        # a model that cannot be loaded is no better at the second try
        if found := MODEL_ERROR.findall(message or ""):
            return str(found[-1]).strip()
    if application.status in ("DEPLOY_FAILED", "UNHEALTHY"):
        return "the application did not start: " + _last_error("\n".join(messages))
    return None


def _last_error(text: str) -> str:
    found = EXCEPTION.findall(text)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return str(found[-1]) if found else (lines or ["no reason given"])[-1]


def without_room(application: Any, available: Mapping[str, float]) -> str | None:
    """One line for a deployment that needs more than is `available` (resource → amount)."""
    for deployment in application.deployments.values():
        if found := NO_ROOM.search(deployment.message or ""):
            needed: dict[str, float] = ast.literal_eval(found["needed"])
            short = {k: v for k, v in needed.items() if v > available.get(k, 0.0)}
            if short:
                wanted = ", ".join(
                    f"{amount:g} {kind} ({available.get(kind, 0.0):g} free)"
                    for kind, amount in short.items()
                )
                return f"a replica of {found['name']} does not fit: it needs {wanted}"
    return None
