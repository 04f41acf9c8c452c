"""Requests of clients that still take a former master for the master."""
import itertools
import json
import random
import ssl
import threading
import time

import pytest

from rmqha.common.message import message_decoder
from rmqha.common.protocol import request_code, response_code
from rmqha.remoting.tls_system_config import TlsMode, TlsSystemConfig
from tests.broker.relay.replicas import replicas
from tests.support.raw_remoting import RawClient, SignedClient, binary_header
from tests.support.raw_remoting import frame as raw_frame
from tests.support.wait import wait_until

TOPIC = "T"
_SUSPEND_AND_COMMIT = 0x1 | 0x2 | 0x4


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    with replicas(tmp_path_factory.mktemp("three"), 3, mappedFileSizeCommitLog=16 << 20) as running:
        with RawClient(running.master.broker_addr) as client:
            client.create_topic(TOPIC, 1)
        yield running


def stored(broker, topic=TOPIC, queue_id=0):
    """Return all messages of a queue, in order, once they are dispatched."""
    wait_until(lambda: broker.message_store.dispatch_behind_bytes() <= 0, 60_000, "dispatch")
    with RawClient(broker.broker_addr) as client:
        found, offset = [], 0
        while True:
            answer = client.pull(topic, queue_id, offset)
            if answer.code != 0:
                assert answer.code == response_code.PULL_NOT_FOUND, answer
                return found
            messages = message_decoder.decodes(answer.body)
            found += messages
            offset = messages[-1].queue_offset + 1


class Sender(threading.Thread):
    """Sends numbered messages to one address, one after the other, until `stop`; it never asks for a route."""

    def __init__(self, address, prefix):
        super().__init__(daemon=True)
        self.address, self.prefix = address, prefix
        self.answers = []
        self._stopped = threading.Event()

    def run(self):
        with RawClient(self.address) as client:
            for number in itertools.count():
                if self._stopped.is_set():
                    return
                answer = client.send_message_once(TOPIC, b"%s %d" % (self.prefix, number))
                self.answers.append((number, answer.code, answer.remark, answer.fields.get("queueOffset")))

    def stop(self):
        self._stopped.set()
        self.join(60)
        assert not self.is_alive()


def test_no_send_to_the_old_address_fails_in_a_switch(three):
    old = three.master
    senders = [Sender(old.broker_addr, b"switch-%d" % number) for number in range(4)]
    for sender in senders:
        sender.start()
    for new in [*three.slaves(), old]:
        count = sum(len(sender.answers) for sender in senders)
        wait_until(lambda count=count: sum(len(sender.answers) for sender in senders) > count + 200, 60_000, "sends")
        three.switch_to(new)
    for sender in senders:
        sender.stop()
    assert [answer for sender in senders for answer in sender.answers if answer[1] != 0] == []
    found = {message.body: message.queue_offset for message in stored(three.master)}
    for sender in senders:
        for number, _code, _remark, offset in sender.answers:
            assert found.pop(b"%s %d" % (sender.prefix, number)) == int(offset)
    assert not any(body.startswith(b"switch-") for body in found)


def test_relayed_message_is_stored_like_a_direct_one(three):
    slave, master = three.slaves()[0], three.master
    properties = "KEYS\x01k\x02TAGS\x01TagA\x02color\x01blue\x02"
    answers, ports = [], []
    for broker in (master, slave):
        with RawClient(broker.broker_addr) as client:
            ports.append(client.socket.getsockname()[1])
            answers.append(client.send_message_once(TOPIC, b"same", properties=properties, bornTimestamp=1, flag=7))
    assert [answer.code for answer in answers] == [0, 0]
    direct, relayed = [message for message in stored(master) if message.body == b"same"]
    assert [direct.born_host[1], relayed.born_host[1]] == ports
    assert direct.store_host == relayed.store_host
    for name in ("topic", "queue_id", "flag", "properties", "sys_flag", "born_timestamp", "body"):
        assert getattr(direct, name) == getattr(relayed, name), name
    assert answers[0].fields.keys() == answers[1].fields.keys()


def test_pull_that_commits_waits_at_the_master(three):
    slave, master = three.slaves()[0], three.master
    with RawClient(slave.broker_addr) as consumer, RawClient(master.broker_addr) as producer:
        end = producer.max_offset(TOPIC, 0)
        producer.send(b"")
        taken = []

        def pull():
            taken.append(consumer.pull(TOPIC, 0, end, sysFlag=_SUSPEND_AND_COMMIT, commitOffset=end,
                                       consumerGroup="relayed-group", suspendTimeoutMillis=60_000))

        puller = threading.Thread(target=pull, daemon=True)
        puller.start()
        wait_until(lambda: master.pull_request_hold_service.is_waiting(TOPIC, 0), 60_000, "the master holds the pull")
        assert not slave.pull_request_hold_service.is_waiting(TOPIC, 0)
        assert producer.send_message_once(TOPIC, b"wakes it").code == 0
        puller.join(60)
        assert [message.body for message in message_decoder.decodes(taken[0].body)] == [b"wakes it"]
        offset = consumer.request(request_code.QUERY_CONSUMER_OFFSET, consumerGroup="relayed-group", topic=TOPIC,
                                  queueId=0)
        assert int(offset.fields["offset"]) == end
    assert master.consumer_offset_manager.query_offset("relayed-group", TOPIC, 0) == end


def test_pull_for_a_slave_stays_there_and_wakes_at_once(three):
    slave, master = three.slaves()[0], three.master
    with RawClient(slave.broker_addr) as consumer, RawClient(master.broker_addr) as producer:
        end = producer.max_offset(TOPIC, 0)
        wait_until(lambda: slave.message_store.get_max_offset_in_queue(TOPIC, 0) == end, 60_000, "the slave has it all")
        taken = []
        puller = threading.Thread(target=lambda: taken.append((consumer.pull(
            TOPIC, 0, end, sysFlag=0x2 | 0x4, consumerGroup="slave-group", suspendTimeoutMillis=60_000),
            time.monotonic())), daemon=True)
        puller.start()
        wait_until(lambda: slave.pull_request_hold_service.is_waiting(TOPIC, 0), 60_000, "the slave holds the pull")
        assert not master.pull_request_hold_service.is_waiting(TOPIC, 0)
        # The scan of held pulls would wake it as well, but only every 5 s.
        scan = slave.pull_request_hold_service.check_hold_request
        slave.pull_request_hold_service.check_hold_request = lambda: None
        try:
            assert producer.send_message_once(TOPIC, b"for the slave").code == 0
            puller.join(60)
        finally:
            slave.pull_request_hold_service.check_hold_request = scan
        assert [message.body for message in message_decoder.decodes(taken[0][0].body)] == [b"for the slave"]


def test_group_is_complete_wherever_a_member_asks(three):
    slave, master = three.slaves()[0], three.master

    def heartbeat(client_id):
        return json.dumps({"clientID": client_id, "producerDataSet": [], "consumerDataSet": [{
            "groupName": "members", "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "unitMode": False, "subscriptionDataSet": [{
                "topic": TOPIC, "subString": "*", "tagsSet": [], "codeSet": [], "subVersion": 1,
                "expressionType": "TAG", "classFilterMode": False}]}]}).encode()

    with RawClient(master.broker_addr) as direct, RawClient(slave.broker_addr) as at_slave, \
            RawClient(slave.broker_addr) as other:
        # The first is connected to both, as Java's consumers are; the second only to the slave.
        for client, client_id in ((direct, "one"), (at_slave, "one"), (other, "two")):
            assert client.request(request_code.HEART_BEAT, heartbeat(client_id)).code == 0
        for client in (other, at_slave, direct, other):
            answer = client.request(request_code.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="members")
        assert sorted(json.loads(answer.body)["consumerIdList"]) == ["one", "two"]
        answers = [client.request(request_code.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="members")
                   for client in (direct, at_slave, other)]
        assert len({tuple(sorted(json.loads(answer.body)["consumerIdList"])) for answer in answers}) == 1
    wait_until(lambda: master.consumer_manager.get_consumer_group_info("members") is None, 60_000,
               "the end of the connections reaches the master")


def test_locks_are_the_masters(three):
    slave, master = three.slaves()[0], three.master
    queue = {"topic": TOPIC, "brokerName": "broker-a", "queueId": 0}

    def lock(client, client_id):
        body = json.dumps({"consumerGroup": "orderly", "clientId": client_id, "mqSet": [queue]}).encode()
        return json.loads(client.request(request_code.LOCK_BATCH_MQ, body).body)["lockOKMQSet"]

    with RawClient(master.broker_addr) as direct, RawClient(slave.broker_addr) as at_slave:
        assert lock(at_slave, "one") == [queue]
        assert lock(direct, "two") == []
        body = json.dumps({"consumerGroup": "orderly", "clientId": "one", "mqSet": [queue]}).encode()
        assert at_slave.request(request_code.UNLOCK_BATCH_MQ, body).code == 0
        assert lock(direct, "two") == [queue]


def test_requests_of_administrators_are_not_relayed(three):
    slave = three.slaves()[0]
    with RawClient(slave.broker_addr) as client:
        with pytest.raises(AssertionError, match="Can't modify topic or subscription group from slave broker"):
            client.create_topic("never", 1)
        answer = client.request(request_code.GET_BROKER_RUNTIME_INFO)
        assert json.loads(answer.body)["table"]["haRole"] == "slave"


def hello(client, name="broker-a", address="192.0.2.7:5555"):
    return client.request(request_code.RELAY_CLIENT, brokerName=name, brokerId=9, clientAddr=address)


def test_relayed_connection_ends_at_a_broker_that_is_not_the_master(three):
    slave, master = three.slaves()[0], three.master
    with RawClient(slave.broker_addr) as client:
        assert hello(client).code == response_code.RELAY_NOT_MASTER
    with RawClient(master.broker_addr) as client:
        assert hello(client).code == 0
        assert client.send_message_once(TOPIC, b"through a relay").code == 0
        assert hello(client).code == response_code.NO_PERMISSION
        three.switch_to(slave)
        answers = [client.send_message_once(TOPIC, b"refused"), client.pull(TOPIC, 0, 0)]
        assert {answer.code for answer in answers} == {response_code.RELAY_NOT_MASTER}
    messages = [message for message in stored(slave) if message.body in (b"through a relay", b"refused")]
    assert [(message.body, message.born_host) for message in messages] == [(b"through a relay", ("192.0.2.7", 5555))]


@pytest.mark.parametrize("address", ["", "here", "host:1", "1.2.3.4", "1.2.3.4:x", "1.2.3.4:70000", ":::", "1.2.3:4",
                                     "[::1]:-1", "\x00:1"])
def test_address_of_a_relayed_client_is_checked(three, address):
    with RawClient(three.master.broker_addr) as client:
        answer = hello(client, address=address)
        assert answer.code == response_code.SYSTEM_ERROR and "is not an IP address with a port" in answer.remark
        assert hello(client, name="another").code == response_code.NO_PERMISSION


def test_without_a_master_requests_are_refused_after_a_while(tmp_path):
    with replicas(tmp_path, 2, minInSyncReplicas=2) as pair:
        master, slave = pair.master, pair.slaves()[0]
        with RawClient(slave.broker_addr) as client:
            assert client.send_message_once(TOPIC, b"creates the topic").code == 0
        slave.replicas_manager.followed = None  # as between two masters
        with RawClient(slave.broker_addr) as client:
            answer = client.send_message_once(TOPIC, b"refused")
            assert answer.code == response_code.SERVICE_NOT_AVAILABLE and "not the master" in answer.remark
            slave.replicas_manager.followed = master.broker_addr, master.replicas_manager.role.epoch
            assert client.send_message_once(TOPIC, b"goes on").code == 0


def test_switched_off(tmp_path):
    with replicas(tmp_path, 2, relayToMaster=False) as pair, RawClient(pair.slaves()[0].broker_addr) as client:
        assert client.send_message_once(TOPIC, b"refused").code == response_code.SERVICE_NOT_AVAILABLE
        assert hello(client).code == response_code.REQUEST_CODE_NOT_SUPPORTED


ACCOUNTS = """
globalWhiteRemoteAddresses:
- 127.0.0.2
- {brokers}
accounts:
- accessKey: producer
  secretKey: 12345678
  topicPerms:
  - T=PUB
  groupPerms:
  - g=SUB
- accessKey: neighbour
  secretKey: 12345678
  whiteRemoteAddress: 127.0.0.3
  topicPerms:
  - T=PUB
- accessKey: director
  secretKey: 12345678
  admin: true
"""
PRODUCER, BOSS = ("producer", "12345678"), ("director", "12345678")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    # The brokers' own connections come from 127.0.0.1; clients in these tests have other addresses.
    folder = tmp_path_factory.mktemp("guarded")
    with replicas(folder, 2, ACCOUNTS.format(brokers="127.0.0.1")) as running:
        with SignedClient(running.master.broker_addr, BOSS, "127.0.0.9") as boss:
            boss.create_topic(TOPIC, 1)
            boss.create_topic("secret", 1)
        yield running


@pytest.mark.parametrize(("account", "source", "topic"), list(itertools.product(
    [PRODUCER, BOSS, ("producer", "wrong-key"), ("neighbour", "wrong-key"), ("nobody", "12345678"), None],
    ["127.0.0.2", "127.0.0.3", "127.0.0.9"], [TOPIC, "secret"])))
def test_relayed_request_is_judged_as_by_the_master(guarded, account, source, topic):
    answers = []
    for broker in (guarded.master, guarded.slaves()[0]):
        with SignedClient(broker.broker_addr, account, source) as client:
            answer = client.send_message_once(topic, b"judged")
            remark = (answer.remark or "").partition("recvAddress")[0]
            answers.append((answer.code, remark))
    assert answers[0] == answers[1]
    is_white = source == "127.0.0.2" or (source, account) == ("127.0.0.3", ("neighbour", "wrong-key"))
    assert (answers[0][0] == 0) == (account == BOSS or is_white or account == PRODUCER and topic == TOPIC), answers


@pytest.mark.parametrize("account", [PRODUCER, ("producer", "wrong-key"), None])
def test_stranger_who_says_that_he_relays_gains_nothing(guarded, account):
    with SignedClient(guarded.master.broker_addr, account, "127.0.0.9") as client:
        answer = hello(client, address="127.0.0.2:1234")
        assert answer.code == response_code.SYSTEM_ERROR and "AclException" in answer.remark
        client.account = None
        answer = client.send_message_once("secret", b"gained")
        assert answer.code == response_code.SYSTEM_ERROR and "AclException" in answer.remark


def test_admin_who_relays_loses_his_own_rights(guarded):
    with SignedClient(guarded.master.broker_addr, BOSS, "127.0.0.9") as client:
        assert hello(client, address="192.0.2.9:1234").code == 0
        client.account = None
        assert client.send_message_once("secret", b"lost").code == response_code.SYSTEM_ERROR


@pytest.fixture(scope="module")
def checking(tmp_path_factory):
    with replicas(tmp_path_factory.mktemp("checking"), 2, transactionTimeOut=100, transactionCheckInterval=200) as pair:
        with RawClient(pair.master.broker_addr) as client:
            client.create_topic(TOPIC, 1)
        yield pair


def half_message(client, body):
    """Send a half message, and return the fields that name it."""
    answer = client.send_message_once(TOPIC, body, sysFlag=4, producerGroup="tx", properties=message_properties(
        TRAN_MSG="true", PGROUP="tx", UNIQ_KEY=body.decode()))
    assert answer.code == 0
    return {"producerGroup": "tx", "tranStateTableOffset": answer.fields["queueOffset"],
            "commitLogOffset": int(answer.fields["msgId"][16:], 16), "msgId": body.decode(),
            "transactionId": answer.fields.get("transactionId", "")}


def message_properties(**properties):
    return "".join(f"{name}\x01{value}\x02" for name, value in properties.items())


def test_transaction_ends_and_is_checked_through_a_relay(checking):
    master, slave = checking.master, checking.slaves()[0]
    beat = json.dumps({"clientID": "tx-client", "producerDataSet": [{"groupName": "tx"}],
                       "consumerDataSet": []}).encode()
    with RawClient(slave.broker_addr) as client:
        assert client.request(request_code.HEART_BEAT, beat).code == 0
        ended, checked = half_message(client, b"ended"), half_message(client, b"checked")
        client.send(raw_frame(raw_header(request_code.END_TRANSACTION, 900, flag=2, commitOrRollback=8,
                                         fromTransactionCheck="false", **ended)))
        wait_until(lambda: b"ended" in [message.body for message in stored(master)], 60_000, "the end of a transaction")
        # Nobody ends the other one, so the master asks: over its relayed connection, and so over this one.
        question = wait_until(lambda: next((answer for _opaque, answer in [client.read_frame()]
                                            if answer.code == request_code.CHECK_TRANSACTION_STATE), None), 60_000,
                              "the master's question")
        assert question.fields["msgId"] == "checked"
        client.send(raw_frame(raw_header(request_code.END_TRANSACTION, 901, flag=2, commitOrRollback=8,
                                         fromTransactionCheck="true", **checked)))
        wait_until(lambda: b"checked" in [message.body for message in stored(master)], 60_000, "the checked one")


def test_question_of_the_master_is_answered_through_a_relay(three):
    slave, master = three.slaves()[0], three.master
    beat = json.dumps({"clientID": "asked", "producerDataSet": [], "consumerDataSet": [{
        "groupName": "asked-group", "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "unitMode": False, "subscriptionDataSet": []}]}).encode()
    with RawClient(slave.broker_addr) as client, RawClient(master.broker_addr) as admin:
        for code, body, fields in ((request_code.HEART_BEAT, beat, {}), (request_code.QUERY_CONSUMER_OFFSET, b"", {
                "consumerGroup": "asked-group", "topic": TOPIC, "queueId": 0})):
            client.request(code, body, **fields)
        wait_until(lambda: master.consumer_manager.find_channel("asked-group", "asked"), 60_000,
                   "the relayed heartbeat")
        asked = []
        asker = threading.Thread(target=lambda: asked.append(admin.request(
            request_code.GET_CONSUMER_RUNNING_INFO, consumerGroup="asked-group", clientId="asked")), daemon=True)
        asker.start()
        opaque, question = next((opaque, question) for opaque, question in iter(client.read_frame, None)
                                if question.code != request_code.NOTIFY_CONSUMER_IDS_CHANGED)
        assert question.code == request_code.GET_CONSUMER_RUNNING_INFO and question.fields["clientId"] == "asked"
        client.send(raw_frame(raw_header(0, opaque, flag=1), b'{"running": "info"}'))
        asker.join(60)
        assert (asked[0].code, asked[0].body) == (0, b'{"running": "info"}')


def raw_header(code, opaque, flag, **fields):
    return json.dumps({"code": code, "language": "JAVA", "version": 409, "opaque": opaque, "flag": flag,
                       "extFields": {name: str(value) for name, value in fields.items()}}).encode()


def drawn_frames(draw, topic):
    """Return frames of drawn sends and offsets, one after the other, and the bodies of the sends."""
    frames, bodies = [], []
    for number in range(draw.randrange(1, 20)):
        size = draw.choice([0, 1, draw.randrange(100), draw.randrange(10_000), draw.randrange(1 << 20), 4 << 20])
        body = draw.randbytes(min(size, (4 << 20) - 100))
        bodies.append(body)
        fields = {"a": "drawn", "b": topic, "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1, "h": draw.randrange(9),
                  "i": message_properties(KEYS=number, TAGS=draw.choice("ab")), "j": 0, "k": "false", "m": "false"}
        head = raw_header(310, 1000 + number, 0, **fields) if draw.random() < 0.5 else binary_header(
            310, 1000 + number, 0, **fields)
        frames.append(raw_frame(head, body, 0 if head.startswith(b"{") else 1))
        if draw.random() < 0.3:
            frames.append(raw_frame(raw_header(request_code.UPDATE_CONSUMER_OFFSET, 5000 + number, 2, topic=topic,
                                               consumerGroup="drawn", queueId=0, commitOffset=number)))
    return frames, bodies


@pytest.mark.parametrize("seed", range(6))
def test_relayed_stream_has_the_effect_of_a_direct_one(three, seed):
    """The fast way (frames pass as they are, cut anywhere) and the plain one (the master itself), drawn sizes."""
    topics = [f"drawn-{seed}-direct", f"drawn-{seed}-relayed"]
    found = []
    for broker, topic in zip((three.master, three.slaves()[0]), topics, strict=True):
        draw = random.Random(seed)
        frames, bodies = drawn_frames(draw, topic)
        with RawClient(three.master.broker_addr) as admin:
            admin.create_topic(topic, 1)
        with RawClient(broker.broker_addr) as client:
            data, at = b"".join(frames), 0
            while at < len(data):
                step = draw.choice([1, 7, 100, 4096, 70_000, 1 << 20])
                client.send(data[at:at + step])
                at += step
            answers = dict(client.read_frame() for _ in bodies)
        assert sorted(answers) == [1000 + number for number in range(len(bodies))]
        messages = stored(three.master, topic)
        assert [message.body for message in messages] == [
            body for number, body in enumerate(bodies) if answers[1000 + number].code == 0]
        found.append(([(opaque, answer.code, answer.remark, sorted(answer.fields), answer.fields.get("queueOffset"))
                       for opaque, answer in sorted(answers.items())],
                      [(message.flag, message.properties, message.sys_flag) for message in messages]))
    assert found[0] == found[1]


def only_tls(broker):
    """Make a broker's ports, and its connections to others, use TLS only."""
    broker.client_config.useTLS = True
    for server in (broker.remoting_server, broker.fast_remoting_server):
        server.tls = TlsSystemConfig(tls_mode=TlsMode.ENFORCING)


def test_relay_uses_tls_on_both_sides(tmp_path):
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with replicas(tmp_path, 2, prepare=only_tls) as pair:
        master, slave = pair.brokers if not pair.brokers[0].role.is_slave else pair.brokers[::-1]
        with RawClient(slave.broker_addr) as client:
            client.send(raw_frame(raw_header(request_code.GET_MAX_OFFSET, 1, 0, topic=TOPIC, queueId=0)))
            assert client.is_closed_by_peer()
        with RawClient(slave.broker_addr) as client:
            client.socket = context.wrap_socket(client.socket)
            answers = [client.send_message_once(TOPIC, bytes(size)) for size in (1, 100_000, 900_000)]
            assert [answer.code for answer in answers] == [0, 0, 0]
            wait_until(lambda: master.message_store.get_max_offset_in_queue(TOPIC, 0) == 3, 60_000, "three messages")
            answer = client.pull(TOPIC, 0, 2, sysFlag=0x1 | 0x4, commitOffset=2)
            assert message_decoder.decodes(answer.body)[0].body == bytes(900_000)
            assert master.consumer_offset_manager.query_offset("raw-consumer", TOPIC, 0) == 2
