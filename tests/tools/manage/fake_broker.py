"""A server that is registered as a broker, and answers as a test wants; and the home of RocketMQ with accounts."""
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from rmqha.common.protocol import request_code
from rmqha.common.protocol.namesrv_headers import RegisterBrokerRequestHeader, UnRegisterBrokerRequestHeader
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from tests.remoting.support import Processor, running_client, running_server

Answer = Callable[[RemotingCommand], RemotingCommand]


def answer(code: int = 0, body: bytes | None = None, remark: str | None = None, **fields: str) -> Answer:
    """Return a function that answers each request alike."""
    def make(_request: RemotingCommand) -> RemotingCommand:
        response = RemotingCommand.create_response_command(code, remark)
        response.body = body
        for name, value in fields.items():
            response.add_ext_field(name, value)
        return response
    return make


@contextmanager
def registered(namesrv: str, address: str, name: str, cluster: str = "C", broker_id: int = 0) -> Iterator[str]:
    """Register an address as a broker, and yield the address."""
    with running_client() as client:
        def tell(code: int, header: object) -> None:
            assert client.invoke_sync(namesrv, RemotingCommand.create_request_command(code, header), 60_000).code == 0
        tell(request_code.REGISTER_BROKER, RegisterBrokerRequestHeader(
            brokerName=name, brokerAddr=address, clusterName=cluster, haServerAddr="127.0.0.1:1", brokerId=broker_id,
            compressed=False, bodyCrc32=0))
        try:
            yield address
        finally:
            tell(request_code.UNREGISTER_BROKER, UnRegisterBrokerRequestHeader(
                brokerName=name, brokerAddr=address, clusterName=cluster, brokerId=broker_id))


@contextmanager
def fake_broker(namesrv: str, answers: Mapping[int, Answer], name: str = "broker-x", cluster: str = "C",
                broker_id: int = 0) -> Iterator[str]:
    """Run a server with these answers by request code, and yield its address."""
    with running_server() as server:
        for code, make in answers.items():
            server.register_processor(code, Processor(lambda _channel, request, make=make: make(request)))
        with registered(namesrv, f"127.0.0.1:{server.local_listen_port}", name, cluster, broker_id) as address:
            yield address


def prepare_java_home(home: Path) -> None:
    """Copy the files that RocketMQ's broker and its mqadmin need in the `conf` folder of a home."""
    from tests.support import real_rocketmq

    (home / "conf").mkdir(parents=True, exist_ok=True)
    for name in ("broker", "tools"):
        shutil.copy(real_rocketmq.jars().parent / "home" / "conf" / f"logback_{name}.xml", home / "conf")
