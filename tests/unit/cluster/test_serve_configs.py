"""The Serve config files: every key is a field somewhere, every argument a setting."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from typos import key_paths, misspelt, path_name

from cluster.check_config import check_serve_config, main

ROOT = Path(__file__).parents[3]
FILES = [ROOT / "serve_config.yaml", *sorted((ROOT / "cluster").glob("serve_config.*.yaml"))]


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text("utf-8"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_no_fault(path: Path) -> None:
    assert check_serve_config(read(path)) == []
    assert main([str(path)]) == 0


TYPOS = [(path, keys) for path in FILES for keys in key_paths(read(path))]


@pytest.mark.parametrize(
    ("path", "keys"), TYPOS, ids=[f"{path.name}:{path_name(keys)}" for path, keys in TYPOS]
)
def test_a_typo_in_any_key_is_caught(path: Path, keys: tuple[str | int, ...]) -> None:
    [fault, *_] = check_serve_config(misspelt(read(path), keys))
    assert fault


RICH = """
proxy_location: EveryNode
http_options: {host: 127.0.0.1, port: 8000, keep_alive_timeout_s: 30}
logging_config: {log_level: INFO}
applications:
  - name: emotion2vec
    route_prefix: /
    import_path: serve_app:build
    args: {model: emotion2vec_mini}
    deployments:
      - name: Model
        num_replicas: auto
        user_config: {max_batch_frames: 1500}
        ray_actor_options: {num_cpus: 0.1, num_gpus: 0.2}
        autoscaling_config:
          min_replicas: 1
          max_replicas: 8
          policy:
            policy_function: cluster.autoscaling:AudioWorkPolicy
            policy_kwargs: {target_audio_seconds: 60, downscale_seconds: 300}
"""


def test_no_fault_in_what_the_files_do_not_use() -> None:
    assert check_serve_config(yaml.safe_load(RICH)) == []


@pytest.mark.parametrize("keys", list(key_paths(yaml.safe_load(RICH))), ids=path_name)
def test_a_typo_below_deployments_is_caught(keys: tuple[str | int, ...]) -> None:
    assert check_serve_config(misspelt(yaml.safe_load(RICH), keys))


def test_the_fault_says_where(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "typo.yaml"
    text = RICH.replace("target_audio_seconds", "target_audio_second")
    file.write_text(text.replace("keep_alive_timeout_s", "keep_alive"))
    assert main([str(file)]) == 1
    out = capsys.readouterr().out
    assert "http_options.keep_alive: unknown key" in out
    assert "target_audio_second" in out


def test_a_value_out_of_range_is_caught() -> None:
    document = yaml.safe_load(RICH)
    document["applications"][0]["args"]["pass_seconds"] = 1
    [fault] = check_serve_config(document)
    assert fault.startswith("application emotion2vec: args.pass_seconds")
