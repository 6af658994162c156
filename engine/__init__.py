"""The model and the sound: Emotion2Vec+ as a plain Python library, no Ray, no web.

    from engine import Engine
    emotions = Engine.load("emotion2vec_mini").infer([wave_16khz])[0]

Submodules are imported on first use, so that a process which only decodes audio never pays
for torch.
"""

from typing import TYPE_CHECKING, Any

from engine.errors import EmotionError, ModelError

if TYPE_CHECKING:
    from engine.emotions import Emotions
    from engine.engine import Engine

__all__ = ["EmotionError", "Emotions", "Engine", "ModelError"]


def __getattr__(name: str) -> Any:
    if name == "Engine":
        from engine.engine import Engine

        return Engine
    if name == "Emotions":
        from engine.emotions import Emotions

        return Emotions
    raise AttributeError(f"module 'engine' has no attribute {name!r}")
