"""What must agree before a time is worth anything; runs before everything else."""

import torch

from benchmarks.clips import clips
from benchmarks.comparing import company, distance, require
from benchmarks.plan import Plan
from benchmarks.reference import quiet
from benchmarks.report import OutputsDiffer
from engine.engine import Engine
from engine.errors import ModelError
from engine.verify import verify

LENGTHS = [0.03, 1.0, 6.4, 2.2]


def check_equality(plan: Plan) -> list[str]:
    """Sentences that say what agreed.

    Raises:
        OutputsDiffer: something did not.
    """
    directory = plan.checkpoint(plan.headline)
    try:
        with quiet():
            report = verify(directory)
    except ModelError as error:
        raise OutputsDiffer(str(error)) from None
    sentences = [f"{plan.headline} random checkpoint, float32, alone and packed: {report}"]
    return sentences + check_company(plan)


def check_company(plan: Plan) -> list[str]:
    """A clip in company against the clip alone, and the served precision against float32."""
    waves = clips(LENGTHS)
    exact = Engine.load(plan.prepared(plan.subject), dtype="float32")
    in_float32 = company(exact, waves)
    where = f"{plan.subject}, 4 clips of 0.03–6.4 s in company against alone"
    sentences = [
        require(f"{where}, float32 features", in_float32.features, 1e-4),
        require(f"{where}, float32 scores", in_float32.scores, 1e-5),
    ]
    served = Engine.load(plan.prepared(plan.subject))
    name = str(served.dtype).removeprefix("torch.")
    if served.dtype == torch.float32:
        return [*sentences, "served precision: float32, the one that was compared"]
    reference = exact.infer(waves, frame_embeddings=True)
    apart = distance(served.infer(waves, frame_embeddings=True), reference)
    return [
        *sentences,
        require(f"{name} against float32, scores", apart.scores, 0.02),
        require(f"{where}, {name} scores", company(served, waves).scores, 0.005),
    ]
