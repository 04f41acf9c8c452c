"""The records of a client, read while it writes them: a JSON object per line.

    {"send": 17, "at": 1796070348417359, "us": 439, "tries": 1, "status": "SEND_OK", "id": "...", "offset": 4,
     "queue": 0, "broker": "broker-a"}                a send that returned; `at`: its begin, in us since 1970
    {"send": 18, "at": ..., "us": 3003, "error": "..."}      a send that threw an exception
    {"got": 17, "at": ..., "id": "...", "offset": 4, "queue": 0, "broker": "broker-a", "again": 0}      a message
    {"check": 19, "at": ...}                                 a transaction check

`tries`, and the broker of a received message, are missing if the client does not show them. The number is in the body.
"""
import json
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

OK = "SEND_OK"


@dataclass(frozen=True)
class Send:
    """One call of the application; times in us since 1970. `status` is "" if it threw `error`."""

    number: int
    begin: int
    end: int
    status: str
    error: str
    message_id: str
    # None if unknown
    tries: int | None

    @property
    def ok(self) -> bool:
        """True if it was acknowledged."""
        return self.status == OK


@dataclass(frozen=True)
class Got:
    """One received message."""

    number: int
    at: int
    queue: int
    offset: int


@dataclass
class Records:
    """All records of one client so far. `receptions`: number -> the times."""

    file: Path
    sends: list[Send] = field(default_factory=list)
    got: list[Got] = field(default_factory=list)
    receptions: defaultdict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    checks: defaultdict[int, int] = field(default_factory=lambda: defaultdict(int))
    _read: int = 0

    def update(self) -> "Records":
        """Read the new complete lines."""
        if self.file.exists():
            with open(self.file, "rb") as file:
                file.seek(self._read)
                data = file.read()
            whole = data[:data.rfind(b"\n") + 1]
            self._read += len(whole)
            for line in whole.splitlines():
                self._add(json.loads(line))
        return self

    def _add(self, record: dict) -> None:
        at = record["at"]
        if "send" in record:
            self.sends.append(Send(record["send"], at, at + record["us"], record.get("status", ""),
                                   record.get("error", ""), record.get("id", ""), record.get("tries")))
        elif "got" in record:
            got = Got(record["got"], at, record["queue"], record["offset"])
            self.got.append(got)
            self.receptions[got.number].append(at)
        else:
            self.checks[record["check"]] += 1

    def acknowledged(self) -> set[int]:
        """Return the numbers of the acknowledged messages."""
        return {send.number for send in self.sends if send.ok}
