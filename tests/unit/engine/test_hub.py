"""Hub ids: fetched by the hubs' own libraries, pinned, prepared once, then never needed again."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hub_server import HubServer

from engine import ModelError
from engine.checkpoint import read_checkpoint
from engine.hub import BUNDLED, HubId, download, load_model, newest_commit, parse_hub_id

NEW, OLD = "a" * 40, "b" * 40
REPOSITORY = Path(__file__).parents[3]

# what a session with a hub looks like; the libraries read their settings when they are imported
SESSION = """
import json, sys, urllib.request
from engine.hub import load_model, prepare
from engine import ModelError

name, url = sys.argv[1:]
known, unknown = name, name + "-absent"

def facts(prepared):
    weights = prepared.checkpoint.weights
    return [prepared.name, prepared.revision, float(weights["proj.weight"].sum())]

def message(name):
    try:
        load_model(name)
    except ModelError as error:
        return str(error)

newest = facts(load_model(known))
pinned = facts(load_model(known + "@v1"))
absent, no_revision = message(unknown), message(known + "@v9")
urllib.request.urlopen(url + "/stop").read()
for library in ("huggingface_hub", "modelscope", "modelscope_hub", "requests"):
    sys.modules[library] = None
again = [facts(load_model(known)), facts(load_model(known + "@v1"))]
print(json.dumps([newest, pinned, absent, no_revision, again]))
"""

FAILURE = """
import sys
from engine import Engine, ModelError
for name in sys.argv[1:]:
    try:
        Engine.load(name)
    except ModelError as error:
        print("ERROR", error)
"""


@pytest.fixture(scope="module")
def versions(make_checkpoint: Any) -> dict[str, Path]:
    """Two commits; their weights do not have the usual name."""
    folders = {NEW: make_checkpoint(seed=1), OLD: make_checkpoint(seed=2)}
    for folder in folders.values():
        (folder / "model.pt").rename(folder / "best[1].pt")
        text = (folder / "configuration.json").read_text()
        (folder / "configuration.json").write_text(text.replace("model.pt", "best[1].pt"))
        (folder / "README.md").write_text("not needed")
    return folders


@pytest.fixture
def server(versions: dict[str, Path], request: pytest.FixtureRequest) -> Iterator[HubServer]:
    server = HubServer(request.param, {"main": NEW, "master": NEW, "v1": OLD}, versions)
    yield server
    server.close()


def run(script: str, *arguments: str, home: Path, url: str) -> str:
    """The script's standard output, in a process that knows only this hub."""
    environment = {
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": str(REPOSITORY),
        "HOME": str(home),
        "XDG_CACHE_HOME": str(home / "cache"),
        "HF_HOME": str(home / "hf"),
        "HF_ENDPOINT": url,
        "MODELSCOPE_ENDPOINT": url,
        "MODELSCOPE_CACHE": str(home / "ms"),
        # no look-up of the cloud region that the process runs in
        "MODELSCOPE_DOWNLOAD_INTRA_CLOUD": "false",
        "MODELSCOPE_API_MAX_RETRIES": "0",
        "MODELSCOPE_REPO_TREE_PAGE_MAX_ATTEMPTS": "1",
        "OMP_NUM_THREADS": "1",
    }
    process = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env=environment,
        cwd=home,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert process.returncode == 0, process.stderr
    return process.stdout


@pytest.mark.parametrize(
    ("server", "site"),
    [("iic/tiny", "ModelScope"), ("org/tiny.v2", "Hugging Face")],
    indirect=["server"],
)
def test_a_hub_id_is_fetched_once_and_pinned(
    server: HubServer, site: str, versions: dict[str, Path], tmp_path: Path
) -> None:
    output = run(SESSION, server.name, server.url, home=tmp_path, url=server.url)
    newest, pinned, absent, no_revision, again = json.loads(output.splitlines()[-1])
    for facts, commit in ((newest, NEW), (pinned, OLD)):
        expected = read_checkpoint(versions[commit]).weights["proj.weight"].sum()
        assert facts[:2] == [server.name, commit]
        assert facts[2] == pytest.approx(float(expected), abs=1e-5)
    assert again == [newest, pinned]
    for text in (absent, no_revision):
        assert f"could not be fetched from {site}: " in text
        assert "\n" not in text
    assert f"{server.name}-absent is no directory here" in absent
    assert not any("README" in path for path in server.requests)
    assert server.requests[-1] == "GET /stop"


def test_a_hub_that_cannot_be_reached_is_one_line(tmp_path: Path) -> None:
    # port 9 of this machine: nobody listens
    output = run(FAILURE, "iic/tiny", "hf:org/tiny", home=tmp_path, url="http://127.0.0.1:9")
    errors = [line for line in output.splitlines() if line.startswith("ERROR ")]
    assert len(errors) == 2
    for error, site in zip(errors, ("ModelScope", "Hugging Face"), strict=True):
        assert f"tiny is no directory here and could not be fetched from {site}: " in error


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("iic/emotion2vec_plus_large", HubId("ms", "iic/emotion2vec_plus_large", None)),
        (
            "emotion2vec/emotion2vec_plus_large",
            HubId("hf", "emotion2vec/emotion2vec_plus_large", None),
        ),
        ("ms:org/name@v1.2", HubId("ms", "org/name", "v1.2")),
        ("hf:iic/name@refs/pr/1", HubId("hf", "iic/name", "refs/pr/1")),
        *((name, None) for name in ("emotion2vec_mini", "/a/b", "./a/b", "../a", "a/b/c", "~/a")),
        *((name, None) for name in ("", "http://a/b", "a/b@", "ms:a", "a b/c", "a/b\n")),
    ],
)
def test_spellings_of_hub_ids(text: str, expected: HubId | None) -> None:
    assert parse_hub_id(text) == expected


def test_a_directory_of_that_name_goes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "org" / "name").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert parse_hub_id("org/name") is None


@pytest.mark.parametrize("revision", ["main", "refs/pr/1", "../../../x", None])
def test_prepared_directories_stay_in_the_cache(
    revision: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    directory = HubId("hf", "org/name", revision).prepared_directory
    assert directory.parent == tmp_path / "emotion2vec-serve" / "hf"
    assert directory.resolve() == directory


def test_newest_commit_of_the_needed_files() -> None:
    listing = [
        {"Path": "model.pt", "Revision": "b", "CommittedDate": 5},
        {"Path": "tokens.txt", "Revision": "a", "CommittedDate": 3},
        {"Path": "README.md", "Revision": "c", "CommittedDate": 9},
        {"Path": "config.yaml", "CommittedDate": 7},
    ]
    names = ["model.pt", "tokens.txt", "config.yaml"]
    assert newest_commit(listing, names) == "b"
    assert newest_commit(listing, ["config.yaml"]) is None
    assert newest_commit([], names) is None


def test_unexpected_failures_of_a_library_are_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(hub_id: HubId) -> Any:
        raise ValueError("first line\nsecond line")

    monkeypatch.setattr("engine.hub._from_hugging_face", fail)
    with pytest.raises(ModelError, match="from Hugging Face: first line$"):
        download(HubId("hf", "org/name", None))


@pytest.mark.parametrize("name", ["no_such_model", "/no/such/folder", "./no/such"])
def test_what_is_neither_directory_nor_hub_id(name: str) -> None:
    with pytest.raises(ModelError, match="does not exist"):
        load_model(name)


@pytest.mark.skipif(not BUNDLED.is_dir(), reason="no model is bundled here")
def test_the_bundled_model_loads_by_name() -> None:
    prepared = load_model("emotion2vec_mini")
    assert prepared.name == "emotion2vec_mini"
    assert all(torch.isfinite(t).all() for t in prepared.checkpoint.weights.values())
