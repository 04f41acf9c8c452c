"""What a check of a store brings to light."""
from collections import Counter
from dataclasses import dataclass, field


class EnoughFlawsError(Exception):
    """As many flaws are found as were asked for."""


@dataclass(frozen=True)
class Flaw:
    """`what` is wrong, at byte `position` of a file; None when it is the file as a whole."""

    file: str
    position: int | None
    what: str

    def text(self) -> str:
        """One line."""
        return f"{self.file}{'' if self.position is None else f' at {self.position}'}: {self.what}"


@dataclass
class Findings:
    """Flaws up to `limit`, and notes: what is not a flaw, and how often it was met."""

    limit: int
    flaws: list[Flaw] = field(default_factory=list)
    notes: Counter[str] = field(default_factory=Counter)

    def flaw(self, file: str, position: int | None, what: str) -> None:
        """Take down a flaw. EnoughFlawsError at the last one."""
        self.flaws.append(Flaw(file, position, what))
        if len(self.flaws) >= self.limit:
            raise EnoughFlawsError

    def note(self, what: str) -> None:
        """Take down something that a restart mends, or that only looks like a flaw."""
        self.notes[what] += 1
