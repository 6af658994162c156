"""`python -m cluster.check_config FILE…`: a Serve config file, down to the last key.

Ray Serve passes over keys that it does not know, so a typo there is a setting silently lost.
"""

import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError

from cluster.autoscaling import AudioWorkPolicy
from cluster.scaled import POLICY_PATH
from serve_app.settings import Settings

IMPORT_PATH = "serve_app:build"
LIVE_LIMITS = {"Model": {"max_batch_frames"}}
"""Keys of `user_config` by deployment."""


def check_serve_config(document: Any) -> list[str]:
    """Faults of a Serve config document, one line each; empty where there is none."""
    from ray.serve.schema import ServeDeploySchema

    faults = list(_unknown_keys(document, ServeDeploySchema, ""))
    try:
        ServeDeploySchema.model_validate(document)
    except (ValidationError, ValueError) as error:
        return [*faults, *_lines(error, "")]
    for application in document["applications"]:
        if application["import_path"] == IMPORT_PATH:
            faults += _check_application(application)
    return faults


def _check_application(application: dict[str, Any]) -> Iterator[str]:
    where = f"application {application.get('name')}"
    try:
        Settings(**application.get("args", {}))
    except ValidationError as error:
        yield from _lines(error, f"{where}: args.")
    for deployment in application.get("deployments", []):
        name = deployment["name"]
        unknown = set(deployment.get("user_config") or {}) - LIVE_LIMITS.get(name, set())
        yield from (f"{where}: {name}: user_config.{key}: unknown key" for key in sorted(unknown))
        yield from _check_policy(deployment, f"{where}: {name}")


def _check_policy(deployment: dict[str, Any], where: str) -> Iterator[str]:
    policy = (deployment.get("autoscaling_config") or {}).get("policy") or {}
    if policy.get("policy_function") == POLICY_PATH:
        try:
            AudioWorkPolicy(**policy.get("policy_kwargs", {}))
        except ValueError as error:
            yield f"{where}: {error}"


def _unknown_keys(value: Any, model: type[BaseModel], where: str) -> Iterator[str]:
    if not isinstance(value, dict):
        return
    for key, child in value.items():
        if key not in model.model_fields:
            yield f"{where}{key}: unknown key"
            continue
        for inner in _models(model.model_fields[key].annotation):
            children = child if isinstance(child, list) else [child]
            for index, item in enumerate(children):
                number = f"[{index}]" if isinstance(child, list) else ""
                yield from _unknown_keys(item, inner, f"{where}{key}{number}.")


def _models(annotation: Any) -> list[type[BaseModel]]:
    """Pydantic models inside an annotation such as `list[X]` or `dict | X | None`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    if get_origin(annotation) in (Union, types.UnionType, list):
        return [model for part in get_args(annotation) for model in _models(part)]
    return []


def _lines(error: ValueError, prefix: str) -> Iterator[str]:
    if isinstance(error, ValidationError):
        for fault in error.errors():
            yield f"{prefix}{'.'.join(str(part) for part in fault['loc'])}: {fault['msg']}"
    else:
        yield f"{prefix}{error}"


def main(paths: list[str]) -> int:
    """Print the faults of each file; the exit code."""
    faults = [
        f"{path}: {fault}"
        for path in paths
        for fault in check_serve_config(yaml.safe_load(Path(path).read_text("utf-8")))
    ]
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
