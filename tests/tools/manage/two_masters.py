"""Two masters of a cluster in this process, the command line to manage them, masters that are gone, and fake servers.
"""
import itertools
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from click.testing import CliRunner, Result

from rmqha.common.protocol import request_code
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.remoting.remoting_config import ServerConfig
from rmqha.remoting.remoting_server import RemotingServer
from rmqha.tools.rmqha_command import rmqha
from tests.broker.support import BrokerHarness
from tests.support import ports
from tests.support.in_process import running_name_server
from tests.support.raw_remoting import REGISTER_BROKER, RawClient
from tests.support.wait import wait_until
from tests.tools.conftest import broker_at

CLUSTER = "C"
_NUMBERS = itertools.count(1)
_CLUSTER_INFO = ('{{"brokerAddrTable":{{"broker-x":{{"brokerAddrs":{{0:"{0}"}},"brokerName":"broker-x","cluster":"X"}}'
                 '}},"clusterAddrTable":{{"X":["broker-x"]}}}}')


@dataclass
class Line:
    """Runs `rmqha` with the name server's address in the environment, and a patient time-out."""

    namesrv: str

    def run(self, *arguments: object, stdin: str | None = None) -> Result:
        """Return the result of a command."""
        result = CliRunner().invoke(rmqha, [*map(str, arguments), "--timeout", "60"], input=stdin,
                                    env={"NAMESRV_ADDR": self.namesrv})
        assert "Traceback" not in result.output
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result

    def ok(self, *arguments: object) -> Result:
        """Return the result of a command that must not fail."""
        result = self.run(*arguments)
        assert result.exit_code == 0, result.output
        return result

    def object(self, *arguments: object):
        """Return what a command that must not fail prints as JSON."""
        return json.loads(self.ok(*arguments, "-o", "json").stdout)

    def objects(self, *arguments: object) -> list[dict]:
        """Return the objects that a command prints, a line each."""
        return [json.loads(line) for line in self.ok(*arguments, "-o", "json").stdout.splitlines()]


@dataclass
class Masters(Line):
    """A running cluster, and its masters by name."""

    brokers: dict[str, BrokerHarness]

    @staticmethod
    def unique(prefix: str) -> str:
        """Return a name that no other test uses."""
        return f"{prefix}{next(_NUMBERS)}"

    def configs(self, topic: str) -> dict[str, object]:
        """Return the settings of a topic by broker."""
        tables = {name: broker.controller.topic_config_manager for name, broker in self.brokers.items()}
        return {name: table.select_topic_config(topic) for name, table in tables.items()}

    def dispatched(self) -> None:
        """Wait until the brokers have dispatched all messages."""
        for broker in self.brokers.values():
            wait_until(lambda broker=broker: broker.store.dispatch_behind_bytes() <= 0, 60_000, "dispatch")


@contextmanager
def two_masters(folder: Path, **config: object) -> Iterator[Masters]:
    """Run a name server, broker-a and broker-b."""
    with ExitStack() as stack:
        namesrv = stack.enter_context(running_name_server(folder))
        yield Masters(namesrv, {
            name: stack.enter_context(broker_at(folder / name, namesrv, brokerName=name, brokerClusterName=CLUSTER,
                                                **config)) for name in ("broker-a", "broker-b")})


@contextmanager
def unreachable_master(namesrv: str, name: str = "broker-c", crashed: bool = False) -> Iterator[str]:
    """Register a master at whose address nothing listens; with `crashed` its connection has ended."""
    address = f"127.0.0.1:{ports.free_port()}"
    with RawClient(namesrv) as client:
        answer = client.request(REGISTER_BROKER, b"", brokerName=name, brokerAddr=address, clusterName=CLUSTER,
                                haServerAddr="127.0.0.1:1", brokerId=0, compressed="false", bodyCrc32=0)
        assert answer.code == 0, answer
        if not crashed:
            yield address
    if crashed:
        try:
            yield address
        finally:
            _unregister(namesrv, name, address)
    else:
        _unregister(namesrv, name, address)


def _unregister(namesrv: str, name: str, address: str) -> None:
    with RawClient(namesrv) as client:
        client.request(request_code.UNREGISTER_BROKER, b"", brokerName=name, brokerAddr=address, clusterName=CLUSTER,
                       brokerId=0)


Answer = Callable[[RemotingCommand], RemotingCommand | None]


class FakeServer:
    """A name server and its only master, broker-x of the cluster X, at one port.

    `answers`: the body, or a function that makes the response, by request code; other requests succeed without a body.
    """

    def __init__(self, answers: dict[int, bytes | Answer]) -> None:
        self.answers = answers
        self.codes: list[int] = []
        self.server = RemotingServer(ServerConfig(listenPort=0))
        self.server.register_default_processor(self)

    def __enter__(self) -> "FakeServer":
        self.server.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self.server.shutdown()

    @property
    def address(self) -> str:
        """The address of both servers."""
        return f"127.0.0.1:{self.server.local_listen_port}"

    def reject_request(self) -> bool:
        """Serve each request."""
        return False

    def process_request(self, _channel: object, request: RemotingCommand) -> RemotingCommand | None:
        """Return the answer that was given for the request's code."""
        self.codes.append(request.code)
        answer = self.answers.get(request.code)
        if callable(answer):
            return answer(request)
        response = RemotingCommand.create_response_command(0, None)
        if answer is not None:
            response.body = answer
        elif request.code == request_code.GET_BROKER_CLUSTER_INFO:
            response.body = _CLUSTER_INFO.format(self.address).encode()
        return response
