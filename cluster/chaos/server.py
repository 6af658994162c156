"""A server of its own for the load: started, changed while it serves, and asked how it is."""

import contextlib
import json
import shutil
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from serve_app.settings import APP_NAME

POLL_SECONDS = 0.1
START_SECONDS = 300.0


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_until(done: Callable[[], bool], seconds: float, what: str) -> float:
    """Poll `done`; the seconds it took.

    Raises:
        TimeoutError: not done after `seconds`.
    """
    begun = time.monotonic()
    while not done():
        if time.monotonic() - begun > seconds:
            raise TimeoutError(f"after {seconds:g} s: {what}")
        time.sleep(POLL_SECONDS)
    return time.monotonic() - begun


class Server:
    """The application on a Ray that is already connected, through documents as in production.

    Attributes:
        args: settings in force, or asked for.
        url: where it answers.
    """

    def __init__(self, port: int, **args: Any) -> None:
        self.args = args
        self.url = f"http://127.0.0.1:{port}"
        self._port = port
        self._user_config: dict[str, Any] = {}
        self._variables: dict[str, str] = {}

    def start(self) -> None:
        """Start Serve and the application; returns when it answers."""
        from ray import serve

        serve.start(
            proxy_location="EveryNode", http_options={"host": "127.0.0.1", "port": self._port}
        )
        self.deploy()
        self.until_running()

    def deploy(
        self,
        user_config: dict[str, Any] | None = None,
        variables: dict[str, str] | None = None,
        **args: Any,
    ) -> None:
        """Ask for a change and return at once.

        Args:
            user_config: live limits of the model.
            variables: environment of the code; another one rolls everything, as new code does.
            args: settings of the application.
        """
        from ray.serve.context import _get_global_client
        from ray.serve.schema import ServeDeploySchema

        self.args |= args
        self._user_config |= user_config or {}
        self._variables |= variables or {}
        client = _get_global_client()
        assert client is not None
        client.deploy_apps(ServeDeploySchema.model_validate(self._document()))

    def until_running(self, seconds: float = START_SECONDS) -> float:
        """Wait until what was asked for serves; the seconds it took.

        Raises:
            RuntimeError: it will not start.
            TimeoutError: it has not started in time.
        """
        return wait_until(self.settled, seconds, "the application does not run")

    def until_failed(self, seconds: float = START_SECONDS) -> float:
        """Wait until Serve has given up on what was asked for; the seconds it took."""
        return wait_until(
            lambda: self.state() == "DEPLOY_FAILED", seconds, "the deploy has not failed"
        )

    def settled(self) -> bool:
        """Whether every replica that was asked for runs, and no other."""
        application = _application()
        if application is None or application.status == "DEPLOYING":
            return False
        if application.status == "DEPLOY_FAILED":
            raise RuntimeError(application.message)
        return application.status == "RUNNING" and all(
            one.status == "HEALTHY" and set(one.replica_states) == {"RUNNING"}
            for one in application.deployments.values()
        )

    def state(self) -> str:
        """Serve's word for the application."""
        application = _application()
        return "unknown" if application is None else str(application.status.value)

    def replicas(self, deployment: str) -> int:
        """Running replicas."""
        application = _application()
        if application is None or deployment not in application.deployments:
            return 0
        return int(application.deployments[deployment].replica_states.get("RUNNING", 0))

    def wanted(self, deployment: str) -> int:
        """Replicas that run or start, not those that stop."""
        application = _application()
        if application is None or deployment not in application.deployments:
            return 0
        states = application.deployments[deployment].replica_states
        return int(sum(count for state, count in states.items() if state != "STOPPING"))

    def _document(self) -> dict[str, Any]:
        return {
            "proxy_location": "EveryNode",
            "http_options": {"host": "127.0.0.1", "port": self._port},
            "logging_config": {"enable_access_log": False, "log_level": "WARNING"},
            "applications": [
                {
                    "name": APP_NAME,
                    "route_prefix": "/",
                    "import_path": "serve_app:build",
                    "args": self.args,
                    "runtime_env": {"env_vars": self._variables},
                    "deployments": [{"name": "Model", "user_config": self._user_config}],
                }
            ],
        }


def _application() -> Any:
    """Serve's status of the application; None while it cannot be told."""
    from ray import serve
    from ray.exceptions import RayError

    with contextlib.suppress(RayError):  # the controller is away
        return serve.status().applications.get(APP_NAME)
    return None


def another_model(source: Path, target: Path, name: str) -> Path:
    """A prepared model with the same shape, other weights in its classifier, and its own name."""
    from safetensors.numpy import load_file, save_file

    target.mkdir(parents=True)
    facts = json.loads((source / "model.json").read_text("utf-8"))
    facts |= {"name": name, "revision": f"{facts['revision']}-{name}"}
    (target / "model.json").write_text(json.dumps(facts), "utf-8")
    weights = load_file(source / "model.safetensors")
    weights["proj.weight"] = weights["proj.weight"] * 0.5
    save_file(weights, target / "model.safetensors")
    return target


def broken_model(source: Path, target: Path) -> Path:
    """A prepared model whose weights end in the middle."""
    shutil.copytree(source, target)
    weights = target / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[: weights.stat().st_size // 2])
    return target
