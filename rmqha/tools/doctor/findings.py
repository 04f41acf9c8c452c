"""What the doctor finds, and how it says so."""
from dataclasses import dataclass, field
from enum import Enum


class Severity(Enum):
    """ERROR: it does not work, or data is in danger; WARNING: it will not some day; OK: looked at, and good."""

    ERROR = "ERROR"
    WARNING = "WARNING"
    NOTE = "NOTE"
    OK = "OK"


_CHECK_WIDTH = len("replication")  # the longest name of a check


@dataclass(frozen=True)
class Finding:
    """`what` is so, at `where`; `todo` says what to do about it."""

    severity: Severity
    check: str  # ports, addresses, roles, clocks, disk, limits, offsets, store, config, nameserver, compiled
    where: str
    what: str
    todo: str = ""

    def text(self) -> str:
        """One line, and a second one with what to do."""
        line = f"{self.severity.value:<7} {self.check:<{_CHECK_WIDTH}} {self.where}: {self.what}"
        return f"{line}\n{'':<{7 + 1 + _CHECK_WIDTH + 1}}-> {self.todo}" if self.todo else line


@dataclass
class Report:
    """All findings, in the order in which things were looked at."""

    findings: list[Finding] = field(default_factory=list)

    def error(self, check: str, where: str, what: str, todo: str) -> None:
        """Something does not work, or data is in danger."""
        self.findings.append(Finding(Severity.ERROR, check, where, what, todo))

    def warning(self, check: str, where: str, what: str, todo: str) -> None:
        """Something that will hurt some day, or is likely a mistake."""
        self.findings.append(Finding(Severity.WARNING, check, where, what, todo))

    def note(self, check: str, where: str, what: str, todo: str = "") -> None:
        """Something to know."""
        self.findings.append(Finding(Severity.NOTE, check, where, what, todo))

    def good(self, check: str, where: str, what: str) -> None:
        """A check that passed."""
        self.findings.append(Finding(Severity.OK, check, where, what))

    def count(self, severity: Severity) -> int:
        """How many findings of a severity."""
        return sum(finding.severity is severity for finding in self.findings)
