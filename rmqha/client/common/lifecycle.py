"""What is started and shut down: `with` does both."""
from types import TracebackType
from typing import Self

from rmqha.client.common.home_process import HomeProcess


class Lifecycle:
    """Base of producers and consumers: started once, in the process that uses them."""

    def __init__(self) -> None:
        super().__init__()
        self._home = HomeProcess()

    def check_process(self) -> None:
        """Raise MQClientException in a process that was forked after the start."""
        self._home.check(f"a {type(self).__name__}")

    def start(self) -> None:
        """Begin."""
        raise NotImplementedError

    def shutdown(self) -> None:
        """End. Idempotent, and no harm where nothing began, nor in a forked process, whose parent still uses it."""
        raise NotImplementedError

    def is_of_another_process(self) -> bool:
        """Whether this process was forked after the start."""
        return self._home.is_left()

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
