"""The resources that requests need, and the accounts that may have them."""
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmqha.acl import common
from rmqha.acl.common import AclException
from rmqha.acl.plain_access_validator import PlainAccessValidator
from rmqha.acl.signing import cal_signature
from rmqha.broker.broker_controller import BrokerController
from rmqha.broker.processor.admin_broker_processor import AdminBrokerProcessor
from rmqha.common.mix_all import UNIQUE_MSG_QUERY_FLAG
from rmqha.common.protocol import request_code
from rmqha.common.subscriptions import HeartbeatData
from rmqha.remoting.protocol import remoting_serializable
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from tests.acl.support import manager_of, request_of
from tests.support.tiers import drawn

ALICE, ADMIN = ("aliceKey", "12345678"), ("adminKey", "adminSecret")
PEER = "1.2.3.4:5678"


@pytest.fixture
def validator(tmp_path):
    manager_of(tmp_path)
    made = PlainAccessValidator(str(tmp_path))
    made.load()
    return made


def refusal(validator, request, address=PEER):
    """Return the reason for a refusal, or None."""
    try:
        validator.validate(validator.parse(request, address))
    except AclException as refused:
        return str(refused)
    return None


def heartbeat(topic, group):
    return json.dumps({"clientID": "c", "consumerDataSet": [
        {"groupName": group, "subscriptionDataSet": [{"topic": topic, "subString": "*"}]}]}).encode()


PUB, SUB, ANY = common.PUB, common.SUB, common.ANY
FURTHER = "K\x01v\x02INNER_MULTI_DISPATCH\x01%LMQ%a,other\x02"


@pytest.mark.parametrize("code, fields, body, needed", [
    (10, {"topic": "orders"}, None, {("orders", PUB)}),
    (10, {"topic": "%RETRY%g"}, None, {("%RETRY%g", SUB)}),
    (10, {"topic": "%RETRY%g", "group": "h"}, None, {("%RETRY%g", SUB)}),
    (10, {"topic": "orders", "properties": FURTHER}, None, {("orders", PUB), ("%LMQ%a", PUB), ("other", PUB)}),
    (10, {}, None, {("null", PUB)}),
    (310, {"a": "g", "b": "orders"}, None, {("orders", PUB)}),
    (310, {"a": "h", "b": "%RETRY%g"}, None, {("%RETRY%g", SUB)}),
    (320, {"a": "g", "b": "orders"}, None, {("orders", PUB)}),
    (324, {"topic": "orders", "b": "other"}, None, {("orders", PUB)}),
    (325, {"a": "g", "b": "orders", "topic": "other"}, None, {("orders", PUB)}),
    (36, {"group": "g"}, None, {("%RETRY%g", SUB)}),
    (11, {"topic": "orders", "consumerGroup": "g"}, None, {("orders", SUB), ("%RETRY%g", SUB)}),
    (11, {"topic": "%RETRY%g", "consumerGroup": "g"}, None, {("%RETRY%g", SUB)}),
    (12, {"topic": "orders"}, None, {("orders", SUB)}),
    (14, {"topic": "orders", "consumerGroup": "g"}, None, {("orders", SUB), ("%RETRY%g", SUB)}),
    (34, {"x": 1}, heartbeat("orders", "g"), {("%RETRY%g", SUB), ("orders", SUB)}),
    (34, {"x": 1}, b"{}", set()),
    (35, {"clientID": "c", "consumerGroup": "g"}, None, {("%RETRY%g", SUB)}),
    (35, {"clientID": "c", "producerGroup": "g"}, None, set()),
    (38, {"consumerGroup": "g"}, None, {("%RETRY%g", SUB)}),
    (38, {}, None, {("%RETRY%null", SUB)}),
    (15, {"consumerGroup": "g", "topic": "orders", "queueId": 0, "commitOffset": 1}, None,
     {("%RETRY%g", SUB), ("orders", SUB)}),
    (30, {"topic": "orders"}, None, {("orders", ANY)}),
    (30, {"topic": "%RETRY%g"}, None, {("%RETRY%g", SUB)}),
    (208, {"consumerGroup": "g", "topic": " "}, None, {("%RETRY%g", SUB)}),
    (37, {"producerGroup": "g"}, None, set()),  # the processor knows the topic
])
def test_requests_need_these_resources(validator, code, fields, body, needed):
    resource = validator.parse(request_of(code, body, **fields), PEER)
    assert set(resource.needs()) == needed
    assert (resource.white_remote_address, resource.request_code) == ("1.2.3.4", code)


@pytest.mark.parametrize("address, host", [
    ("1.2.3.4:5", "1.2.3.4"), ("::1:5", "::1"), ("fe80::1%eth0:5", "fe80::1%eth0"), ("", ""), ("unix", "unix")])
def test_address_is_used_without_its_port(validator, address, host):
    assert validator.parse(request_of(10), address).white_remote_address == host


def test_malformed_requests_are_denied(validator):
    for body in (b"no json", None, b"[1]"):
        reason = refusal(validator, request_of(34, body, ALICE, x=1))
        assert "syntax error" in reason or "unclosed text" in reason or "expect an object" in reason


def test_body_is_parsed_only_after_its_signature_is_checked(validator, monkeypatch):
    parsed = []
    read = remoting_serializable.from_json
    monkeypatch.setattr(remoting_serializable, "from_json", lambda cls, text: parsed.append(cls) or read(cls, text))
    body = heartbeat("orders", "g")
    unsigned, unknown = request_of(34, body), request_of(34, body, AccessKey="nobodyKey", Signature="AAAA")
    forged = request_of(34, body, ALICE, x=1)
    forged.ext_fields["x"] = "2"
    for request in (unsigned, unknown, forged, request_of(34, b"no json", AccessKey="aliceKey")):
        assert refusal(validator, request)
    # A trusted address needs no account.
    assert refusal(validator, request_of(34, body), "10.10.103.9:1") is None
    assert not parsed
    assert refusal(validator, request_of(34, body, ALICE)) is None
    assert parsed == [HeartbeatData]


def test_signature_covers_fields_and_body(validator):
    signed = request_of(10, b"body", ALICE, topic="orders", queueId=1)
    assert refusal(validator, signed) is None
    wrong = "Check signature failed for accessKey=aliceKey"
    changes = (("topic", "other"), ("queueId", "2"), ("more", "1"), ("Signature", "AAAA"), ("Signature", "ü"))
    for name, value in changes:
        changed = request_of(10, b"body", ALICE, topic="orders", queueId=1)
        changed.add_ext_field(name, value)
        assert refusal(validator, changed) == wrong, name
    signed.body = b"other"
    assert refusal(validator, signed) == wrong
    del signed.ext_fields["Signature"]
    assert refusal(validator, signed) == wrong


INNER = ("SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC",
         "TRANS_CHECK_MAX_TIME_TOPIC", "OFFSET_MOVED_EVENT")


def test_default_permissions_do_not_cover_topics_with_messages_of_others(tmp_path):
    manager_of(tmp_path, """\
accounts:
- accessKey: monitor
  secretKey: 12345678
  defaultTopicPerm: PUB|SUB
  defaultGroupPerm: DENY
  topicPerms:
  - OFFSET_MOVED_EVENT=SUB
  - '%DLQ%named=SUB'
  groupPerms:
  - g=SUB
""")
    validator = PlainAccessValidator(str(tmp_path))
    validator.load()
    monitor = ("monitor", "12345678")

    def may_pull(topic):
        return refusal(validator, request_of(11, None, monitor, topic=topic, consumerGroup="g")) is None

    assert [topic for topic in INNER if may_pull(topic)] == ["OFFSET_MOVED_EVENT"]
    assert may_pull("anything") and may_pull("%DLQ%g") and may_pull("%DLQ%named") and not may_pull("%DLQ%h")
    assert refusal(validator, request_of(10, b"", monitor, topic="%DLQ%g")) is None
    assert refusal(validator, request_of(10, b"", monitor, topic="%DLQ%h")) == (
        "No default permission for topic:%DLQ%h")


def test_open_trace_topic_opens_no_other_topic(validator):
    fields = {"topic": "RMQ_SYS_TRACE_TOPIC"}
    assert refusal(validator, request_of(10, b"", ALICE, **fields)) is None
    assert refusal(validator, request_of(10, b"", ALICE, properties=FURTHER, **fields)).startswith("No default")
    assert refusal(validator, request_of(17, b"", ALICE, **fields)).startswith("Need admin permission")


def test_unique_key_flag_of_queries_may_be_signed_or_not(validator):
    query = request_of(12, None, ALICE, topic="orders", key="k")
    query.add_ext_field(UNIQUE_MSG_QUERY_FLAG, "true")
    # rmqha's clients leave the flag out of the signature.
    assert refusal(validator, query) is None
    javas = request_of(12, None, None, topic="orders", key="k", AccessKey="aliceKey")
    javas.add_ext_field("Signature", cal_signature("aliceKey" + "true" + "k" + "orders", "12345678"))
    assert refusal(validator, javas) == "Check signature failed for accessKey=aliceKey"
    javas.add_ext_field(UNIQUE_MSG_QUERY_FLAG, "true")
    assert refusal(validator, javas) is None
    javas.ext_fields["key"] = "another"
    assert refusal(validator, javas) == "Check signature failed for accessKey=aliceKey"


def test_addresses_are_checked_before_keys_and_keys_before_permissions(validator):
    anything = request_of(9999)
    assert refusal(validator, anything, "10.10.103.9:1") is None
    assert refusal(validator, anything, "10.10.104.9:1") == "No accessKey is configured"
    unsigned = request_of(17, AccessKey="aliceKey")
    assert refusal(validator, unsigned, "192.168.0.9:1") is None
    assert refusal(validator, unsigned, "192.168.1.9:1") == "Check signature failed for accessKey=aliceKey"


def test_permissions_decide_in_the_end(validator):
    denied = "No default permission for "
    assert refusal(validator, request_of(10, b"", ALICE, topic="orders")) is None
    assert refusal(validator, request_of(10, b"", ALICE, topic="other")) == denied + "topic:other"
    assert refusal(validator, request_of(11, None, ALICE, topic="orders", consumerGroup="g")) is None
    assert refusal(validator, request_of(17, None, ALICE, topic="x")) == (
        "Need admin permission for request code=17, but accessKey=aliceKey is not")
    assert refusal(validator, request_of(17, None, ADMIN, topic="x")) is None
    assert refusal(validator, request_of(10, b"", ADMIN, topic="anything")) is None
    assert refusal(validator, request_of(310, b"", ALICE, a="g", b="RMQ_SYS_TRACE_TOPIC")) is None
    assert refusal(validator, request_of(12, None, ALICE, topic="RMQ_SYS_TRACE_TOPIC")) == (
        denied + "topic:RMQ_SYS_TRACE_TOPIC")


def test_every_code_that_the_broker_serves_is_classified():
    class Anything:
        def __getattr__(self, _name):
            return Anything()

    families = BrokerController._admin_handlers(Anything())
    served = set(AdminBrokerProcessor(Anything(), Anything(), families)._handlers)
    changing_roles = {request_code.NOTIFY_BROKER_ROLE_CHANGED, request_code.REJOIN_MASTER, request_code.HANDOVER_MASTER}
    assert served - common.COMMON_CODE - common.ADMIN_CODE == changing_roles
    assert not common.COMMON_CODE & common.ADMIN_CODE
    assert all(common.need_admin_perm(code) for code in (-1, 0, 54, 9999, *common.ADMIN_CODE, *changing_roles))


@settings(max_examples=drawn(300), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(code=st.sampled_from((10, 11, 12, 15, 34, 35, 36, 38, 310, 320, 9999)),
       fields=st.dictionaries(st.one_of(st.sampled_from(("topic", "group", "a", "b", "consumerGroup", "AccessKey",
                                                         "Signature", "queueId")), st.text(max_size=5)),
                              st.one_of(st.sampled_from(("aliceKey", "%RETRY%g", "orders", "1")), st.text(max_size=9))),
       body=st.one_of(st.none(), st.binary(max_size=30), st.sampled_from((b"{}", b"null", b'{"consumerDataSet":[null]}',
                                                                        heartbeat("orders", None)))))
def test_any_unsigned_request_is_refused_with_a_reason(validator, code, fields, body):
    request = RemotingCommand(code)
    request.ext_fields, request.body = fields, body
    assert refusal(validator, request)
