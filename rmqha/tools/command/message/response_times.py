"""How long sends take."""
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from rmqha.tools.admin.message_questions import ASK_ERRORS


@dataclass
class ResponseTimes:
    """Times of sends in ms; the first, which opens connections, does not count for the average."""

    millis: list[int] = field(default_factory=list)
    succeeded: list[bool] = field(default_factory=list)

    def measure(self, send: Callable[[], object]) -> None:
        """Call, and note how long it took and whether it succeeded."""
        begin_ns = time.monotonic_ns()
        try:
            send()
        except ASK_ERRORS:
            self.succeeded.append(False)
        else:
            self.succeeded.append(True)
        self.millis.append((time.monotonic_ns() - begin_ns) // 1_000_000)

    def average(self) -> float | None:
        """In ms; None for less than two sends."""
        counted = self.millis[1:]
        return sum(counted) / len(counted) if counted else None

    def average_text(self) -> str:
        """With two decimals; `NaN` for less than two sends."""
        average = self.average()
        return "NaN" if average is None else f"{average:.2f}"
