"""`e2v serve`: a start that says in one line what is wrong, and a stop that leaves nothing.

Ray is imported late: its environment must be complete before.
"""

import logging
import os
import shlex
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from serve_app.console import Console, own_console
from serve_app.launch_config import LaunchConfig
from serve_app.launch_network import LaunchError, check_cluster, check_port, health, reachable_host
from serve_app.local_ray import LocalRay
from serve_app.settings import APP_NAME, Settings
from serve_app.stop_signal import StopSignal
from serve_app.tracing import PACKAGE, has_exporter
from serve_app.watch import failure, without_room

SAMPLE = Path(__file__).parent / "assets" / "sample.wav"
HAPROXY_PORTS = (8404, 9101)
POLL_SECONDS = 0.2
ALIVE_SECONDS = 1.0
HTTP_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """What to start and where.

    Attributes:
        config: the application and HTTP options.
        address: an existing Ray cluster, or None for a Ray of our own.
        haproxy: the faster proxy; only with a Ray of our own.
    """

    config: LaunchConfig
    address: str | None
    haproxy: bool

    @property
    def url(self) -> str:
        """Where a client on this machine reaches the server."""
        host = reachable_host(self.config.host)
        return f"http://{f'[{host}]' if ':' in host else host}:{self.config.port}"

    @property
    def model(self) -> str:
        """Name of the model."""
        return Settings(**self.config.args).model

    def check(self) -> None:
        """Refuse what cannot work before anything is started.

        Raises:
            LaunchError: a port is taken, the host is unknown, or the flags contradict.
        """
        traced = (self.config.document.get("tracing_config") or {}).get("enabled")
        if traced and not has_exporter():
            raise LaunchError(f"traces need the package {PACKAGE}: pip install {PACKAGE}")
        if self.address is not None:
            self._check_for_cluster(self.address)
            return
        check_port(self.config.host, self.config.port)
        for port in HAPROXY_PORTS if self.haproxy else ():
            check_port("0.0.0.0", port)

    def _check_for_cluster(self, address: str) -> None:
        if self.haproxy:
            raise LaunchError("--proxy is chosen where the cluster's nodes are started")
        if self.config.application.get("deployments"):
            raise LaunchError("--address takes only args from a config file; see `serve deploy`")
        if self.config.document.get("tracing_config"):
            raise LaunchError("--trace-ratio is set where Serve is started; see `serve deploy`")
        check_cluster(address)


def launch(plan: LaunchPlan) -> int:
    """Serve until SIGINT or SIGTERM; the exit code.

    Raises:
        LaunchError: the application did not start, or Ray died.
    """
    stop = StopSignal()
    stop.install()
    if plan.address is not None:
        with own_console(Path(os.devnull)) as console:
            return _serve_on_cluster(plan, plan.address, stop, console)
    local = LocalRay(plan.haproxy)
    with own_console(local.directory / "launcher.err") as console:
        return _serve_locally(plan, local, stop, console)


def _serve_locally(plan: LaunchPlan, local: LocalRay, stop: StopSignal, console: Console) -> int:
    ready, code = False, 0
    try:
        console.say("starting Ray …")
        local.start()
        stop.install()
        _deploy_document(plan.config.document)
        console.say(f"loading {plan.model} …")
        ready = _until_running(stop, console, grows=False) and _until_answering(plan, stop)
        if ready:
            _announce(plan)
            console.say(f"for handle calls from other Ray jobs: {local.how_to_join()}")
            _while_alive(local, stop)
        console.say("stopping …")
    except LaunchError as error:
        # said before the stop, which takes a second or two
        console.say(str(error))
        code = 1
    finally:
        clean = local.stop(lambda: stop.at_once, drain=ready and not code)
    if not clean:
        os._exit(code)
    return code


def _while_alive(local: LocalRay, stop: StopSignal) -> None:
    while not stop.wait(ALIVE_SECONDS):
        if not local.alive():
            raise LaunchError("Ray has stopped unexpectedly")


def _serve_on_cluster(plan: LaunchPlan, address: str, stop: StopSignal, console: Console) -> int:
    import ray
    from ray import serve

    try:
        ray.init(address, log_to_driver=False, logging_level=logging.ERROR, namespace="serve")
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise LaunchError(f"no Ray cluster at {address}: {_first_line(error)}") from None
    stop.install()
    from serve_app.builder import build

    # not as a document: that would remove what others deployed by theirs
    serve.start(http_options={"host": plan.config.host, "port": plan.config.port})
    application = build(Settings(**plan.config.args))
    serve.run_many(
        [serve.RunTarget(application, name=APP_NAME, route_prefix="/")],
        wait_for_ingress_deployment_creation=False,
        wait_for_applications_running=False,
    )
    try:
        if _until_running(stop, console, grows=True):
            print(f"{plan.model} is served by the Ray cluster at {address}", flush=True)
            while not stop.wait(ALIVE_SECONDS):
                pass
        console.say("removing the application …")
    finally:
        serve.delete(APP_NAME)
        ray.shutdown()
    return 0


def _deploy_document(document: dict[str, Any]) -> None:
    from pydantic import ValidationError
    from ray import serve
    from ray.serve.context import _get_global_client
    from ray.serve.schema import ServeDeploySchema

    try:
        schema = ServeDeploySchema.model_validate(document)
    except ValidationError as error:
        fault = error.errors()[0]
        where = ".".join(str(part) for part in fault["loc"])
        raise LaunchError(f"the Serve config: {where}: {fault['msg']}") from None
    serve.start(
        proxy_location=schema.proxy_location,
        http_options=schema.http_options.model_dump(),
        grpc_options=schema.grpc_options.model_dump(),
        logging_config=schema.logging_config,
        tracing_config=schema.tracing_config,
    )
    client = _get_global_client()
    assert client is not None
    client.deploy_apps(schema)


def _until_running(stop: StopSignal, console: Console, grows: bool) -> bool:
    """Wait for the application; False: a stop was asked for.

    Args:
        grows: the cluster may get more nodes, so what does not fit is only said.
    """
    import ray
    from ray import serve

    said = ""
    while not stop.wait(POLL_SECONDS):
        application = serve.status().applications.get(APP_NAME)
        if application is None:
            continue
        if application.status == "RUNNING":
            return True
        if reason := failure(application):
            raise LaunchError(reason)
        free = ray.available_resources()  # type: ignore[no-untyped-call]
        reason = without_room(application, free)
        if reason and not grows:
            raise LaunchError(reason)
        if reason and reason != said:
            console.say(reason)
            said = reason
    return False


def _until_answering(plan: LaunchPlan, stop: StopSignal) -> bool:
    """Wait until the proxy has the route: it learns of it a little after the replicas run."""
    host = reachable_host(plan.config.host)
    deadline = time.monotonic() + HTTP_SECONDS
    while not stop.wait(POLL_SECONDS / 4):
        if health(host, plan.config.port):
            return True
        if time.monotonic() > deadline:
            raise LaunchError(f"{plan.url}/health does not answer")
    return False


def _announce(plan: LaunchPlan) -> None:
    sample = shlex.quote(f"@{SAMPLE}")
    print(f"{plan.model} is ready at {plan.url} (Ctrl-C stops it)")
    print(f"curl -s --data-binary {sample} {plan.url}/v1/audio/emotions", flush=True)


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
