"""The KubeRay file: schemas, and what has to fit together."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from kube import check_document
from typos import is_label, key_paths, misspelt, path_name

from serve_app.ray_environment import NODE_ENVIRONMENT

pytest.importorskip("kubernetes_validate", reason="needs kubernetes-validate")

FILE = Path(__file__).parents[3] / "cluster" / "kuberay.yaml"
DOCUMENTS: list[dict[str, Any]] = list(yaml.safe_load_all(FILE.read_text("utf-8")))
NAMES = [f"{document['kind']}/{document['metadata']['name']}" for document in DOCUMENTS]
SERVICE = DOCUMENTS[0]
CLUSTER = SERVICE["spec"]["rayClusterConfig"]
GROUPS = [CLUSTER["headGroupSpec"], *CLUSTER["workerGroupSpecs"]]
CONTAINERS = [group["template"]["spec"]["containers"][0] for group in GROUPS]
INTERNAL_PORTS = {6379, 8265, 10001, 52365, 8404, 9101, 8080}


def named(kind: str, name: str) -> dict[str, Any]:
    return DOCUMENTS[NAMES.index(f"{kind}/{name}")]


@pytest.mark.parametrize("document", DOCUMENTS, ids=NAMES)
def test_no_fault(document: dict[str, Any]) -> None:
    assert check_document(document) == []


TYPOS = [
    (index, keys)
    for index, document in enumerate(DOCUMENTS)
    for keys in key_paths(document)
    if not is_label(keys[-1])
]


@pytest.mark.parametrize(
    ("index", "keys"), TYPOS, ids=[f"{NAMES[index]}:{path_name(keys)}" for index, keys in TYPOS]
)
def test_a_typo_in_any_key_is_caught(index: int, keys: tuple[str | int, ...]) -> None:
    assert check_document(misspelt(DOCUMENTS[index], keys))


def test_a_typo_in_the_serve_config_inside_is_caught() -> None:
    serve = yaml.safe_load(SERVICE["spec"]["serveConfigV2"])
    for keys in key_paths(serve):
        text = yaml.safe_dump(misspelt(serve, keys))
        broken = {**SERVICE, "spec": {**SERVICE["spec"], "serveConfigV2": text}}
        assert check_document(broken), path_name(keys)


def pod_templates(value: Any) -> list[dict[str, Any]]:
    if isinstance(value, list):
        return [found for item in value for found in pod_templates(item)]
    if not isinstance(value, dict):
        return []
    below = [found for child in value.values() for found in pod_templates(child)]
    return below + ([value["template"]] if "template" in value else [])


def selectors(value: Any) -> list[dict[str, str]]:
    """Every selector of pods, but those of namespaces and of other people's pods."""
    if isinstance(value, list):
        return [found for item in value for found in selectors(item)]
    if not isinstance(value, dict):
        return []
    found = []
    for key, child in value.items():
        if key in ("podSelector", "labelSelector", "selector"):
            found.append(child.get("matchLabels", child))
        else:
            found += selectors(child)
    return found


OTHERS = [
    {"app.kubernetes.io/name": "kuberay-operator"},
    {"ray.io/node-type": "redis-cleanup"},
]


def selecting_nothing(documents: list[dict[str, Any]]) -> list[dict[str, str]]:
    pods = [template["metadata"]["labels"] for template in pod_templates(documents)]
    return [
        selector
        for selector in selectors(documents)
        if selector not in OTHERS and not any(selector.items() <= pod.items() for pod in pods)
    ]


def pods_without_policy(documents: list[dict[str, Any]]) -> list[dict[str, str]]:
    policies = [document for document in documents if document["kind"] == "NetworkPolicy"]
    chosen = [policy["spec"]["podSelector"]["matchLabels"].items() for policy in policies]
    pods = [template["metadata"]["labels"] for template in pod_templates(documents)]
    return [pod for pod in pods if not any(labels <= pod.items() for labels in chosen)]


def test_every_pod_is_behind_a_network_policy() -> None:
    assert len(pod_templates(DOCUMENTS)) == 3
    assert pods_without_policy(DOCUMENTS) == []


def test_every_selector_selects_something() -> None:
    assert len(selectors(DOCUMENTS)) == 10
    assert selecting_nothing(DOCUMENTS) == []


@pytest.mark.parametrize(
    "keys",
    [
        keys
        for keys in key_paths(DOCUMENTS)
        if is_label(keys[-1]) and "namespaceSelector" not in keys
    ],
    ids=path_name,
)
def test_a_typo_in_a_label_is_caught(keys: tuple[str | int, ...]) -> None:
    broken = misspelt(DOCUMENTS, keys)
    assert selecting_nothing(broken) or pods_without_policy(broken)


def test_only_the_serving_port_is_open_to_clients() -> None:
    policy = named("NetworkPolicy", "emotion2vec-ray")["spec"]
    assert policy["policyTypes"] == ["Ingress"]
    ray_pods = policy["podSelector"]
    for rule in policy["ingress"]:
        if rule["from"] == [{"podSelector": ray_pods}]:
            continue
        [origin] = rule["from"]
        ports = {port["port"] for port in rule["ports"]}
        if "podSelector" in origin:
            assert origin["podSelector"]["matchLabels"] == OTHERS[0]
            assert ports == {8265, 8000}
        elif "emotion2vec.serve/clients" in origin["namespaceSelector"]["matchLabels"]:
            assert ports == {8000}
            assert not ports & INTERNAL_PORTS
        else:
            assert ports == {8080, 9101}


def test_no_service_is_reachable_from_outside_the_cluster() -> None:
    assert CLUSTER["headGroupSpec"]["serviceType"] == "ClusterIP"
    for document in DOCUMENTS:
        if document["kind"] == "Service":
            assert document["spec"].get("type", "ClusterIP") == "ClusterIP"
        assert document["kind"] != "Ingress"
    for group in GROUPS:
        assert "hostNetwork" not in group["template"]["spec"]
    for container in CONTAINERS:
        assert all("hostPort" not in port for port in container["ports"])


def test_ray_asks_for_a_token_from_a_secret() -> None:
    assert CLUSTER["authOptions"] == {"mode": "token", "secretName": "emotion2vec-ray"}
    for container in CONTAINERS:
        env = {item["name"]: item for item in container["env"]}
        assert env["RAY_AUTH_MODE"]["value"] == "token"
        reference = env["RAY_AUTH_TOKEN"]["valueFrom"]["secretKeyRef"]
        assert reference == {"name": "emotion2vec-ray", "key": "auth_token"}
    assert not [document for document in DOCUMENTS if document["kind"] == "Secret"]


def test_the_environment_is_known_to_ray() -> None:
    import ray

    folder = Path(ray.__file__).parent
    serve = (folder / "serve" / "_private" / "constants.py").read_text("utf-8")
    setup = (folder / "_private" / "authentication" / "authentication_token_setup.py").read_text()
    native = (folder / "_raylet.so").read_bytes()
    for item in CONTAINERS[0]["env"]:
        name = item["name"]
        config_name = name.removeprefix("RAY_").encode()
        assert name in serve or name in setup or name.encode() in native or config_name in native
        assert (name + "S") not in serve


def test_every_node_has_the_environment_of_a_local_start() -> None:
    for container in CONTAINERS:
        values = {item["name"]: item.get("value") for item in container["env"]}
        assert values.items() >= NODE_ENVIRONMENT.items()


def test_probes_ask_paths_that_need_no_token() -> None:
    from ray.dashboard.http_server_agent import PUBLIC_EXACT_PATHS

    head, worker = CONTAINERS
    agent_port = 52365
    for container in CONTAINERS:
        live = container["livenessProbe"]["httpGet"]
        assert (live["path"] in PUBLIC_EXACT_PATHS, live["port"]) == (True, agent_port)
    ready = head["readinessProbe"]["httpGet"]
    assert (ready["path"], ready["port"]) == ("/api/gcs_healthz", 8265)
    serving = worker["readinessProbe"]["httpGet"]
    assert (serving["path"], serving["port"]) == ("/-/healthz", 8000)


def test_pods_are_not_root_and_cannot_become_it() -> None:
    redis = named("StatefulSet", "emotion2vec-redis")["spec"]["template"]["spec"]
    for spec in [*(group["template"]["spec"] for group in GROUPS), redis]:
        assert spec["securityContext"]["runAsNonRoot"]
        for container in spec["containers"]:
            assert not container["securityContext"]["allowPrivilegeEscalation"]
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_a_worker_may_drain_before_it_is_killed() -> None:
    spec = CLUSTER["workerGroupSpecs"][0]["template"]["spec"]
    [_, _, command] = spec["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
    assert command == "sleep 30 && ray stop --grace-period 60"
    assert spec["terminationGracePeriodSeconds"] > 30 + 60


def test_the_cards_hold_what_the_serve_config_asks_for() -> None:
    [application] = yaml.safe_load(SERVICE["spec"]["serveConfigV2"])["applications"]
    args = application["args"]
    for cards, replicas in (
        ("minReplicas", "model_min_replicas"),
        ("maxReplicas", "model_max_replicas"),
    ):
        asked = args[replicas] * args["model_gpus"] + args["preprocess_gpus"]
        assert asked <= CLUSTER["workerGroupSpecs"][0][cards] + 1e-9


def test_ray_has_the_version_that_is_installed() -> None:
    import ray

    assert CLUSTER["rayVersion"] == ray.__version__
    assert CLUSTER["enableInTreeAutoscaling"]
    assert CLUSTER["gcsFaultToleranceOptions"]["redisAddress"].endswith("emotion2vec-redis:6379")
