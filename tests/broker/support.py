"""What the tests of the broker share."""
import itertools
from contextlib import contextmanager
from pathlib import Path

from rmqha.broker.broker_controller import BrokerController
from rmqha.common import subscriptions as filter_api
from rmqha.common import sys_flags
from rmqha.common.broker_config import BrokerConfig
from rmqha.common.message import message_decoder
from rmqha.common.protocol import request_code
from rmqha.common.protocol.client_headers import PullMessageRequestHeader, SendMessageRequestHeaderV2
from rmqha.common.protocol.command_custom_header import CommandCustomHeader
from rmqha.common.subscriptions import ConsumerData, ConsumeType, HeartbeatData, MessageModel, ProducerData
from rmqha.remoting.protocol import remoting_serializable
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.remoting.remoting_client import RemotingClient
from rmqha.remoting.remoting_config import RemotingClientConfig, ServerConfig
from rmqha.store.message_store_config import MessageStoreConfig
from tests.support.wait import wait_until

_SMALL = {"mappedFileSizeCommitLog": 1 << 20, "mappedFileSizeConsumeQueue": 20_000, "maxHashSlotNum": 1000,
          "maxIndexNum": 4000, "haListenPort": 0, "haSendHeartbeatInterval": 100}
# A busy machine is no busy broker.
_PATIENT = {"waitTimeMillsInSendQueue": 60_000, "waitTimeMillsInPullQueue": 60_000,
            "waitTimeMillsInTransactionQueue": 60_000, "osPageCacheBusyTimeOutMills": 60_000}


def new_controller(folder: Path, namesrv_addr: str | None = None, **config: object) -> BrokerController:
    """A broker that is not started; `config` names keys of any of the config classes."""
    broker_config = BrokerConfig(brokerName="broker-a", brokerIP1="127.0.0.1", brokerIP2="127.0.0.1",
                                 rocketmqHome=str(folder), namesrvAddr=namesrv_addr)
    store_config = MessageStoreConfig(storePathRootDir=str(folder / "store"), **_SMALL)
    server_config = ServerConfig(listenPort=0)
    for key, value in {**_PATIENT, **config}.items():
        target = next(one for one in (broker_config, store_config, server_config) if hasattr(one, key))
        setattr(target, key, value)
    return BrokerController(broker_config, server_config, RemotingClientConfig(), store_config,
                            str(folder / "broker.conf"))


@contextmanager
def running_broker(folder: Path, namesrv_addr: str | None = None, **config: object):
    """A started broker with a client, shut down in the end."""
    controller = new_controller(folder, namesrv_addr, **config)
    try:
        assert controller.initialize()
        controller.start()
        with BrokerHarness(controller) as harness:
            yield harness
    finally:
        controller.shutdown()


class BrokerHarness:
    """A broker and a client of it."""

    _born = itertools.count(1_700_000_000_000)

    def __init__(self, controller: BrokerController) -> None:
        self.controller = controller
        self.store = controller.message_store
        self.client = RemotingClient(RemotingClientConfig())

    def __enter__(self) -> "BrokerHarness":
        self.client.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self.client.shutdown()

    @property
    def address(self) -> str:
        """The remoting port's."""
        return self.controller.broker_addr

    @property
    def fast_address(self) -> str:
        """The fast port's."""
        return f"127.0.0.1:{self.controller.fast_remoting_server.local_listen_port}"

    def call(self, code: int, header: CommandCustomHeader | None = None, body: object = None,
             address: str | None = None, timeout_ms: int = 60_000) -> RemotingCommand:
        """Ask; `body` is bytes, or a dataclass to be written as JSON."""
        request = RemotingCommand.create_request_command(code, header)
        if body is not None:
            request.body = body if isinstance(body, bytes) else remoting_serializable.encode(body)
        return self.client.invoke_sync(address or self.address, request, timeout_ms)

    def send_header(self, topic: str, queue_id: int = 0, properties: dict[str, str] | None = None,
                    **fields: object) -> SendMessageRequestHeaderV2:
        """The header of a send."""
        header = SendMessageRequestHeaderV2(
            a="producer", b=topic, c="TBW102", d=4, e=queue_id, f=0, g=next(self._born), h=0,
            i=message_decoder.message_properties2string(properties or {}), j=0)
        for name, value in fields.items():
            setattr(header, name, value)
        return header

    def send(self, topic: str, body: bytes = b"body", queue_id: int = 0, properties: dict[str, str] | None = None,
             **fields: object) -> RemotingCommand:
        """Send one message."""
        return self.call(request_code.SEND_MESSAGE_V2, self.send_header(topic, queue_id, properties, **fields), body)

    def next_offset(self, topic: str, queue_id: int = 0) -> int:
        """The queue's end, once everything is dispatched."""
        wait_until(lambda: self.store.dispatch_behind_bytes() <= 0, 60_000, "dispatch")
        return self.store.get_max_offset_in_queue(topic, queue_id)

    def pull_header(self, topic: str, offset: int, /, group: str = "consumer", queue_id: int = 0, expression: str = "*",
                    suspend_ms: int = 0, **fields: object) -> PullMessageRequestHeader:
        """The header of a pull that brings its subscription with it."""
        header = PullMessageRequestHeader(
            consumerGroup=group, topic=topic, queueId=queue_id, queueOffset=offset, maxMsgNums=32,
            sysFlag=sys_flags.build_pull_sys_flag(False, suspend_ms > 0, True, False), commitOffset=0,
            suspendTimeoutMillis=suspend_ms, subscription=expression, subVersion=0, expressionType="TAG")
        for name, value in fields.items():
            setattr(header, name, value)
        return header

    def pull(self, topic: str, offset: int, timeout_ms: int = 60_000, **fields: object) -> RemotingCommand:
        """Pull once."""
        return self.call(request_code.PULL_MESSAGE, self.pull_header(topic, offset, **fields), timeout_ms=timeout_ms)

    def heartbeat(self, group: str, *topics: str, client_id: str = "client-1", expression: str = "*",
                  producers: tuple[str, ...] = (), sub_version: int | None = None) -> RemotingCommand:
        """Say that a consumer of a group is there."""
        subscriptions = {filter_api.build_subscription_data(topic, expression) for topic in topics}
        for subscription in subscriptions:
            if sub_version is not None:
                subscription.subVersion = sub_version
        data = ConsumerData(groupName=group, consumeType=ConsumeType.CONSUME_PASSIVELY,
                            messageModel=MessageModel.CLUSTERING, subscriptionDataSet=subscriptions)
        body = HeartbeatData(client_id, {ProducerData(name) for name in producers}, {data} if topics else set())
        return self.call(request_code.HEART_BEAT, body=body)


def bodies(response: RemotingCommand) -> list[bytes]:
    """The bodies of the messages in a pull answer."""
    return [message.body for message in message_decoder.decodes(response.body or b"")]
