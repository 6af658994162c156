"""One machine with declared GPUs: placement, changes and kills of every part under load."""

import os
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from cluster.chaos.accounts import Fault, account
from cluster.chaos.load import Load
from cluster.chaos.processes import kill, members
from cluster.chaos.server import Server, wait_until

UnderLoad = Callable[[Load], AbstractContextManager[None]]

SHARE = 0.2
BACK_SECONDS = 60
"""A deadline for loaded machines; `make chaos` reports how long it really takes."""

IN_THE_SUITE = ["Model", "Ingress", "controller"]
LATER = [pytest.param(role, marks=pytest.mark.slow) for role in ("Preprocess", "Cache", "proxy")]


@pytest.fixture(scope="module")
def visible(server: Server) -> dict[str, list[str | None]]:
    """`CUDA_VISIBLE_DEVICES` in every replica, by deployment."""
    import ray

    found = defaultdict(list)
    for actor in ray.util.list_named_actors(all_namespaces=True):
        if actor["name"].startswith("SERVE_REPLICA::"):
            handle: Any = ray.get_actor(**actor)
            call = handle.__ray_call__.remote(lambda _: os.environ.get("CUDA_VISIBLE_DEVICES"))
            found[actor["name"].split("#")[1]].append(ray.get(call, timeout=60))
    return found


def test_replicas_share_cards(visible: dict[str, list[str | None]]) -> None:
    cards = visible["Model"] + visible["Preprocess"]
    assert len(cards) == 3
    assert set(cards) <= {"0", "1"}
    assert len(set(cards)) < len(cards)


def test_each_takes_its_share_and_no_more(server: Server) -> None:
    import ray

    assert ray.available_resources()["GPU"] == pytest.approx(2 - 3 * SHARE)


def test_replicas_without_a_share_see_no_card(visible: dict[str, list[str | None]]) -> None:
    assert visible["Ingress"] == ["", ""]
    assert visible["Cache"] == [""]


def test_auto_computes_where_torch_says(server: Server) -> None:
    assert httpx2.get(f"{server.url}/info").json()["device"] == "cpu"


def info(server: Server) -> dict[str, object]:
    """`GET /info`."""
    answer: dict[str, object] = httpx2.get(f"{server.url}/info", timeout=30).json()
    return answer


def failures(load: Load) -> list[str]:
    """Reasons of all requests that were not answered."""
    return [record.reason or "no answer" for record in load.records if not record.ok]


def test_live_limits_restart_nothing(
    server: Server, load: Load, under_light_load: UnderLoad
) -> None:
    server.until_running()
    before = members("Model")
    with under_light_load(load):
        for frames in (700, 900, 900):
            server.deploy(user_config={"max_batch_frames": frames})
            server.until_running()
            wait_until(
                lambda frames=frames: info(server)["max_batch_frames"] == frames,
                30,
                f"max_batch_frames is not {frames}",
            )
    assert failures(load) == []
    assert members("Model") == before


def test_settings_roll_under_load(server: Server, load: Load, under_light_load: UnderLoad) -> None:
    server.until_running()
    before = members("Model") + members("Ingress") + members("Preprocess")
    with under_light_load(load):
        server.deploy(max_files=server.args.get("max_files", 16) + 1)
        wait_until(lambda: server.state() == "DEPLOYING", 30, "the roll has not begun")
        server.until_running()
    assert failures(load) == []
    assert not set(before) & set(members("Model") + members("Ingress") + members("Preprocess"))
    assert info(server)["limits"]["max_files"] == server.args["max_files"]  # type: ignore[index]


@pytest.mark.slow
def test_wrong_weights_leave_the_old_version(
    server: Server, load: Load, under_light_load: UnderLoad, tmp_path: Path
) -> None:
    server.until_running()
    good = server.args["model"]
    models = members("Model")
    with under_light_load(load):
        server.deploy(model=str(tmp_path / "missing"))
        server.until_failed()
        sent = len(load.records)
        wait_until(lambda: len(load.records) > sent + 4, 60, "no load")
        server.deploy(model=good)
        server.until_running()
    assert failures(load) == []
    assert set(models) - set(members("Model")) != set() or models == members("Model")


def answers(server: Server) -> bool:
    try:
        return httpx2.get(f"{server.url}/health", timeout=5).status_code == 200
    except httpx2.HTTPError:
        return False


@pytest.mark.parametrize("role", [*IN_THE_SUITE, *LATER])
def test_a_killed_process_comes_back(
    server: Server,
    load: Load,
    under_light_load: UnderLoad,
    role: str,
) -> None:
    server.until_running()
    before = members(role)
    with under_light_load(load):
        fault = Fault(f"kill {role}", time.monotonic())
        kill(before[0])

        def back() -> bool:
            now = members(role)
            return len(now) == len(before) and before[0] not in now and answers(server)

        wait_until(lambda: back() and server.settled(), BACK_SECONDS, f"no new {role}")
        fault.back = time.monotonic()
        sent = len(load.records)
        wait_until(lambda: len(load.records) > sent + 3, BACK_SECONDS, "no load")
    result = account(load.records, [fault])
    assert result.unexplained == []
    assert result.answered > 3
    if role not in ("Ingress", "proxy"):
        assert result.explained.total() == 0
