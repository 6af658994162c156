"""From the name of a model to a loadable model: bundled, directory, or hub id.

Names: `emotion2vec_mini` (bundled), a directory (FunASR's layout or prepared), `iic/NAME` or
`ms:ORG/NAME` (ModelScope), `ORG/NAME` or `hf:ORG/NAME` (Hugging Face); a hub id may end in
`@REVISION`. What a hub gave is prepared once; after that neither the hub nor its library
is needed, and the revision stays what it was until it is prepared again.
"""

import glob
import logging
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.checkpoint import file_names, read_checkpoint
from engine.errors import ModelError
from engine.prepared import Prepared, is_prepared, read_prepared, write_prepared

logger = logging.getLogger(__name__)

BUNDLED = Path(__file__).parent / "models"
NAMING_FILE = "configuration.json"

Fetch = Callable[[list[str]], Path]
"""Downloads the files that match some patterns; gives the folder they lie in."""


@dataclass(frozen=True, slots=True)
class HubId:
    """A model on a hub; `revision` is None for the hub's newest."""

    hub: str
    name: str
    revision: str | None

    @property
    def prepared_directory(self) -> Path:
        """Where the prepared form lies."""
        revision = f"@{self.revision}" if self.revision else ""
        return cache_directory() / self.hub / (self.name + revision).replace("/", "--")


def cache_directory() -> Path:
    """Folder of prepared models: `$XDG_CACHE_HOME` or `~/.cache`, `/emotion2vec-serve`."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "emotion2vec-serve"


def load_model(model: str | os.PathLike[str]) -> Prepared:
    """Weights and shape of `model`, prepared first if it comes from a hub.

    Raises:
        ModelError: one line that says what is wrong with the name or the files.
    """
    name = os.fspath(model)
    if re.fullmatch(r"\w+", name) and is_prepared(BUNDLED / name):
        return read_prepared(BUNDLED / name)
    hub_id = parse_hub_id(name)
    if hub_id is None:
        return load_directory(Path(name).expanduser())
    if not is_prepared(hub_id.prepared_directory):
        prepare(name)
    return read_prepared(hub_id.prepared_directory)


def load_directory(directory: Path) -> Prepared:
    """A prepared directory, or one in FunASR's layout."""
    if is_prepared(directory):
        return read_prepared(directory)
    checkpoint = read_checkpoint(directory)
    return Prepared(checkpoint, directory.resolve().name, "local")


def prepare(model: str, output: Path | None = None, verify: bool = False) -> Path:
    """Convert `model` to its prepared form and say where it lies.

    A hub id goes to the cache unless `output` is given; a directory needs `output`.

    Args:
        verify: first compare the checkpoint with the reference (see `engine.verify`); nothing
            is written where they differ.
    """
    hub_id = parse_hub_id(model)
    if hub_id is None and output is None:
        raise ModelError("preparing a directory needs an output directory")
    directory, revision = download(hub_id) if hub_id else (Path(model).expanduser(), "local")
    if verify:
        from engine.verify import verify as compare

        logger.info("%s", compare(directory))
    if hub_id:
        prepared = Prepared(read_checkpoint(directory), hub_id.name, revision)
    else:
        prepared = load_directory(directory)
    target = output or (hub_id.prepared_directory if hub_id else directory)
    write_prepared(target, prepared)
    return target


def parse_hub_id(model: str) -> HubId | None:
    """The hub id that `model` spells, or None where it names a directory."""
    if Path(model).expanduser().is_dir():
        return None
    match = re.fullmatch(r"(?:(ms|hf):)?([\w.-]+/[\w.-]+)(?:@([\w./-]+))?", model)
    if match is None or match[2].startswith("."):
        return None
    hub = match[1] or ("ms" if match[2].startswith("iic/") else "hf")
    return HubId(hub, match[2], match[3])


def download(hub_id: HubId) -> tuple[Path, str]:
    """Fetch the checkpoint's files by the hub's own library: (directory, exact revision).

    Raises:
        ModelError: the hub, or the network on the way, did not give them.
    """
    fetch = _from_modelscope if hub_id.hub == "ms" else _from_hugging_face
    try:
        return fetch(hub_id)
    except ModelError:
        raise
    except Exception as error:
        # the hubs' libraries raise whatever their transport raised; one line is enough here
        reason = str(error).strip().splitlines()[:1] or [type(error).__name__]
        site = "ModelScope" if hub_id.hub == "ms" else "Hugging Face"
        raise ModelError(
            f"{hub_id.name} is no directory here and could not be fetched from {site}: {reason[0]}"
        ) from error


def _from_hugging_face(hub_id: HubId) -> tuple[Path, str]:
    from huggingface_hub import HfApi, snapshot_download

    revision = HfApi().model_info(hub_id.name, revision=hub_id.revision).sha
    if not revision:
        raise ModelError(f"Hugging Face names no commit of {hub_id.name}")

    def fetch(patterns: list[str]) -> Path:
        return Path(snapshot_download(hub_id.name, revision=revision, allow_patterns=patterns))

    return _fetch_checkpoint(fetch), revision


def _from_modelscope(hub_id: HubId) -> tuple[Path, str]:
    from modelscope_hub import HubApi

    api = HubApi(endpoint=HubApi().resolve_endpoint_for_read(hub_id.name))
    asked = hub_id.revision or "master"
    # one listing for everything: its checksums tie the files to the commit that is recorded
    listing = api.legacy.list_repo_files(hub_id.name, "model", revision=asked)

    def fetch(patterns: list[str]) -> Path:
        path = api.download_repo(
            hub_id.name, "model", revision=asked, allow_patterns=patterns, file_list=listing
        )
        return Path(path)

    directory = _fetch_checkpoint(fetch)
    return directory, newest_commit(listing, file_names(directory).values()) or asked


def _fetch_checkpoint(fetch: Fetch) -> Path:
    # the first file says what the others are called
    names = file_names(fetch([NAMING_FILE]))
    return fetch([NAMING_FILE, *(glob.escape(name) for name in names.values())])


def newest_commit(listing: Sequence[Mapping[str, Any]], names: Collection[str]) -> str | None:
    """The last commit that changed one of `names`, at which all of them are as listed.

    Args:
        listing: ModelScope's entries: `Path`, `Revision` (the commit that last changed the
            file) and `CommittedDate` (seconds).
    """
    entries = [entry for entry in listing if entry.get("Path") in names and entry.get("Revision")]
    latest = max(entries, key=lambda entry: int(entry.get("CommittedDate") or 0), default=None)
    return str(latest["Revision"]) if latest else None
