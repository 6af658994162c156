"""Every setting of the application, once: names, defaults, units and what must fit together.

The same name is the key in `args:` of a Serve config file, in `serve run serve_app:build
key=value`, the flag of `e2v serve --key` and, with the prefix `E2V_`, the environment variable.
Explicit values win over the environment, the environment over the defaults.
"""

from typing import Literal

from pydantic import Field, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

APP_NAME = "emotion2vec"


class Settings(BaseSettings):
    """Settings of the application; frozen, unknown names are refused."""

    model_config = SettingsConfigDict(
        env_prefix="E2V_", extra="forbid", frozen=True, protected_namespaces=()
    )

    model: str = Field(
        "emotion2vec_mini",
        description="emotion2vec_mini, a directory, iic/NAME (ModelScope) or ORG/NAME (Hugging "
        "Face), the last two with an optional @REVISION",
    )
    device: str = Field(
        "auto", description="cpu, cuda, or auto: GPUs where the Ray cluster has any"
    )
    dtype: Literal["auto", "float32", "float16", "bfloat16"] = Field(
        "auto", description="number format of the encoder"
    )
    pass_seconds: float = Field(
        30.0, ge=5, le=120, description="longest excerpt that the model hears at once"
    )
    cpu_threads: int = Field(
        0, ge=0, le=1024, description="threads of a model replica on the CPU; 0: every core"
    )
    max_batch_frames: int = Field(
        0,
        ge=0,
        le=200_000,
        description="work of one batch in frames of 20 ms; 0: 1500 on a CPU, 16000 on CUDA",
    )
    model_replicas: int = Field(1, ge=1, le=1000, description="replicas of the model")
    model_max_replicas: int = Field(
        0, ge=0, le=1000, description="most replicas when scaling by work; 0: always model_replicas"
    )
    model_min_replicas: int = Field(
        1, ge=0, le=1000, description="fewest replicas when scaling by work"
    )
    model_target_audio_seconds: float = Field(
        0.0, ge=0, description="audio held per replica when scaling; 0: 60 on a CPU, 1200 on CUDA"
    )
    model_downscale_seconds: float = Field(
        300.0, ge=0, description="how long fewer replicas must have been enough"
    )
    model_replicas_per_node: int = Field(
        0, ge=0, le=100, description="most model replicas on one node; 0: as many as fit"
    )
    preprocess_replicas: int = Field(1, ge=1, le=1000, description="replicas of the preprocessing")
    model_gpus: float = Field(
        0.8, ge=0, le=8, description="share of a GPU per model replica, where GPUs are used"
    )
    preprocess_gpus: float = Field(
        0.2, ge=0, le=8, description="share of a GPU per preprocessing replica, where GPUs are used"
    )
    ingress_replicas: int = Field(1, ge=1, le=1000, description="replicas of the ingress")
    decode_workers: int = Field(
        0, ge=0, le=256, description="decoder processes of an ingress replica; 0: one per core"
    )
    max_body_bytes: int = Field(512 * 2**20, ge=1024, description="largest request body")
    max_files: int = Field(16, ge=1, le=1024, description="most files in one request")
    max_audio_seconds: float = Field(14_400.0, gt=0, description="longest audio")
    max_decoded_samples: int = Field(
        5 * 10**9, ge=1, description="most samples of one audio, all channels together"
    )
    min_sample_rate_hz: int = Field(4_000, ge=1, description="lowest sample rate of a source")
    max_sample_rate_hz: int = Field(384_000, ge=1, description="highest sample rate of a source")
    max_channels: int = Field(32, ge=1, le=255, description="most channels of a source")
    decode_stall_seconds: float = Field(
        5.0, gt=0, description="longest wait for the decoder's next samples"
    )
    request_timeout_seconds: float = Field(
        60.0, gt=0, description="longest wait for each step of one pass of audio"
    )

    vad: Literal["asked", "always"] = Field(
        "asked", description="voice activity detection: when a request asks for it, or always"
    )
    max_inflight_requests: int = Field(
        1_000, ge=1, description="requests at once in an ingress replica, before the body is read"
    )
    max_inflight_bytes: int = Field(
        2 * 2**30, ge=1024, description="body bytes at once in an ingress replica"
    )
    max_inflight_audio_seconds: float = Field(
        0.0,
        ge=0,
        description="audio in the graph per ingress replica; 0: 330 on a CPU, 4000 on CUDA, "
        "times the most model replicas",
    )
    cache_bytes: int = Field(
        256 * 2**20, ge=0, description="cache of what was heard before; 0: off"
    )
    api_keys_file: str = Field(
        "", description="file of API keys, one a line, read again when it changes; empty: none"
    )
    cors_origins: tuple[str, ...] = Field(
        (), description="origins whose pages may call from a browser"
    )
    log_format: Literal["text", "json"] = Field("text", description="form of the log lines")

    @model_validator(mode="after")
    def _fit_together(self) -> "Settings":
        if self.min_sample_rate_hz > self.max_sample_rate_hz:
            raise ValueError(
                f"min_sample_rate_hz {self.min_sample_rate_hz} is above max_sample_rate_hz "
                f"{self.max_sample_rate_hz}: lower the first or raise the second"
            )
        if self.device.startswith("cuda") and not self.model_gpus:
            raise ValueError("device=cuda needs model_gpus above 0, for example model_gpus=0.8")
        for name in ("model_gpus", "preprocess_gpus"):
            share = getattr(self, name)
            if share > 1 and share != int(share):
                raise ValueError(f"{name} {share:g} is above 1, so it must be a whole number")
        if 0 < self.model_max_replicas < max(1, self.model_min_replicas):
            raise ValueError(
                f"model_max_replicas {self.model_max_replicas} is below model_min_replicas "
                f"{self.model_min_replicas}"
            )
        if 0 < self.model_target_audio_seconds <= self.pass_seconds:
            raise ValueError(
                f"model_target_audio_seconds {self.model_target_audio_seconds:g} must be above "
                f"pass_seconds {self.pass_seconds:g}: one pass would ask for another replica"
            )
        return self

    @property
    def most_model_replicas(self) -> int:
        """How many model replicas there may be."""
        return self.model_max_replicas or self.model_replicas
