"""Java's requests and replies through the real broker and through rmqha's: the same replies, the same refusals."""
import pytest

from rmqha.common.message import message_decoder
from rmqha.common.protocol import request_code
from rmqha.common.protocol.client_headers import SendMessageRequestHeader, SendMessageRequestHeaderV2
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.remoting.remoting_client import RemotingClient
from rmqha.remoting.remoting_config import RemotingClientConfig
from tests.support import store_compare
from tests.support.nodes import BrokerNode, NamesrvNode
from tests.support.wait import wait_until

pytestmark = pytest.mark.java

KINDS = ("java", "rmqha")
TOPIC, REPLY_TOPIC = "Requests", "InteropCluster_REPLY_TOPIC"


@pytest.fixture(scope="module")
def brokers(module_nodes, tmp_path_factory, java_driver):
    """A broker of each kind; kind -> broker."""
    started = {}
    for kind in KINDS:
        folder = tmp_path_factory.mktemp(kind)
        namesrv = NamesrvNode("rmqha", folder / "namesrv")
        broker = started[kind] = BrokerNode(kind, folder / "broker", namesrv.address, shared_jvm=True)
        module_nodes.extend([namesrv, broker])
        namesrv.start()
        broker.start()
        java_driver.create_topic(namesrv.address, broker.address, TOPIC, 2)
    return started


def replies(broker: BrokerNode) -> list:
    """What the broker's log has of the reply topic: queue offset, body, queue, flags, and the properties' names."""
    return [(record.queue_offset, record.body, record.queue_id, record.sys_flag, sorted(record.properties))
            for record in store_compare.walk(broker.commit_log) if record.topic == REPLY_TOPIC]


def test_java_gets_replies_to_its_requests(brokers, java_driver):
    bodies = ["abc", "größe ß", "-", "x" * 3000 + "y"]
    before = {kind: len(replies(broker)) for kind, broker in brokers.items()}
    got = {kind: java_driver.submit("ask", namesrv=broker.namesrv, topic=TOPIC, group=f"ask-{kind}", bodies=bodies,
                                    timeoutMs=60_000).result()["replies"] for kind, broker in brokers.items()}
    assert got["rmqha"] == got["java"]
    assert got["rmqha"][0] == "cba" and "wait reply message timeout, 3000 ms" in got["rmqha"][2]
    # A broker gives a reply to the client that asked before it stores it: the next one may be stored earlier.
    stored = {kind: wait_until(lambda kind=kind: len(all_of := replies(brokers[kind])) == before[kind] + 3 and all_of,
                               60_000, f"three replies stored by {kind}")[before[kind]:] for kind in brokers}
    by_body = {kind: sorted((body, *more) for _queue_offset, body, *more in found) for kind, found in stored.items()}
    assert by_body["rmqha"] == by_body["java"]
    assert [offset for offset, *_ in stored["rmqha"]] == [offset for offset, *_ in stored["java"]]


def test_replies_to_nobody_are_refused_with_the_same_words(brokers):
    answers = {}
    for kind, broker in brokers.items():
        client = RemotingClient(RemotingClientConfig())
        client.start()
        try:
            answers[kind] = [send(client, broker.address, properties, is_v2) for is_v2 in (False, True)
                             for properties in ({}, {"REPLY_TO_CLIENT": "nobody", "CORRELATION_ID": "1"})]
        finally:
            client.shutdown()
    assert answers["rmqha"] == answers["java"]
    assert [code for code, *_ in answers["rmqha"]] == [1] * 4


def send(client: RemotingClient, address: str, properties: dict[str, str], is_v2: bool) -> tuple:
    """A reply sent by hand; code, remark and the fields of the answer but its id."""
    text = message_decoder.message_properties2string({"MSG_TYPE": "reply", **properties})
    if is_v2:
        header = SendMessageRequestHeaderV2(a="p", b=REPLY_TOPIC, c="TBW102", d=4, e=0, f=0, g=1, h=0, i=text, j=0)
        code = request_code.SEND_REPLY_MESSAGE_V2
    else:
        header = SendMessageRequestHeader("p", REPLY_TOPIC, "TBW102", 4, 0, 0, 1, 0, text)
        code = request_code.SEND_REPLY_MESSAGE
    request = RemotingCommand.create_request_command(code, header)
    request.body = b"reply"
    response = client.invoke_sync(address, request, 30_000)
    fields = {name: value for name, value in (response.ext_fields or {}).items() if name != "msgId"}
    return response.code, response.remark, fields
