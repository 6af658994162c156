"""The file of Ray's cluster launcher: Ray's own schema, and what it leaves open."""

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import ray.autoscaler
import yaml
from ray.autoscaler._private.util import prepare_config, validate_config
from ray.scripts.scripts import start as ray_start
from typos import key_paths, misspelt, path_name

from serve_app.ray_environment import NODE_ENVIRONMENT

FILE = Path(__file__).parents[3] / "cluster" / "ray_cluster.yaml"
DOCUMENT: dict[str, Any] = yaml.safe_load(FILE.read_text("utf-8"))
NODE_TYPES = DOCUMENT["available_node_types"]
RESOURCES = {"CPU", "GPU", "memory", "object_store_memory"}

# free-form to Ray: handed to EC2's RunInstances as it is
NODE_CONFIG = {
    "type": "object",
    "additionalProperties": False,
    "required": ["InstanceType"],
    "properties": {
        "InstanceType": {"type": "string"},
        "ImageId": {"type": "string"},
        "KeyName": {"type": "string"},
        "SubnetIds": {"type": "array"},
        "IamInstanceProfile": {"type": "object"},
        "InstanceMarketOptions": {"type": "object"},
        "BlockDeviceMappings": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["DeviceName", "Ebs"],
                "properties": {
                    "DeviceName": {"type": "string"},
                    "Ebs": {
                        "type": "object",
                        "additionalProperties": False,
                        "required": ["VolumeSize"],
                        "properties": {
                            "VolumeSize": {"type": "integer"},
                            "VolumeType": {"enum": ["gp3", "io2"]},
                        },
                    },
                },
            },
        },
    },
}
AWS = {"type", "region", "availability_zone", "cache_stopped_nodes", "security_group"}


def check(document: dict[str, Any]) -> None:
    """Raise for any fault."""
    schema = json.loads((Path(ray.autoscaler.__file__).parent / "ray-schema.json").read_text())
    jsonschema.validate(document, schema)
    assert set(document["provider"]) <= AWS
    assert not set(document["file_mounts"]) - {"/home/ray/.ray/auth_token"}
    assert document["head_node_type"] in document["available_node_types"]
    for node_type in document["available_node_types"].values():
        jsonschema.validate(node_type["node_config"], NODE_CONFIG)
        assert set(node_type["resources"]) <= RESOURCES
    for name in ("max_workers", "idle_timeout_minutes", "docker", "auth", "provider"):
        assert document[name]
    for role in ("head", "worker"):
        assert document[f"{role}_start_ray_commands"]


def test_no_fault() -> None:
    check(DOCUMENT)
    validate_config(prepare_config(DOCUMENT))


NAMES_OF_NODE_TYPES = ("available_node_types", "gpu_worker")
"""Any name will do, and nothing refers to this one."""


@pytest.mark.parametrize(
    "keys",
    [keys for keys in key_paths(DOCUMENT) if keys != NAMES_OF_NODE_TYPES],
    ids=path_name,
)
def test_a_typo_in_any_key_is_caught(keys: tuple[str | int, ...]) -> None:
    with pytest.raises((jsonschema.ValidationError, AssertionError, KeyError)):
        check(misspelt(DOCUMENT, keys))


def start_commands() -> list[str]:
    commands = DOCUMENT["head_start_ray_commands"] + DOCUMENT["worker_start_ray_commands"]
    return [command for command in commands if "ray start" in command]


def test_ray_start_knows_the_options() -> None:
    known = {option for parameter in ray_start.params for option in parameter.opts}
    assert len(start_commands()) == 2
    for command in start_commands():
        options = set(re.findall(r"(--[a-z-]+)", command.split("ray start", 1)[1]))
        assert options
        assert options <= known


def test_every_node_asks_for_the_token_and_starts_the_same_proxy() -> None:
    serve = (Path(ray.__file__).parent / "serve" / "_private" / "constants.py").read_text()
    environments = [dict(re.findall(r"(RAY_\w+)=([\w.]+)", c)) for c in start_commands()]
    assert environments[0] == environments[1]
    assert environments[0]["RAY_AUTH_MODE"] == "token"
    assert environments[0].items() >= NODE_ENVIRONMENT.items()
    for name in set(environments[0]) - {"RAY_AUTH_MODE"}:
        assert f'"{name}"' in serve


def test_the_dashboard_stays_on_the_head() -> None:
    [head, _] = start_commands()
    assert "--dashboard-host=127.0.0.1" in head
    assert NODE_TYPES["head"]["resources"] == {"CPU": 0}
