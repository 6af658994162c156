"""Prometheus metrics, exported by Ray on every node as `ray_<name>`; all names are here."""

from ray.util.metrics import Counter, Gauge, Histogram

STAGE_MS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000)
BATCH_CLIPS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
BATCH_FRAMES = (50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000)


class AnswerMetrics:
    """What whoever answers counts: the ingress, and the proxy where it refuses by itself."""

    def __init__(self) -> None:
        self.answers = Counter(
            "e2v_answers_total",
            "Audio files answered, by result (ok, or the error_type).",
            tag_keys=("result",),
        )


class RequestMetrics(AnswerMetrics):
    """What the ingress counts beside its answers."""

    def __init__(self) -> None:
        super().__init__()
        self.stage_ms = Histogram(
            "e2v_stage_milliseconds",
            "Time of an answered file in each stage, and in total.",
            boundaries=list(STAGE_MS),
            tag_keys=("stage",),
        )
        self.audio_seconds = Counter("e2v_audio_seconds_total", "Seconds of audio answered.")
        self.cache = Counter(
            "e2v_cache_lookups_total", "Lookups in the cache, by result.", tag_keys=("result",)
        )
        self.warnings = Counter(
            "e2v_warnings_total", "Warnings in answers, by code.", tag_keys=("code",)
        )
        self.inflight_audio_seconds = Gauge(
            "e2v_inflight_audio_seconds", "Seconds of audio in the graph, per ingress replica."
        )
        self.inflight_requests = Gauge(
            "e2v_inflight_requests", "Requests in the house, per ingress replica."
        )


class ModelMetrics:
    """What a model replica counts."""

    def __init__(self) -> None:
        self.batch_clips = Histogram(
            "e2v_batch_clips", "Clips in a batch.", boundaries=list(BATCH_CLIPS)
        )
        self.batch_frames = Histogram(
            "e2v_batch_frames", "Work of a batch in frames.", boundaries=list(BATCH_FRAMES)
        )
        self.batch_ms = Histogram(
            "e2v_batch_milliseconds", "Time of a batch.", boundaries=list(STAGE_MS)
        )
        self.padding_ratio = Gauge(
            "e2v_padding_ratio", "Share of the last batch's rows that belong to no clip."
        )
        self.queued_audio_seconds = Gauge(
            "e2v_queued_audio_seconds", "Audio that waits for a batch of this replica."
        )
        self.float32_retries = Counter(
            "e2v_float32_retries_total", "Passes repeated in float32: not finite at first."
        )
        self.batch_failures = Counter("e2v_batch_failures_total", "Batches that failed as a whole.")
        self.device_memory_bytes = Gauge(
            "e2v_device_memory_bytes", "Memory that this replica holds on its GPU."
        )
