"""A client in a forked process: it has none of the threads of the one that started it, and shares its connections."""
import os

from rmqha.client.exception import MQClientException


class HomeProcess:
    """Remembers which process started a client: that one alone may use it.

    Differs: in the original no process is forked from a client's. What a child sent over the shared connection would be
    stored, and the answer would reach the parent.
    """

    __slots__ = ("_pid",)

    def __init__(self) -> None:
        self._pid = 0  # until it is started; written once, by who starts it

    def begin(self) -> None:
        """The client is started here. MQClientException when it was started in another process."""
        self.check("a client")
        self._pid = os.getpid()

    def is_left(self) -> bool:
        """Whether this process was forked from the one that started the client."""
        return self._pid != 0 and self._pid != os.getpid()

    def check(self, what: str) -> None:
        """Raise MQClientException when this process was forked from the one that started `what`."""
        if self.is_left():
            raise MQClientException(
                f"{what} that was started in process {self._pid} can't be used in process {os.getpid()}, which was "
                "forked from it and has none of its threads: make and start one after the fork, in each process its "
                "own (with multiprocessing, in the worker)")
