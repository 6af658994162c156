"""How much a run measures: the quick mode and the full one, and where its files lie."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Plan:
    """Sizes of a run.

    Attributes:
        mode: quick or full.
        work: folder of the random checkpoints; kept and used again by the next run.
        headline: shape of the checkpoint of the engine-against-FunASR and cold-start rows.
        subject: shape of the checkpoint of all other rows.
        rounds: interleaved rounds of each comparison.
        cold_rounds: fresh processes, and fresh applications, of each kind.
        load_seconds: length of an open-loop run.
        requests: requests of each round at saturation.
        endurance: requests of the endurance run.
    """

    mode: str
    work: Path
    headline: str
    subject: str
    rounds: int
    cold_rounds: int
    load_seconds: float
    requests: int
    endurance: int

    def checkpoint(self, shape: str) -> Path:
        """Directory of a random checkpoint in FunASR's layout."""
        return self.work / f"random-{shape}"

    def prepared(self, shape: str) -> Path:
        """Directory of its prepared form."""
        return self.work / f"prepared-{shape}"


def quick(work: Path) -> Plan:
    """A few minutes on two cores: the large shape only where the budget is about it."""
    return Plan("quick", work, "large", "base", 3, 2, 20.0, 18, 2_000)


def full(work: Path) -> Plan:
    """The large shape everywhere."""
    return Plan("full", work, "large", "large", 9, 4, 120.0, 48, 10_000)


def make_checkpoints(plan: Plan) -> None:
    """Write the random checkpoints and their prepared forms where they are not there yet."""
    from benchmarks.checkpoints import write_checkpoint
    from benchmarks.reference import quiet
    from engine.hub import load_directory
    from engine.prepared import is_prepared, write_prepared

    for shape in dict.fromkeys((plan.headline, plan.subject)):
        directory, prepared = plan.checkpoint(shape), plan.prepared(shape)
        # the last file that is written says that the others are complete
        if not (directory / "configuration.json").is_file():
            with quiet():
                write_checkpoint(directory, shape)
        if not is_prepared(prepared):
            write_prepared(prepared, load_directory(directory))
