"""How long it took to open the store."""
import time


class RecoveryTimes:
    """Seconds of the last start: `load_s` looks at what is there, `dispatch_s` makes queues and index complete.

    0.0 until it is over. `was_clean` None before the first.
    """

    def __init__(self) -> None:
        self.load_s = self.dispatch_s = 0.0  # these: written by the starting thread
        self.was_clean: bool | None = None
        self._since_ns = time.monotonic_ns()

    def begin(self, was_clean: bool) -> None:
        """The store is being loaded; `was_clean`: it was stopped in good order."""
        self.was_clean, self._since_ns = was_clean, time.monotonic_ns()

    def loaded(self) -> None:
        """It is."""
        self.load_s = self._elapsed_s()

    def dispatch_begins(self) -> None:
        """What is left over is being dispatched."""
        self._since_ns = time.monotonic_ns()

    def dispatched(self) -> None:
        """It is."""
        self.dispatch_s = self._elapsed_s()

    def _elapsed_s(self) -> float:
        return (time.monotonic_ns() - self._since_ns) / 1e9
