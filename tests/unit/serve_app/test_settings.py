"""One name for each setting, everywhere; what does not fit together is refused by name."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from pydantic import ValidationError

from serve_app.settings import Settings

CONFIG = Path(__file__).parents[3] / "serve_config.yaml"


def test_explicit_values_win_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("E2V_PASS_SECONDS", "20")
    monkeypatch.setenv("E2V_MODEL", "from-environment")
    settings = Settings(model="explicit")
    assert (settings.model, settings.pass_seconds) == ("explicit", 20.0)


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ValidationError, match="modle"):
        Settings(modle="typo")


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"min_sample_rate_hz": 50_000, "max_sample_rate_hz": 40_000}, "min_sample_rate_hz"),
        ({"device": "cuda", "model_gpus": 0}, "model_gpus"),
        ({"preprocess_gpus": 1.5}, "preprocess_gpus"),
        ({"pass_seconds": 1}, "pass_seconds"),
    ],
)
def test_what_does_not_fit_is_named(values: dict[str, object], named: str) -> None:
    with pytest.raises(ValidationError, match=named):
        Settings(**values)


def test_config_file_fits_serves_schema_and_ours() -> None:
    from ray.serve.schema import ServeDeploySchema

    values = yaml.safe_load(CONFIG.read_text())
    schema = ServeDeploySchema.model_validate(values)
    known = set(ServeDeploySchema.model_fields)
    assert set(values) <= known
    [application] = schema.applications
    assert application.import_path == "serve_app:build"
    Settings(**application.args)


@pytest.mark.parametrize(
    ("device", "gpus", "shares"),
    [("auto", 0, (0, 0)), ("auto", 2, (0.8, 0.2)), ("cpu", 2, (0, 0)), ("cuda", 0, (0.8, 0.2))],
)
def test_gpus_are_used_where_they_are(
    device: str, gpus: float, shares: tuple[float, float]
) -> None:
    from serve_app.builder import gpu_shares

    assert gpu_shares(Settings(device=device), gpus) == shares


def test_model_reports_what_the_policy_scales_by() -> None:
    from cluster import autoscaling
    from deployments.model import Model
    from deployments.speed import BusySpeed

    speed = BusySpeed(9.0)
    replica = SimpleNamespace(_held_samples=48_000, _done_samples=16_000, _speed=speed)
    assert Model.func_or_class.record_autoscaling_stats(replica) == {
        autoscaling.AUDIO_SECONDS: 3.0,
        autoscaling.DONE_AUDIO_SECONDS: 1.0,
        autoscaling.SPEED: 9.0,
    }


def test_scaling_by_work_reaches_the_deployment() -> None:
    from serve_app.builder import build

    settings = Settings(model_max_replicas=8, model_min_replicas=2, model_replicas_per_node=4)
    application = build(settings)
    [model] = [
        bound._bound_deployment
        for bound in application._bound_deployment.init_args
        if getattr(getattr(bound, "_bound_deployment", None), "name", "") == "Model"
    ]
    scaling = model._deployment_config.autoscaling_config
    assert (scaling.min_replicas, scaling.max_replicas) == (2, 8)
    assert model._replica_config.max_replicas_per_node == 4


@pytest.mark.parametrize(("downscale", "smoothing"), [(0, 6), (15, 15), (300, 120)])
def test_arrivals_are_not_remembered_for_longer_than_replicas_are_kept(
    downscale: float, smoothing: float
) -> None:
    from serve_app.builder import _model_scale

    settings = Settings(model_max_replicas=2, model_downscale_seconds=downscale)
    knobs = _model_scale(settings, 0.0)["autoscaling_config"]["policy"]["policy_kwargs"]
    assert (knobs["downscale_seconds"], knobs["smoothing_seconds"]) == (downscale, smoothing)


@pytest.mark.parametrize(
    "values",
    [
        {"model_max_replicas": 2, "model_min_replicas": 3},
        {"model_target_audio_seconds": 20},
    ],
)
def test_scaling_limits_fit(values: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Settings(**values)
