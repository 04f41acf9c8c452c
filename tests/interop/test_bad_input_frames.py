"""Bytes that are no remoting frames, on all ports of whole processes: answered or closed, and nobody else notices."""
import json
import struct

import pytest

from tests.support.kinds import single
from tests.support.nodes import BrokerNode, NamesrvNode
from tests.support.raw_remoting import GET_BROKER_CLUSTER_INFO, GET_MAX_OFFSET, RawClient, frame, header
from tests.support.wait import wait_until
from tests.support.watch import GoodClient, Holdings

MAX_FRAME = 16 * 1024 * 1024
PORTS = ["namesrv", "broker", "fast"]
CLIENT_HELLO = (bytes.fromhex("16030100bd010000b90303") + bytes(range(32)) + bytes.fromhex("00000213010100008e")
                + bytes(142))
MUST_CLOSE = {
    "length 0": struct.pack(">i", 0),
    "length 3": struct.pack(">i", 3) + b"abc",
    "negative length": struct.pack(">i", -1) + b"abcdefgh",
    "lowest length": struct.pack(">i", -2**31) + b"abcdefgh",
    "length 16 MiB + 1": struct.pack(">i", MAX_FRAME + 1 - 4),
    "length 2^31 - 1": struct.pack(">i", 2**31 - 1),
    "header beyond the frame": frame(b"{}", header_length=1000),
    "header of 2^24 - 1": frame(b"{}", header_length=0xFFFFFF),
    "unknown serialize type": frame(header(GET_BROKER_CLUSTER_INFO), serialize_type=5),
    "HTTP": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "binary header cut": frame(b"\0\x6a\0\1\x99", serialize_type=1),
    "binary header with a lying length": frame(struct.pack(">hbhiii", 106, 0, 409, 1, 0, 2**31 - 1), serialize_type=1),
}
MAY_ANSWER = {
    "header length 0": frame(b""),
    "header no JSON": frame(b"\xff\xfe\x00garbage"),
    "header deep": frame(b'{"code":106,"extFields":' + b"[" * 200_000),
    "header deep and closed": frame(b'{"code":106,"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    "header NaN": frame(b'{"code":NaN,"opaque":1,"flag":0,"language":"JAVA","version":409}'),
    "header wrong types": frame(b'{"code":"x","opaque":[],"flag":{},"language":7,"version":null,"extFields":[1]}'),
    "header a list": frame(b"[1,2,3]"),
    "header null": frame(b"null"),
    "huge integer": frame(b'{"code":' + b"9" * 5000 + b',"opaque":1,"flag":0}'),
    "fields null": frame(b'{"code":106,"opaque":1,"flag":0,"language":"JAVA","version":409,"extFields":{"a":null}}'),
    "unknown language": frame(b'{"code":106,"opaque":1,"flag":0,"language":"KLINGON","version":409}'),
    "response to nothing": frame(b'{"code":0,"opaque":77,"flag":1,"language":"JAVA","version":409}'),
}


@pytest.fixture(scope="module", params=single("rmqha"))
def servers(request, module_nodes, tmp_path_factory):
    folder = tmp_path_factory.mktemp("bad-frames")
    namesrv = NamesrvNode(request.param, folder / "namesrv")
    module_nodes.append(namesrv)
    namesrv.start()
    broker = BrokerNode(request.param, folder / "broker", namesrv.address)
    module_nodes.append(broker)
    broker.start()
    good = GoodClient(broker.address)
    yield namesrv, broker, good
    good.close()


def address(servers, port: str) -> str:
    namesrv, broker, _ = servers
    return {"namesrv": namesrv.address, "broker": broker.address, "fast": f"127.0.0.1:{broker.port - 2}"}[port]


def assert_unharmed(servers) -> None:
    namesrv, broker, good = servers
    good.check()
    for target in (namesrv.address, f"127.0.0.1:{broker.port - 2}"):
        with RawClient(target) as client:
            answer = client.request(GET_BROKER_CLUSTER_INFO) if target == namesrv.address else client.request(
                GET_MAX_OFFSET, topic="GoodTopic", queueId=0)
            assert answer.code == 0, answer
    assert namesrv.is_alive and broker.is_alive


@pytest.mark.parametrize("port", PORTS)
@pytest.mark.parametrize("what", MUST_CLOSE)
def test_frame_that_cannot_be_read_closes_the_connection(servers, port, what):
    with RawClient(address(servers, port)) as client:
        client.send(MUST_CLOSE[what])
        assert client.is_closed_by_peer(), what
    assert_unharmed(servers)


@pytest.mark.parametrize("port", PORTS)
def test_tls_on_a_plain_connection_never_hangs(servers, port):
    """Closed, or an alert or a server hello where TLS is on."""
    with RawClient(address(servers, port)) as client:
        client.send(CLIENT_HELLO)
        client.socket.settimeout(60)
        try:
            first = client.socket.recv(1)
        except ConnectionResetError:
            first = b""
        assert first in (b"", b"\x15", b"\x16")
    assert_unharmed(servers)


@pytest.mark.parametrize("port", PORTS)
@pytest.mark.parametrize("what", MAY_ANSWER)
def test_header_that_makes_no_sense_is_answered_or_closed_and_the_next_client_served(servers, port, what):
    with RawClient(address(servers, port)) as client:
        try:
            client.send(MAY_ANSWER[what])
            client.send(frame(header(GET_BROKER_CLUSTER_INFO if port == "namesrv" else 9999, opaque=2)))
        except ConnectionError:  # closed before all was sent
            assert client.is_closed_by_peer()
        else:
            answer = client.answer_or_close()  # to the bad one, or to the good one behind it
            assert answer is None or isinstance(answer.code, int)
    assert_unharmed(servers)


@pytest.mark.parametrize("port", ["namesrv", "broker"])
def test_frame_of_exactly_16_mib_is_taken(servers, port):
    code, fields = (GET_BROKER_CLUSTER_INFO, {}) if port == "namesrv" else (GET_MAX_OFFSET, {"topic": "GoodTopic",
                                                                                          "queueId": 0})
    head = header(code, opaque=5, **fields)
    with RawClient(address(servers, port), timeout_s=60) as client:
        client.send(frame(head, bytes(MAX_FRAME - 8 - len(head))))
        opaque, answer = client.read_frame()
    assert (opaque, answer.code) == (5, 0)
    assert_unharmed(servers)


def test_unknown_code_gets_code_3_from_the_broker(servers):
    with RawClient(servers[1].address) as client:
        answer = client.request(9999)
        assert answer.code == 3 and "9999" in answer.remark, answer


@pytest.mark.parametrize("port", ["namesrv", "broker"])
def test_a_thousand_slow_senders_cost_nobody_else(servers, port):
    """Each holds a connection with a few bytes of a frame; others are served meanwhile; all is given back after."""
    server = servers[0] if port == "namesrv" else servers[1]
    assert_unharmed(servers)  # it holds all that a first request takes
    holdings = Holdings(server)
    part = frame(header(GET_BROKER_CLUSTER_INFO))[:6]
    clients = []
    try:
        for _ in range(1000):
            clients.append(RawClient(address(servers, port)))
        for byte in part:
            for client in clients:
                client.send(bytes([byte]))
            assert_unharmed(servers)
    finally:
        for client in clients:
            client.socket.close()
    holdings.assert_returned()
    assert_unharmed(servers)


def test_many_connects_and_closes_leave_nothing(servers):
    namesrv, broker, _ = servers
    for server, target in ((namesrv, namesrv.address), (broker, broker.address), (broker, broker.ha_address)):
        if server.kind == "java" and target == broker.ha_address:
            continue  # the original keeps threads and descriptors of such connections
        holdings = Holdings(server)
        for _ in range(1000):
            RawClient(target).socket.close()
        holdings.assert_returned()
    assert_unharmed(servers)


def test_pipelined_requests_are_all_answered(servers):
    """Good requests in one write, cut at odd places by the socket: each gets its answer."""
    count = 500
    data = b"".join(frame(header(GET_MAX_OFFSET, opaque, topic="GoodTopic", queueId=0)) for opaque in range(count))
    with RawClient(servers[1].address) as client:
        for at in range(0, len(data), 777):
            client.send(data[at:at + 777])
        answers = dict(client.read_frame() for _ in range(count))
    assert sorted(answers) == list(range(count)) and {answer.code for answer in answers.values()} == {0}


def test_the_log_tells_of_it_and_the_broker_list_is_whole(servers):
    """After all of the above the name server still lists the broker."""
    namesrv, broker, _ = servers

    def listed() -> bool:
        with RawClient(namesrv.address) as client:
            body = client.request(GET_BROKER_CLUSTER_INFO).body.decode()
        return broker.address in body and "broker-a" in json.dumps(body)
    wait_until(listed, 60_000, "the broker is registered")
