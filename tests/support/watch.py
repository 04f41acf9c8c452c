"""What a process holds: descriptors and threads must return to where they were after a fault."""
import psutil

from tests.support.processes import ServerProcess
from tests.support.raw_remoting import RawClient
from tests.support.wait import wait_until


class Holdings:
    """Descriptors and threads of a server, taken now; `assert_returned` waits until no more are left than then."""

    def __init__(self, server: ServerProcess):
        self._process = psutil.Process(server.pid)
        self._spare_threads = 60 if server.command[0] == "java" else 4
        self._before = self._now()

    def _now(self) -> dict[str, int]:
        return {"descriptors": self._process.num_fds(), "threads": self._process.num_threads()}

    def assert_returned(self, timeout_ms: int = 60_000) -> None:
        """A few more may stay: pools make their threads on demand (the JVM's by dozens), stores open a file."""
        spare = {"descriptors": 4, "threads": self._spare_threads}

        def returned() -> bool:
            return all(count <= self._before[what] + spare[what] for what, count in self._now().items())
        try:
            wait_until(returned, timeout_ms)
        except AssertionError:
            raise AssertionError(f"before: {self._before}, now: {self._now()}") from None

    def cpu_seconds(self) -> float:
        """User and system time so far."""
        times = self._process.cpu_times()
        return times.user + times.system


class GoodClient:
    """A well-behaved connection that must not notice what others do: sends and reads its own message each time."""

    def __init__(self, broker_address: str, topic: str = "GoodTopic"):
        self._client = RawClient(broker_address)
        self._topic = topic
        self._client.create_topic(topic, 1)
        self.sent = 0

    def check(self) -> None:
        """Send one message; it gets the next queue offset and is read back."""
        body = f"good {self.sent}".encode()
        answer = self._client.send_message_once(self._topic, body)
        assert answer.code in (0, 10, 11, 12), answer  # stored: SEND_OK or one of the time-out states
        assert int(answer.fields["queueOffset"]) == self.sent, answer
        wait_until(lambda: self._client.max_offset(self._topic, 0) == self.sent + 1, what="the message is dispatched")
        pulled = self._client.pull(self._topic, 0, self.sent)
        assert pulled.code == 0 and body in pulled.body, pulled
        self.sent += 1

    def close(self) -> None:
        """End the connection."""
        self._client.socket.close()
