"""`build(Settings) -> Application`: what `serve run serve_app:build` and the config file import."""

import warnings
from functools import partial
from typing import TYPE_CHECKING, Any

import ray
from ray.serve import Application

from cluster.autoscaling import FAST_SECONDS, PolicyConfig
from cluster.scaled import autoscaling_config
from deployments.cache import Cache
from deployments.graph import Graph
from deployments.ingress import Ingress
from deployments.model import Model, ModelSettings
from deployments.preprocess import Preprocess, PreprocessSettings
from serve_app.cache import CacheStore
from serve_app.http.access_log import QUIET_LOGGING
from serve_app.ray_environment import (
    BODIES_RETURN,
    LARGE_BLOCKS_STAY,
    REPLICA_ENVIRONMENT,
)
from serve_app.settings import Settings

if TYPE_CHECKING:
    from serve_app.service import EmotionService

MAX_ONGOING_REQUESTS = 1_000_000
"""The queue is in the replica, next to the batcher: Serve's default of 5 would cap the batch
and leave the rest to the router's back-off."""

TARGET_AUDIO_SECONDS = {False: 60.0, True: 1_200.0}
"""Default of `model_target_audio_seconds` without and with a GPU: some seconds of work."""

SMALL_CPU = 0.1
"""CPU share of a deployment for placement only; threads are set by the deployments."""


COMPUTING = {
    **LARGE_BLOCKS_STAY,
    "OMP_WAIT_POLICY": "ACTIVE",
    "GOMP_SPINCOUNT": "300000",
}
"""Replicas that compute keep their memory, and their OpenMP threads wait for each other awake, for
less than a millisecond. That is the default, except that it lets them sleep at once where a process
has had more of them than cores (measured: 1.4 times the time for a small model). A thirtieth of the
count costs a tenth of the speed."""

HEALTH_CHECK_SECONDS = 2.0
"""A replica that was killed is replaced this much later at most; Serve's default is 10 s."""

DRAIN_SECONDS = 600.0
"""How long a replica that is told to stop may take over what it holds; without work it goes at
once. Serve's default of 20 s cuts long files and, on a busy machine, short ones."""

START_TRIES = 3
"""Serve gives up on a version after so many starts that failed; its default is three for each
replica, and each of them takes time on the cores from the version that serves."""

ONE_MORE_PERCENT = 1
"""A roll starts one new replica before an old one goes (Serve rounds up). Its default is the
other way round: one replica alone would leave a gap, and wrong weights would leave none."""


def build(args: Settings) -> Application:
    """Bind ingress → preprocess → model."""
    cards = _cluster_gpus()
    model_gpus, preprocess_gpus = gpu_shares(args, cards)
    surge = {"max_surge_percent": ONE_MORE_PERCENT}
    gpu_surge = surge if room_for_one_more(args, cards) else {}
    encoding = {"encoding": "JSON"} if args.log_format == "json" else {}
    logging_config = {**QUIET_LOGGING, **encoding}
    model = _options(
        Model,
        **_model_scale(args, model_gpus),
        **({} if args.model_replicas_per_node else gpu_surge),
        max_ongoing_requests=MAX_ONGOING_REQUESTS,
        ray_actor_options=_actor_options(model_gpus, COMPUTING),
        logging_config=logging_config,
    ).bind(
        ModelSettings(
            model=args.model,
            device=_device(args, model_gpus),
            dtype=args.dtype,
            pass_seconds=args.pass_seconds,
            cpu_threads=args.cpu_threads,
            max_batch_frames=args.max_batch_frames,
            gpu_share=model_gpus,
        )
    )
    preprocess = _options(
        Preprocess,
        num_replicas=args.preprocess_replicas,
        **gpu_surge,
        max_ongoing_requests=MAX_ONGOING_REQUESTS,
        ray_actor_options=_actor_options(preprocess_gpus, COMPUTING),
        logging_config=logging_config,
    ).bind(PreprocessSettings(device=_device(args, preprocess_gpus)))
    cache = None
    if args.cache_bytes:
        cache = _options(
            Cache,
            **surge,
            max_ongoing_requests=MAX_ONGOING_REQUESTS,
            ray_actor_options=_actor_options(0.0),
            logging_config=logging_config,
        ).bind(args.cache_bytes)
    application: Application = _options(
        Ingress,
        num_replicas=args.ingress_replicas,
        **surge,
        max_ongoing_requests=MAX_ONGOING_REQUESTS,
        ray_actor_options=_actor_options(0.0, BODIES_RETURN),
        logging_config=logging_config,
    ).bind(partial(_create_service, args), args.request_timeout_seconds, preprocess, model, cache)
    return application


def _create_service(settings: Settings, graph: Graph, store: CacheStore | None) -> "EmotionService":
    from serve_app.service import EmotionService

    return EmotionService(settings, graph, store)


def _options(deployment: Any, **options: Any) -> Any:
    with warnings.catch_warnings():
        # `metrics_interval_s`: what Serve's warning names instead has no effect in 2.60
        warnings.filterwarnings("ignore", "The `metrics_interval_s`", DeprecationWarning)
        return deployment.options(
            health_check_period_s=HEALTH_CHECK_SECONDS,
            graceful_shutdown_timeout_s=DRAIN_SECONDS,
            max_constructor_retry_count=START_TRIES,
            **options,
        )


def _model_scale(args: Settings, model_gpus: float) -> dict[str, Any]:
    scale: dict[str, Any] = {"num_replicas": args.model_replicas}
    if args.model_max_replicas:
        target = args.model_target_audio_seconds or TARGET_AUDIO_SECONDS[bool(model_gpus)]
        downscale = args.model_downscale_seconds
        # arrivals remembered for longer would keep replicas longer than they are asked to stay
        smoothing = max(FAST_SECONDS, min(PolicyConfig().smoothing_seconds, downscale))
        policy = PolicyConfig(
            target_audio_seconds=target, downscale_seconds=downscale, smoothing_seconds=smoothing
        )
        limits = args.model_min_replicas, args.model_max_replicas
        scale = {"autoscaling_config": autoscaling_config(*limits, policy)}
    if args.model_replicas_per_node:
        scale["max_replicas_per_node"] = args.model_replicas_per_node
    return scale


def gpu_shares(args: Settings, cluster_gpus: float) -> tuple[float, float]:
    """GPU share of a model and of a preprocessing replica; zeros on CPUs."""
    if args.device == "cpu" or (args.device == "auto" and not cluster_gpus):
        return 0.0, 0.0
    return args.model_gpus, args.preprocess_gpus


def room_for_one_more(args: Settings, cards: float) -> bool:
    """Whether some card surely has a free share for one more replica of each kind.

    Free shares may lie on different cards; where their average is enough, one card's is. A roll
    that starts a replica first would otherwise wait for room for ever.
    """
    model_gpus, preprocess_gpus = gpu_shares(args, cards)
    used = model_gpus * args.most_model_replicas + preprocess_gpus * args.preprocess_replicas
    return cards - used >= cards * (model_gpus + preprocess_gpus) or not used


def _cluster_gpus() -> float:
    if not ray.is_initialized():
        return 0.0
    return float(ray.cluster_resources().get("GPU", 0))  # type: ignore[no-untyped-call]


def _device(args: Settings, gpus: float) -> str:
    return args.device if gpus else "cpu"


def _actor_options(gpus: float, variables: dict[str, str] | None = None) -> dict[str, Any]:
    environment = {**REPLICA_ENVIRONMENT, **(variables or {})}
    if not gpus:
        # a replica without a share would otherwise see, and could fill, every GPU
        environment["CUDA_VISIBLE_DEVICES"] = ""
    return {
        "num_cpus": SMALL_CPU,
        "num_gpus": gpus,
        "runtime_env": {"env_vars": environment},
    }
