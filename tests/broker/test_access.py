"""Access control of a whole broker: how it starts and answers, and attempts to bypass its permissions, which all
fail."""
import json
import struct

import pytest

from rmqha.acl import acl_files
from rmqha.broker import broker_startup
from rmqha.common.configuration import ConfigError
from rmqha.common.java import uncached_hash_code
from rmqha.remoting.protocol import remoting_serializable
from tests.acl.support import ACCOUNTS
from tests.broker import support
from tests.broker.support import (
    ACL_OTHER,
    ADMIN,
    BY_DEFAULT,
    DENIED,
    OWN,
    PUBBER,
    SECRET,
    SUBBER,
    is_refused,
)
from tests.interop.acl_requests import batch_body, heartbeat, pull_fields, send_fields, send_v2_fields
from tests.support.ports import free_broker_port
from tests.support.raw_remoting import SignedClient, binary_header, frame, header
from tests.support.wait import wait_until

# Attempts to bypass the permissions of access control: each one fails, while real clients still work.

REPLY_TO = "CLUSTER\x01DefaultCluster\x02CORRELATION_ID\x01c\x02REPLY_TO_CLIENT\x01victim\x02MSG_TYPE\x01reply"
PAST, FUTURE = 0, 1 << 50
HALF_TOPIC, DELAY_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX"


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with support.acl_broker(tmp_path_factory.mktemp("acl") / "home", enableMultiDispatch=True) as started:
        yield started


@pytest.fixture
def nothing_is_written(broker):
    """OtherTopic and otherGroup's topics end where they did before."""
    topics = (ACL_OTHER.topic, f"%RETRY%{ACL_OTHER.group}", f"%DLQ%{ACL_OTHER.group}", DELAY_TOPIC)
    before = [broker.end_of(topic) for topic in topics]
    yield
    assert [broker.end_of(topic) for topic in topics] == before


@pytest.mark.parametrize("account", [DENIED, SUBBER, PUBBER])
@pytest.mark.parametrize("topic", [ACL_OTHER.topic, f"%RETRY%{ACL_OTHER.group}", f"%DLQ%{ACL_OTHER.group}"])
def test_no_kind_of_send_writes_to_another_accounts_topic(broker, nothing_is_written, account, topic):
    delayed = "DELAY\x013\x02REAL_TOPIC\x01" + topic
    with broker.client(account) as client:
        for code, fields, body in (
                (10, send_fields(topic), b"x"), (10, {**send_fields(topic), "group": OWN.group}, b"x"),
                (10, {**send_fields(topic), "properties": delayed}, b"x"),
                (310, send_v2_fields(topic, OWN.group), b"x"), (310, {**send_v2_fields(topic, "p"), "j": 99}, b"x"),
                (310, {**send_v2_fields(topic, "p", True)}, batch_body()),
                (310, {**send_v2_fields(topic, "p"), "topic": OWN.topic}, b"x"),
                (320, send_v2_fields(topic, "p", True), batch_body()),
                (324, {**send_fields(topic), "properties": REPLY_TO}, b"x"),
                (325, {**send_v2_fields(topic, "p"), "i": REPLY_TO}, b"x")):
            assert is_refused(client.request(code, body, **fields)), (code, fields)


def test_topic_is_read_from_the_field_that_the_code_uses(broker, nothing_is_written):
    """One request with the field names of both headers: the topic that is checked is the one that is served."""
    long, short = send_fields(OWN.topic), send_v2_fields(ACL_OTHER.topic, "p")
    with broker.client(PUBBER) as client:
        before = broker.end_of(OWN.topic)
        assert client.request(10, b"x", **{**short, **long}).code == 0
        assert is_refused(client.request(310, b"x", **{**short, **long}))
        assert broker.end_of(OWN.topic) == before + 1


def test_duplicate_fields_are_read_once(broker, nothing_is_written):
    """The last of two fields of a name counts for both the check and the send, in both kinds of header."""
    with broker.client(PUBBER) as client:
        for topics, refused in (([ACL_OTHER.topic, OWN.topic], False), ([OWN.topic, ACL_OTHER.topic], True)):
            fields = send_v2_fields(topics[-1], "p")
            signed = client.signed(fields, b"x")
            before = broker.end_of(OWN.topic)
            doubled = header(310, 77, **signed).replace(b'"extFields": {', b'"extFields": {"b": "%s", ' %
                                                        topics[0].encode())
            client.send(frame(doubled, b"x"))
            assert is_refused(client.read_frame()[1]) is refused
            pairs = list(signed.items())
            one = binary_header(310, 78, 0, b=topics[0])
            both = binary_header(310, 78, 0, **dict(pairs))
            fixed = struct.calcsize(">hbhiii")
            merged = one[fixed + 4:] + both[fixed + 4:]
            client.send(frame(both[:fixed] + struct.pack(">i", len(merged)) + merged, b"x", 1))
            assert is_refused(client.read_frame()[1]) is refused
            assert broker.end_of(OWN.topic) == before + (0 if refused else 2)


@pytest.mark.parametrize("names",
                         [ACL_OTHER.topic, f"{OWN.topic},{ACL_OTHER.topic}", f" {ACL_OTHER.topic}", "%LMQ%other",
                                   f"%RETRY%{ACL_OTHER.group}"])
def test_message_reaches_no_further_queue_without_its_permission(broker, nothing_is_written, names):
    further = f"A\x01b\x02INNER_MULTI_DISPATCH\x01{names}\x02"
    units = further + "INNER_MULTI_QUEUE_OFFSET\x01" + ",".join("0" for _ in names.split(","))
    tail = units.encode()
    inner = struct.pack(">iiiii", 23 + len(tail), 0, 0, 0, 1) + b"x" + struct.pack(">h", len(tail)) + tail
    with broker.client(PUBBER) as client:
        before = broker.end_of(OWN.topic)
        for code, fields, body in (
                (10, {**send_fields(OWN.topic), "properties": further}, b"x"),
                (310, {**send_v2_fields(OWN.topic, "p"), "i": units}, b"x"),
                (320, send_v2_fields(OWN.topic, "p", True), inner),
                (310, {**send_v2_fields(OWN.topic, "p"), "m": "TRUE"}, inner),
                (320, {**send_v2_fields(OWN.topic, "p", True), "i": further}, batch_body()),
                (325, {**send_v2_fields(OWN.topic, "p"), "i": units}, b"x")):
            assert is_refused(client.request(code, body, **fields)), (code, fields)
        assert broker.end_of(OWN.topic) == before
    assert broker.end_of("%LMQ%other") == 0


@pytest.mark.parametrize("name", [DELAY_TOPIC, HALF_TOPIC, "RMQ_SYS_TRANS_OP_HALF_TOPIC", f"%DLQ%{ACL_OTHER.group}"])
def test_message_cannot_be_smuggled_into_the_brokers_own_queues(broker, nothing_is_written, name):
    """From there the broker itself would deliver the message to the topic that its properties name."""
    properties = f"INNER_MULTI_DISPATCH\x01{name}\x02REAL_TOPIC\x01{ACL_OTHER.topic}\x02REAL_QID\x010\x02DELAY\x010"
    before = broker.end_of(name)
    fields = {**send_v2_fields("FreeTopic", "p"), "i": properties}
    assert is_refused(broker.ask(BY_DEFAULT, 310, b"x", **fields))
    assert broker.end_of(name) == before


def test_reader_of_a_further_queue_needs_no_permission_for_the_topic(broker):
    offset, _, _ = broker.put(ACL_OTHER.topic, properties=f"INNER_MULTI_DISPATCH\x01{OWN.topic}\x02")
    assert broker.ask(SUBBER, 33, offset=offset).code == 0


def send_back(broker, account, group, offset, origin=OWN.topic):
    return broker.ask(account, 36, offset=offset, group=group, delayLevel=0, originMsgId="x", originTopic=origin,
                      unitMode="false", maxReconsumeTimes=0)


def test_another_accounts_message_cannot_be_read_by_its_offset(broker):
    offset, msg_id, _ = broker.put(ACL_OTHER.topic)
    for account in (DENIED, PUBBER, SUBBER, BY_DEFAULT):
        viewed = broker.ask(account, 33, offset=offset)
        assert is_refused(viewed) and SECRET not in viewed.body
        assert is_refused(send_back(broker, account, OWN.group, offset))
        assert is_refused(broker.ask(account, 309, consumerGroup=OWN.group, clientId="c", msgId=msg_id))
    assert SECRET in broker.ask(ADMIN, 33, offset=offset).body


def test_message_cannot_be_sent_back_into_another_accounts_group(broker, nothing_is_written):
    offset, _, _ = broker.put(OWN.topic)
    for account in (DENIED, PUBBER, SUBBER, BY_DEFAULT):
        for group in (ACL_OTHER.group, "unknownGroup"):
            assert is_refused(send_back(broker, account, group, offset))
    dead = f"%DLQ%{OWN.group}"
    before = broker.end_of(dead)
    assert send_back(broker, SUBBER, OWN.group, offset, origin="without its namespace").code == 0
    assert broker.end_of(dead) == before + 1


@pytest.mark.parametrize("kind", [DELAY_TOPIC, HALF_TOPIC])
def test_delayed_and_half_messages_belong_to_their_real_topic(broker, kind):
    if kind == HALF_TOPIC:
        place, queue_id = broker.half(ACL_OTHER.topic), 0
        own, _, _ = broker.half(OWN.topic, b"own")
    else:
        place, queue_id = broker.put(ACL_OTHER.topic, properties="DELAY\x0118\x02"), 17
        own, _, _ = broker.put(OWN.topic, b"own", "DELAY\x0118\x02")
    for account in (DENIED, PUBBER, SUBBER, BY_DEFAULT):
        assert is_refused(broker.ask(account, 33, offset=place[0]))
        pull = {**pull_fields(kind, OWN.group), "queueId": queue_id}
        assert is_refused(broker.ask(account, 11, **pull))
        assert is_refused(broker.ask(account, 30, topic=kind, queueId=queue_id))
        assert is_refused(broker.ask(account, 34, heartbeat(OWN.group, kind)))
    assert broker.ask(SUBBER, 33, offset=own).code == 0


def test_dead_letters_are_readable_with_permission_to_consume_as_the_group(broker):
    for account in (DENIED, SUBBER, BY_DEFAULT):
        assert is_refused(broker.ask(account, 11, **pull_fields(f"%DLQ%{ACL_OTHER.group}", OWN.group)))
    for account in (SUBBER, BY_DEFAULT):
        assert not is_refused(broker.ask(account, 11, **pull_fields(f"%DLQ%{OWN.group}", OWN.group)))


def record_head(topic, offset, queue_offset, size, body_length, tail_length):
    """Return the bytes of a record of `topic` as if it began at `offset`, up to its properties."""
    head = struct.pack(">iIiiiqqiq8sq8siq", size, 0xDAA320A7, 0, 0, 0, queue_offset, offset, 0, 1, bytes(8), 1,
                       bytes(8), 0, 0)
    return head + struct.pack(">iB", body_length, len(topic)) + topic.encode() + struct.pack(">h", tail_length)


def test_no_message_is_read_from_within_another(broker):
    """A body that looks like a record of its sender's topic, whose properties are the messages that follow it."""
    first, msg_id, queue_offset = broker.put(OWN.topic, b"first")
    place = broker.body_offset(broker.store.get_max_phy_offset())
    size = 900
    tail_length = size - len(record_head(OWN.topic, place, queue_offset, size, 0, 0))
    found, _, _ = broker.put(OWN.topic, record_head(OWN.topic, place, queue_offset, size, 0, tail_length))
    for _ in range(4):
        broker.put(ACL_OTHER.topic, SECRET * 10)
    assert place == broker.body_offset(found)
    # Without limits, the answer is the original's.
    assert SECRET in broker.ask(ADMIN, 33, offset=place).body
    fields = {"consumerGroup": OWN.group, "clientId": "c", "msgId": msg_id[:16] + f"{place:016X}"}
    for account in (SUBBER, BY_DEFAULT, PUBBER):
        viewed = broker.ask(account, 33, offset=place)
        assert is_refused(viewed) and not viewed.body
        assert is_refused(send_back(broker, account, OWN.group, place))
        assert is_refused(broker.ask(account, 309, **fields))
    assert [broker.ask(SUBBER, 33, offset=offset).code for offset in (first, found)] == [0, 0]


def key_with_hash(prefix, wanted):
    """Return a text for which `prefix` + text has the wanted Java hash."""
    head = uncached_hash_code(prefix)
    lowest = sum(33 * 31**place for place in range(8))
    for turn in range(1, 100_000):
        rest = (wanted - head * 31**8 - lowest) % (1 << 32) + (turn << 32)
        digits = []
        for place in reversed(range(8)):
            digit = min(rest // 31**place, 90)
            digits.append(digit)
            rest -= digit * 31**place
        if rest == 0 and all(digit < 90 for digit in digits):
            text = "".join(chr(33 + digit) for digit in digits)
            if uncached_hash_code(prefix + text) & 0xFFFFFFFF == wanted & 0xFFFFFFFF:
                return text
    raise AssertionError("found no key with the wanted hash")


def test_query_by_key_finds_no_other_topics_messages_with_the_same_hash(broker):
    broker.put(ACL_OTHER.topic, properties="KEYS\x01order-17\x02")
    key = key_with_hash(f"{OWN.topic}#", uncached_hash_code(f"{ACL_OTHER.topic}#order-17"))
    query = {"topic": OWN.topic, "key": key, "maxNum": 9, "beginTimestamp": PAST, "endTimestamp": FUTURE}
    wait_until(lambda: SECRET in broker.ask(ADMIN, 12, **query).body, 60_000, "the index")
    found = broker.ask(SUBBER, 12, **query)
    assert found.code == 22 and not found.body  # QUERY_NOT_FOUND
    broker.put(OWN.topic, b"own one", properties="KEYS\x01order-18\x02")
    query["key"] = "order-18"
    wait_until(lambda: b"own one" in broker.ask(SUBBER, 12, **query).body, 60_000, "its own message by its key")


def ending(half, outcome=8, group="producers"):
    offset, _, queue_offset = half
    return {"producerGroup": group, "tranStateTableOffset": queue_offset, "commitLogOffset": offset, "msgId": "x",
            "commitOrRollback": outcome, "fromTransactionCheck": "false"}


def test_transaction_can_be_ended_only_with_permission_to_send_to_its_topic(broker, nothing_is_written):
    for outcome in (8, 12):
        half = broker.half(ACL_OTHER.topic)
        for account in (DENIED, PUBBER, SUBBER, BY_DEFAULT):
            assert is_refused(broker.ask(account, 37, **ending(half, outcome)))
            assert is_refused(broker.ask(account, 323, msgId=half[1]))
    before = broker.end_of(OWN.topic)
    assert broker.ask(PUBBER, 37, **ending(broker.half(OWN.topic))).code == 0
    assert broker.end_of(OWN.topic) == before + 1


def test_half_message_is_checked_against_the_topic_it_claims(broker):
    claims = f"REAL_TOPIC\x01{ACL_OTHER.topic}\x02REAL_QID\x010\x02PGROUP\x01p\x02"
    _, msg_id, _ = broker.put(OWN.topic, properties=claims)
    before = broker.end_of(HALF_TOPIC)
    assert is_refused(broker.ask(PUBBER, 323, msgId=msg_id))
    assert broker.end_of(HALF_TOPIC) == before


def produce(client, group="producers", client_id="victim"):
    body = json.dumps({"clientID": client_id, "producerDataSet": [{"groupName": group}], "consumerDataSet": []})
    assert client.request(34, body.encode(), more=1).code == 0


def test_half_message_is_shown_only_to_a_producer_that_may_send_to_its_topic(broker):
    listener = broker.controller.transactional_message_check_listener
    half = broker.store.look_message_by_offset(broker.half(ACL_OTHER.topic)[0])
    with broker.client(DENIED) as spy, broker.client(PUBBER) as pubber, broker.client(ADMIN) as admin:
        produce(spy, client_id="spy")
        produce(pubber, client_id="pubber")
        for _ in range(4):
            listener.resolve_half_msg(broker.store.look_message_by_offset(half.commit_log_offset))
        produce(admin, client_id="admin")
        listener.resolve_half_msg(broker.store.look_message_by_offset(half.commit_log_offset))
        _, asked = admin.read_frame()
        assert asked.code == 39 and SECRET in asked.body
        for client in (spy, pubber):
            client.send(frame(header(28, 99, **client.signed({}, b"")), b""))
            # Nothing arrived before that answer.
            assert client.read_frame()[0] == 99


def test_reply_goes_to_the_account_whose_client_asked(broker):
    answers = {**send_v2_fields(OWN.topic, "p"), "i": REPLY_TO}
    with broker.client(PUBBER) as asker, broker.client(DENIED) as spy, broker.client(ADMIN) as replier:
        produce(asker)
        produce(spy)
        assert spy.request(35, clientID="victim", producerGroup="producers").code == 0
        opaque = 4711
        replier.send(frame(header(325, opaque, **replier.signed(answers, SECRET)), SECRET))
        came, pushed = asker.read_frame()
        assert pushed.code == 326 and pushed.body == SECRET
        asker.send(frame(header(0, came).replace(b'"flag": 0', b'"flag": 1')))
        assert replier.read_frame()[0] == opaque


def test_consumer_asked_by_an_admin_receives_no_signature(broker):
    with broker.client(SUBBER) as consumer, broker.client(ADMIN) as admin:
        body = heartbeat(OWN.group, OWN.topic)
        assert consumer.request(34, body, more=1).code == 0
        admin.send(frame(header(307, 5, **admin.signed(
            {"consumerGroup": OWN.group, "clientId": "127.0.0.1@acl", "jstackEnable": "false"}, b""))))
        while (came := consumer.read_frame()[1]).code != 307:
            pass
        assert {"AccessKey", "Signature"}.isdisjoint(came.fields) and came.fields["consumerGroup"] == OWN.group


def test_one_way_requests_are_checked(broker, nothing_is_written):
    with broker.client(DENIED) as client:
        for code, topic in ((310, "b"), (325, "b"), (10, "topic"), (324, "topic")):
            fields = send_v2_fields(ACL_OTHER.topic, "p") if topic == "b" else send_fields(ACL_OTHER.topic)
            signed = header(code, 5, **client.signed(fields, b"x")).replace(b'"flag": 0', b'"flag": 2')
            client.send(frame(signed, b"x"))
        # Every earlier request has been served or refused.
        assert client.request(28).code == 0


def test_both_ports_check_the_same(broker, nothing_is_written):
    for address in (broker.address, broker.fast_address):
        with broker.client(DENIED, address=address) as client, broker.client(PUBBER, address=address) as pubber:
            sends = [frame(header(310, number, **client.signed(send_v2_fields(ACL_OTHER.topic, "p"), b"x")), b"x")
                     for number in range(20)]
            client.send(b"".join(sends))
            assert all(is_refused(client.read_frame()[1]) for _ in sends)
            assert pubber.request(310, b"x", **send_v2_fields(OWN.topic, "p")).code == 0


def test_signature_is_checked_before_the_body_is_parsed(broker, monkeypatch):
    parsed = []
    real = remoting_serializable.from_json

    def from_json(cls, body):
        parsed.append(cls)
        return real(cls, body)

    monkeypatch.setattr(remoting_serializable, "from_json", from_json)
    for account in (None, ("nobodysKey", "x"), (ADMIN[0], "wrong")):
        for code in (34, 41, 42, 46):
            assert is_refused(broker.ask(account, code, heartbeat("g", "t"), more=1))
    assert not parsed
    assert broker.ask(SUBBER, 34, heartbeat(OWN.group, OWN.topic), more=1).code == 0 and parsed


@pytest.mark.parametrize("code, body", [
    (34, b"no json"), (34, b"[1]"), (34, b'{"consumerDataSet": [null]}'), (34, b'{"consumerDataSet": [{}]}'),
    (34, b'{"consumerDataSet": [{"groupName": "ownGroup", "subscriptionDataSet": [{}]}]}'), (34, b""),
    (41, b""), (41, b'{"mqSet": [null], "consumerGroup": "ownGroup"}'), (41, b'{"mqSet": []}'), (42, b"{}"),
    (46, b'{"group": null}'), (46, b"null")])
def test_missing_names_are_not_skipped(broker, code, body):
    assert is_refused(broker.ask(SUBBER, code, body, more=1))


@pytest.mark.parametrize("code, fields", [
    (10, {}), (310, {}), (320, {}), (324, {}), (325, {}), (11, {"topic": OWN.topic}),
    (11, {"consumerGroup": OWN.group}),
    (12, {}), (14, {"topic": OWN.topic}), (15, {"consumerGroup": OWN.group}), (30, {}), (36, {"offset": 0}), (38, {}),
    (222, {"topic": OWN.topic}), (303, {"topic": OWN.topic}), (307, {}), (309, {}), (315, {}), (321, {}),
    (38, {"consumerGroup": ""}), (14, {"topic": OWN.topic, "consumerGroup": ""}), (38, {"consumerGroup": "OWNGROUP"}),
    (38, {"consumerGroup": f"instance%{OWN.group}"}), (30, {"topic": f"instance%{OWN.topic}", "queueId": 0}),
    (30, {"topic": OWN.topic.lower(), "queueId": 0}), (30, {"topic": f"{OWN.topic} ", "queueId": 0})])
def test_missing_empty_or_misspelled_fields_are_not_skipped(broker, code, fields):
    for account in (PUBBER, SUBBER):
        answer = broker.ask(account, code, **fields)
        assert is_refused(answer), (account, answer)


# Access control of a whole broker: how it starts, what it answers, and the error without PyYAML.

ACL_ADMIN, ALICE = ("adminKey", "adminSecret"), ("aliceKey", "12345678")


def controller_of(home, **properties):
    """Return a broker's controller for a config file in `home`."""
    (home / "conf").mkdir(exist_ok=True)
    file = home / "broker.conf"
    texts = {"rocketmqHome": home, "storePathRootDir": home / "store", "storePathCommitLog": home / "store/commitlog",
             "listenPort": free_broker_port(), "brokerIP1": "127.0.0.1", "mappedFileSizeCommitLog": 1 << 20,
             "maxHashSlotNum": 1000, "maxIndexNum": 4000, **properties}
    file.write_text("".join(f"{key}={value}\n" for key, value in texts.items()), "utf-8")
    return broker_startup.create_broker_controller(broker_startup.parse_command_line(["-c", str(file)]))


@pytest.fixture
def logs_stay(monkeypatch):
    """Keep all loggers as the test run configured them."""
    monkeypatch.setattr(broker_startup.logs, "setup_broker_logging", lambda *_: None)


@pytest.fixture
def acl_broker(tmp_path, monkeypatch):
    """broker(**properties) -> a running broker in this process and its address."""
    started = []

    def start(**properties):
        controller = controller_of(tmp_path, **properties)
        started.append(controller)
        assert controller.initialize()
        controller.start()
        return controller
    yield start
    for controller in started:
        controller.shutdown()


@pytest.mark.usefixtures("logs_stay")
def test_both_ports_require_accounts(acl_broker, tmp_path):
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "plain_acl.yml").write_text(ACCOUNTS, "utf-8")
    controller = acl_broker(aclEnable="true")
    for server in (controller.remoting_server, controller.fast_remoting_server):
        address = f"127.0.0.1:{server.local_listen_port}"
        with SignedClient(address, None) as stranger, SignedClient(address, ACL_ADMIN) as admin:
            refused = stranger.request(28)
            assert refused.code == 1
            assert refused.remark.startswith(
                "org.apache.rocketmq.acl.common.AclException: No accessKey is configured, ")
            assert stranger.send_message("orders", b"x").code == 1
            assert admin.request(28).code == 0
    controller.shutdown()
    assert not controller.access_validator._acl_plug_engine._watch_service.is_alive()


@pytest.mark.usefixtures("logs_stay")
def test_every_send_of_one_read_is_checked(acl_broker, tmp_path):
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "plain_acl.yml").write_text(ACCOUNTS, "utf-8")
    controller = acl_broker(aclEnable="true")
    address = f"127.0.0.1:{controller.remoting_server.local_listen_port}"
    with SignedClient(address, ACL_ADMIN) as admin:
        admin.create_topic("orders", 1)
        admin.create_topic("others", 1)
    with SignedClient(address, ALICE) as alice:
        sends = [alice.send_frame(topic, number) for number in range(50) for topic in ("orders", "others")]
        alice.send(b"".join(sends))
        codes = [alice.read_frame()[1].code for _ in sends]
    assert codes.count(0) == codes.count(1) == 50
    assert controller.message_store.get_max_offset_in_queue("others", 0) == 0


@pytest.mark.usefixtures("logs_stay")
def test_invalid_file_keeps_the_broker_from_starting(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("ROCKETMQ_LOG_DIR", str(tmp_path / "logs"))
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "plain_acl.yml").write_text("accounts:\n- accessKey: a\n", "utf-8")
    controller = controller_of(tmp_path, aclEnable="true")
    assert broker_startup.run(controller, None) == broker_startup.EXIT_START_FAILED
    told = capsys.readouterr().err
    assert "plain_acl.yml: account a: The accessKey=a and secretKey=null cannot be null" in told


@pytest.mark.usefixtures("logs_stay")
def test_broker_without_pyyaml_names_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr(acl_files, "is_available", lambda: False)
    with pytest.raises(ConfigError, match=r"aclEnable: access control is enabled, it needs PyYAML: .* -m pip"):
        controller_of(tmp_path, aclEnable="true")
    controller_of(tmp_path).shutdown()


@pytest.mark.usefixtures("logs_stay")
def test_requests_about_accounts_report_that_access_control_is_off(acl_broker):
    controller = acl_broker()
    with SignedClient(f"127.0.0.1:{controller.remoting_server.local_listen_port}", None) as client:
        answers = [client.request(50, accessKey="carolKey", secretKey="12345678"),
                   client.request(51, accessKey="carolKey"),
                   client.request(53, globalWhiteAddrs="1.2.3.4", aclFileFullPath=""), client.request(52)]
    assert [answer.code for answer in answers] == [209, 210, 211, 1]
    assert {answer.remark for answer in answers} == {"access control is off on this broker, set aclEnable=true"}
