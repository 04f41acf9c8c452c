"""The official client with headers of both kinds, JSON and ROCKETMQ, at rmqha's name server and brokers."""
import pytest

from rmqha.common import mix_all
from rmqha.remoting.interfaces import RPCHook
from rmqha.remoting.protocol.header_codec import SerializeType
from tests.support.java_driver import JavaDriver
from tests.support.wait import wait_until

pytestmark = pytest.mark.java


class Kinds(RPCHook):
    """Notes the header kind of each request."""

    def __init__(self):
        self.seen = set()

    def do_before_request(self, remote_addr, request):
        self.seen.add((request.code, request.serialize_type))

    def do_after_response(self, remote_addr, request, response):
        """Nothing to note."""


@pytest.fixture(scope="module", params=list(SerializeType), ids=lambda kind: kind.name)
def driver(request, tmp_path_factory, java_driver):
    """A JVM whose client writes headers of one kind."""
    if request.param is SerializeType.JSON:
        yield request.param, java_driver
        return
    other = JavaDriver(tmp_path_factory.mktemp("driver"))
    other._server._env["ROCKETMQ_SERIALIZE_TYPE"] = request.param.name
    other.start()
    yield request.param, other
    other.shutdown()


def test_the_official_client_sends_receives_and_administers(servers, driver):
    kind, java = driver
    kinds = Kinds()  # at one broker only: the other serves without looking
    servers.brokers["broker-a"].remoting_server.register_rpc_hook(kinds)
    topic, group = servers.unique(f"Headers{kind.name}"), servers.unique("headers")
    for broker in servers.brokers.values():
        java.create_topic(servers.namesrv, broker.broker_addr, topic, 2)
        # the client hears of one that is made later within 50 s only
        java.create_topic(servers.namesrv, broker.broker_addr, mix_all.get_retry_topic(group), 1)
    bodies = ["plain", "größe 世界", "x" * 5000]
    sent = java.submit("send", namesrv=servers.namesrv, topic=topic, group=group, bodies=bodies, tags="t", keys="k1 k2",
                       compressOver=1000, compressType="ZLIB", compressLevel="5").result()
    assert len(set(sent["ids"])) == 3
    got = java.submit("receive", namesrv=servers.namesrv, topic=topic, group=group, until=4, failFirst=1).result()
    assert sorted({one["body"] for one in got["messages"]}) == sorted(bodies)
    assert [one["reconsumeTimes"] for one in got["messages"]].count(1) == 1
    for _ in range(20):  # a client asks any of the brokers who the consumers of its group are
        in_order = java.submit("receive", namesrv=servers.namesrv, topic=topic, group=servers.unique("ordered"),
                               until=3, orderly=True).result()
        assert sorted(one["body"] for one in in_order["messages"]) == sorted(bodies)
        if any(code == 38 and seen is kind for code, seen in list(kinds.seen)):
            break
    in_transaction = java.submit("send", namesrv=servers.namesrv, topic=topic, group=group, bodies=["committed"],
                                 inTransaction=True).result()
    wait_until(lambda: sent["ids"][0] in java.admin(
        "queryMsgByKey", "-n", servers.namesrv, "-t", topic, "-k", "k1"), 60_000, "the message by its key")
    assert len(in_transaction["ids"]) == 1
    codes = {code for code, seen in list(kinds.seen) if seen is kind}
    assert {310, 11, 34, 38, 41} <= codes  # send, pull, heartbeat, consumer ids, lock
