"""From the name of a model to a loadable model: bundled, directory, or hub id.

Names: `emotion2vec_mini` (bundled), a directory (FunASR's layout or prepared), `iic/NAME` or
`ms:ORG/NAME` (ModelScope), `ORG/NAME` or `hf:ORG/NAME` (Hugging Face); a hub id may end in
`@REVISION`. What a hub gave is prepared once; after that neither the hub nor its library
is needed, and the revision stays what it was until it is prepared again.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from engine.checkpoint import read_checkpoint
from engine.errors import ModelError
from engine.prepared import Prepared, is_prepared, read_prepared, write_prepared

BUNDLED = Path(__file__).parent / "models"
HUB_FILES = ["configuration.json", "config.yaml", "model.pt", "tokens.txt"]


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
        return cache_directory() / self.hub / f"{self.name.replace('/', '--')}{revision}"


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


def prepare(model: str, output: Path | None = None) -> Path:
    """Convert `model` to its prepared form and say where it lies.

    A hub id goes to the cache unless `output` is given; a directory needs `output`.
    """
    hub_id = parse_hub_id(model)
    if hub_id is None:
        if output is None:
            raise ModelError("preparing a directory needs an output directory")
        prepared = load_directory(Path(model).expanduser())
    else:
        directory, revision = download(hub_id)
        prepared = Prepared(read_checkpoint(directory), hub_id.name, revision)
    target = output or (hub_id.prepared_directory if hub_id else Path())
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
    """Fetch the checkpoint's files by the hub's own library: (directory, exact revision)."""
    fetch = _from_modelscope if hub_id.hub == "ms" else _from_hugging_face
    try:
        return fetch(hub_id)
    except Exception as error:
        # the hubs' libraries raise whatever their transport raised; one line is enough here
        reason = str(error).strip().splitlines()[:1] or [type(error).__name__]
        site = "ModelScope" if hub_id.hub == "ms" else "Hugging Face"
        raise ModelError(f"{hub_id.name} could not be fetched from {site}: {reason[0]}") from error


def _from_hugging_face(hub_id: HubId) -> tuple[Path, str]:
    from huggingface_hub import HfApi, snapshot_download

    revision = HfApi().model_info(hub_id.name, revision=hub_id.revision).sha or "main"
    path = snapshot_download(hub_id.name, revision=revision, allow_patterns=HUB_FILES)
    return Path(path), revision


def _from_modelscope(hub_id: HubId) -> tuple[Path, str]:
    from modelscope import snapshot_download

    revision = hub_id.revision or "master"
    path = snapshot_download(hub_id.name, revision=revision, allow_file_pattern=HUB_FILES)
    return Path(path), revision
