"""Validators for Kubernetes documents, and for KubeRay's RayService around pod templates.

Core objects are checked against Kubernetes' own schemas in their strict form, in which an
unknown key is a fault. The fields of `ray.io/v1` are written down here after KubeRay 1.6's API
reference (Apache-2.0); what is a core object inside them goes to Kubernetes' schemas.
"""

from functools import cache
from typing import Any

import jsonschema
import pytest
import yaml
from ray.scripts.scripts import start as ray_start

from cluster.check_config import check_serve_config

KUBERNETES = "1.32"
RESOURCES = {"cpu", "memory", "storage", "nvidia.com/gpu"}

STRING, INTEGER, BOOLEAN = {"type": "string"}, {"type": "integer"}, {"type": "boolean"}
STRINGS = {"type": "object", "additionalProperties": STRING}
ANY_OBJECT = {"type": "object"}


def fields(*required: str, **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "required": list(required),
        "additionalProperties": False,
        "properties": properties,
    }


def choice(*values: str) -> dict[str, Any]:
    return {"enum": list(values)}


CREDENTIAL = fields(value=STRING, valueFrom=ANY_OBJECT)
GROUP = {"rayStartParams": STRINGS, "template": ANY_OBJECT, "resources": STRINGS, "labels": STRINGS}
CLUSTER = fields(
    "headGroupSpec",
    rayVersion=STRING,
    suspend=BOOLEAN,
    managedBy=STRING,
    enableInTreeAutoscaling=BOOLEAN,
    headServiceAnnotations=STRINGS,
    authOptions=fields(mode=choice("disabled", "token"), secretName=STRING),
    autoscalerOptions=fields(
        version=choice("v1", "v2"),
        resources=ANY_OBJECT,
        image=STRING,
        imagePullPolicy=STRING,
        env={"type": "array"},
        envFrom={"type": "array"},
        volumeMounts={"type": "array"},
        securityContext=ANY_OBJECT,
        idleTimeoutSeconds=INTEGER,
        upscalingMode=choice("Default", "Aggressive", "Conservative"),
    ),
    gcsFaultToleranceOptions=fields(
        redisAddress=STRING,
        redisUsername=CREDENTIAL,
        redisPassword=CREDENTIAL,
        externalStorageNamespace=STRING,
    ),
    headGroupSpec=fields(
        "template",
        serviceType=choice("ClusterIP", "NodePort", "LoadBalancer"),
        headService=ANY_OBJECT,
        enableIngress=BOOLEAN,
        **GROUP,
    ),
    workerGroupSpecs={
        "type": "array",
        "items": fields(
            "groupName",
            "template",
            "minReplicas",
            "maxReplicas",
            groupName=STRING,
            replicas=INTEGER,
            minReplicas=INTEGER,
            maxReplicas=INTEGER,
            idleTimeoutSeconds=INTEGER,
            numOfHosts=INTEGER,
            suspend=BOOLEAN,
            scaleStrategy=ANY_OBJECT,
            **GROUP,
        ),
    },
)
RAY_SERVICE = fields(
    "apiVersion",
    "kind",
    "metadata",
    "spec",
    apiVersion=choice("ray.io/v1"),
    kind=choice("RayService"),
    metadata=ANY_OBJECT,
    spec=fields(
        "rayClusterConfig",
        "serveConfigV2",
        serveConfigV2=STRING,
        rayClusterConfig=CLUSTER,
        rayClusterDeletionDelaySeconds=INTEGER,
        excludeHeadPodFromServeSvc=BOOLEAN,
        suspend=BOOLEAN,
        managedBy=STRING,
        serveService=ANY_OBJECT,
        upgradeStrategy=fields(
            type=choice("NewCluster", "NewClusterWithIncrementalUpgrade", "None"),
            clusterUpgradeOptions=ANY_OBJECT,
        ),
    ),
)


@cache
def core_validator(kind: str, api_version: str) -> Any:
    """Kubernetes' strict schema of one kind."""
    utils = pytest.importorskip("kubernetes_validate.utils", reason="needs kubernetes-validate")
    referencing = pytest.importorskip("referencing")
    folder = f"kubernetes-json-schema/v{_version(utils)}-local-strict"
    group = api_version.replace(".k8s.io/", "-").replace("/", "-")
    schema = utils.schema_contents(f"{folder}/{kind.lower()}-{group}.json", KUBERNETES)
    definitions = utils.schema_contents(f"{folder}/_definitions.json", KUBERNETES)
    resources = [referencing.Resource.from_contents(part) for part in (schema, definitions)]
    registry = resources[0] @ (resources[1] @ referencing.Registry())
    return jsonschema.Draft202012Validator(schema, registry=registry)


def _version(utils: Any) -> str:
    fitting: list[str] = [v for v in utils.all_versions() if utils.major_minor(v) == KUBERNETES]
    return fitting[-1]


def check_document(document: dict[str, Any]) -> list[str]:
    """Faults of any document in the file."""
    if document.get("kind") == "RayService":
        return check_ray_service(document)
    return check_core(document)


def check_core(document: dict[str, Any]) -> list[str]:
    """Faults of a core object; kinds that do not exist are one."""
    try:
        validator = core_validator(document["kind"], document["apiVersion"])
    except (KeyError, FileNotFoundError) as error:
        return [f"no such kind: {error}"]
    faults = [f"{_path(error)}: {error.message}" for error in validator.iter_errors(document)]
    return faults + [f"{name}: no such resource" for name in _resource_names(document)]


def check_ray_service(document: dict[str, Any]) -> list[str]:
    """Faults of a RayService: its own fields, its pods, its `ray start`, its Serve config."""
    validator = jsonschema.Draft202012Validator(RAY_SERVICE)
    faults = [f"{_path(error)}: {error.message}" for error in validator.iter_errors(document)]
    if faults:
        return faults
    spec = document["spec"]
    faults += check_serve_config(yaml.safe_load(spec["serveConfigV2"]))
    cluster = spec["rayClusterConfig"]
    for group in [cluster["headGroupSpec"], *cluster.get("workerGroupSpecs", [])]:
        faults += check_core(_pod(group["template"]))
        faults += [f"ray start has no --{name}" for name in _unknown_options(group)]
    faults += check_core(_pod_with({"resources": _get(cluster, "autoscalerOptions", "resources")}))
    password = _get(cluster, "gcsFaultToleranceOptions", "redisPassword")
    faults += check_core(_pod_with({"env": [{"name": "PASSWORD", **password}]}))
    return faults + check_core(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": document["metadata"]}
    )


def _pod(template: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", **template}


def _pod_with(container: dict[str, Any]) -> dict[str, Any]:
    containers = [{"name": "any", "image": "any", **container}]
    return _pod({"metadata": {"name": "any"}, "spec": {"containers": containers}})


def _get(value: dict[str, Any], *keys: str) -> dict[str, Any]:
    for key in keys:
        value = value.get(key, {})
    return value


def _unknown_options(group: dict[str, Any]) -> set[str]:
    known = {option.lstrip("-") for parameter in ray_start.params for option in parameter.opts}
    return set(group.get("rayStartParams", {})) - known


def _resource_names(value: Any) -> list[str]:
    """Names under `requests` and `limits` that are no resource of ours."""
    if isinstance(value, list):
        return [name for item in value for name in _resource_names(item)]
    if not isinstance(value, dict):
        return []
    unknown = []
    for key, child in value.items():
        if key in ("requests", "limits") and isinstance(child, dict):
            unknown += sorted(set(child) - RESOURCES)
        unknown += _resource_names(child)
    return unknown


def _path(error: jsonschema.ValidationError) -> str:
    return ".".join(str(part) for part in error.absolute_path)
