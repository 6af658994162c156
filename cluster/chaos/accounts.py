"""Which fault explains which failure: the rules that the run is judged by."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from cluster.chaos.load import Record

NOTICE_SECONDS = 0.25
"""How long after a process has died its callers' sockets may still look open."""


@dataclass(slots=True)
class Fault:
    """Something done to the server.

    Attributes:
        kind: `kill NAME` or `roll NAME` and the like.
        at: `time.monotonic` when it was done.
        back: when the server was whole again; None: it was not, in the time it had.
        note: what is worth knowing besides.
    """

    kind: str
    at: float
    back: float | None = None
    note: str = ""

    @property
    def seconds(self) -> float | None:
        """How long it took until the server was whole again."""
        return None if self.back is None else self.back - self.at

    def explains(self, record: Record) -> bool:
        """Whether a failed request may be blamed on this fault.

        A killed ingress takes with it what it held. A killed proxy takes what it held, and until
        another listens nobody can connect. Nothing else may cost a request.
        """
        ended = record.ended if record.ended is not None else float("inf")
        lost = record.reason.startswith("connection: ") or record.status == 500
        if not lost or ended < self.at:
            return False
        if self.kind == "kill Ingress":
            return record.sent <= self.at + NOTICE_SECONDS
        if self.kind == "kill proxy":
            return self.back is None or record.sent <= self.back
        return False


@dataclass(slots=True)
class Account:
    """Every request in one of three heaps.

    Attributes:
        answered: as it should be.
        explained: failed requests per kind of fault that explains them.
        unexplained: failed requests that nothing explains.
    """

    answered: int = 0
    explained: Counter[str] = field(default_factory=Counter)
    unexplained: list[Record] = field(default_factory=list)

    @property
    def total(self) -> int:
        """All requests."""
        return self.answered + self.explained.total() + len(self.unexplained)


def account(records: Iterable[Record], faults: Sequence[Fault]) -> Account:
    """Sort the requests into their heaps."""
    result = Account()
    for record in records:
        if record.ok:
            result.answered += 1
        elif fault := next((fault for fault in faults if fault.explains(record)), None):
            result.explained[fault.kind] += 1
        else:
            result.unexplained.append(record)
    return result
