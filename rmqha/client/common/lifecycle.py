"""What is started and shut down: `with` does both."""
from types import TracebackType
from typing import Self


class Lifecycle:
    """Base of producers and consumers."""

    def start(self) -> None:
        """Begin."""
        raise NotImplementedError

    def shutdown(self) -> None:
        """End. Idempotent, and no harm where nothing began."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        try:
            self.start()
        except Exception:  # no name server, say: leave no thread behind
            self.shutdown()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.shutdown()
