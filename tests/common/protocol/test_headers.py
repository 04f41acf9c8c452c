"""Headers, constants, names and two binary bodies, compared with those of a real RocketMQ."""
import dataclasses
import importlib
import json
import pkgutil
import struct
import zlib
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rmqha.common.protocol
from rmqha.common import subscriptions, sys_flags, topics
from rmqha.common.data_version import DataVersion
from rmqha.common.message import message_const
from rmqha.common.protocol import cluster_bodies, log_checksums, namespace_util, request_code, response_code
from rmqha.common.protocol import namespace_util as faq_url
from rmqha.common.protocol.admin_headers import CreateTopicRequestHeader
from rmqha.common.protocol.client_headers import (
    CheckTransactionStateResponseHeader,
    EndTransactionRequestHeader,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
)
from rmqha.common.protocol.cluster_bodies import RegisterBrokerBody, RegisterBrokerBodyError, RegisterBrokerResult
from rmqha.common.protocol.command_custom_header import (
    INTEGER,
    LONG,
    CommandCustomHeader,
    HeaderFieldError,
    RpcRequestHeader,
    not_null_names,
)
from rmqha.common.protocol.controller_headers import (
    MAX_BLOCK_SIZE,
    MAX_BLOCKS,
    MAX_RANGE,
    GetCommitLogChecksumsRequestHeader,
)
from rmqha.common.protocol.namesrv_headers import GetRouteInfoRequestHeader
from rmqha.common.sys_flags import TopicFilterType
from rmqha.common.topics import SubscriptionGroupConfig, TopicConfig, TopicValidator
from rmqha.common.util_all import current_time_millis
from tests.common import model_golden
from tests.common.model_golden import golden

# Headers: the fields, types and annotations of a real RocketMQ's classes.

GOLDEN = {name.rsplit(".", 1)[1]: fields for name, fields in golden("headers").items()}
# 4.9.7 has these, 4.9.8 does not.
ONLY_IN_497 = {"GetBrokerClusterAclConfigResponseBody", "GetBrokerClusterAclConfigResponseHeader"}
# The headers of 5.1.4 and rmqha's own are tested with the brokers that send them.
OF_514 = {"rmqha.common.protocol.controller_headers", "rmqha.common.protocol.message_heads"}
OF_ROLES = {"NotifyBrokerRoleChangedRequestHeader", "HandoverMasterRequestHeader", "HandoverMasterResponseHeader",
            "RelayClientRequestHeader"}
BASES = (CommandCustomHeader, RpcRequestHeader)
BODY = "GetConsumerListByGroupResponseBody"
KINDS = {"String": (str, None), "int": (int, INTEGER), "Integer": (int, INTEGER), "long": (int, LONG),
         "Long": (int, LONG), "boolean": (bool, None), "Boolean": (bool, None)}


def header_classes() -> dict[str, type]:
    found = {}
    for module in pkgutil.walk_packages(rmqha.common.protocol.__path__, "rmqha.common.protocol."):
        for name, value in vars(importlib.import_module(module.name)).items():
            if isinstance(value, type) and issubclass(value, CommandCustomHeader) and value.__module__ == module.name \
                    and value not in BASES:
                found[name] = value
    return found


CLASSES = header_classes()


def java_form(header: type) -> list[str]:
    """Return the fields of a header as the capture writes them, but without Java's boxing."""
    lines = []
    for field in dataclasses.fields(header):
        kind = field.type if isinstance(field.type, type) else field.type.__args__[0]
        bits = field.metadata.get("bits")
        mark = "!" if field.metadata.get("not_null") else ""
        lines.append(f"{kind.__name__}{bits or ''}{mark} {field.name}")
    return sorted(lines)


def captured_form(fields: list[str]) -> list[str]:
    lines = []
    for text in fields:
        kind, name = text.split(" = ")[0].split(" ")
        python, bits = KINDS[kind.rstrip("!")]
        lines.append(f"{python.__name__}{bits or ''}{'!' if kind.endswith('!') else ''} {name}")
    return sorted(lines)


# Java has these, but nothing in 4.9 sends them.
OF_FILTER_SERVERS = {"RegisterFilterServerRequestHeader", "RegisterFilterServerResponseHeader",
                     "RegisterMessageFilterClassRequestHeader"}


def test_every_header_exists():
    of_49 = {name for name, kind in CLASSES.items() if kind.__module__ not in OF_514} - OF_ROLES
    assert of_49 == set(GOLDEN) - ONLY_IN_497 - {BODY} - OF_FILTER_SERVERS


@pytest.mark.parametrize("name", sorted(set(CLASSES) & set(GOLDEN)))
def test_header_fields_equal_javas(name):
    assert java_form(CLASSES[name]) == captured_form(GOLDEN[name])


@pytest.mark.parametrize("name", sorted(set(CLASSES) & set(GOLDEN)))
def test_header_defaults_equal_javas(name):
    header = CLASSES[name]()
    for text in GOLDEN[name]:
        declared, _, default = text.partition(" = ")
        value = getattr(header, declared.split(" ")[1])
        assert (str(value).lower() if value is not None else "") == default, declared


def test_fields_are_in_javas_order():
    names = [field.name for field in dataclasses.fields(SendMessageRequestHeaderV2)]
    assert names == ["bname", *"abcdefghijklmn"]
    assert SendMessageRequestHeader("g", "t").topic == "t"


def test_v2_and_v1_headers_convert_into_each_other():
    v1 = SendMessageRequestHeader("g", "t", "d", 1, 2, 3, 4, 5, "p", 6, True, True, 7, bname="b")
    v2 = SendMessageRequestHeaderV2(a="g", b="t", c="d", d=1, e=2, f=3, g=4, h=5, i="p", j=6, k=True, l=7, m=True,
                                    n="b")
    assert SendMessageRequestHeaderV2.create_send_message_request_header_v1(v2) == v1


def test_missing_fields_are_named():
    assert not_null_names(GetRouteInfoRequestHeader) == ("topic",)
    assert not_null_names(RpcRequestHeader) == ()


def test_filter_type_must_be_known():
    header = CreateTopicRequestHeader("t", "d", 1, 1, 6, "SINGLE_TAG")
    header.check_fields()
    assert header.topic_filter_type_enum is TopicFilterType.SINGLE_TAG
    header.topicFilterType = "ANY"
    with pytest.raises(HeaderFieldError, match="ANY"):
        header.check_fields()


@pytest.mark.parametrize("outcome", [0, 8, 12])
def test_transaction_has_three_possible_outcomes(outcome):
    EndTransactionRequestHeader(commitOrRollback=outcome).check_fields()


@pytest.mark.parametrize("header", [EndTransactionRequestHeader(commitOrRollback=4),
                                    EndTransactionRequestHeader(),
                                    CheckTransactionStateResponseHeader(commitOrRollback=0)])
def test_other_outcomes_are_refused(header):
    with pytest.raises(HeaderFieldError, match="commitOrRollback"):
        header.check_fields()


# Constants compared with those of a real RocketMQ 4.9.7.

CONSTANTS = golden("constants")
MODULES = {"RequestCode": request_code, "ResponseCode": response_code, "MessageConst": message_const,
           "MessageSysFlag": sys_flags, "PermName": sys_flags, "TopicValidator": topics}
# 5.1.4 has these, 4.9 does not.
FROM_514 = {"GET_BROKER_HA_STATUS", "GET_BROKER_EPOCH_CACHE", "NOTIFY_BROKER_ROLE_CHANGED", "BROKER_HEARTBEAT",
            "UPDATE_CONTROLLER_CONFIG", "GET_CONTROLLER_CONFIG", "CLEAN_BROKER_DATA",
            *(name for module in (request_code, response_code) for name in vars(module)
              if name.startswith("CONTROLLER_"))}
# Neither version has these.
OWN = {"REJOIN_MASTER", "HANDOVER_MASTER", "GET_COMMIT_LOG_CHECKSUMS", "GET_MESSAGE_HEADS", "RELAY_CLIENT",
       "RELAY_NOT_MASTER"}
# 4.9.7 has these, 4.9.8 does not.
CODES_ONLY_IN_497 = {("RequestCode", "GET_BROKER_CLUSTER_ACL_CONFIG")}
# Nothing needs these.
NOT_PORTED = {("PermName", "PERM_PRIORITY"), *(("MessageSysFlag", name) for name in (
    "NEED_UNWRAP_FLAG", "INNER_BATCH_FLAG", "COMPRESSION_LZ4_TYPE", "COMPRESSION_ZSTD_TYPE", "COMPRESSION_ZLIB_TYPE"))}


@pytest.mark.parametrize("name", MODULES)
def test_constants_equal_javas(name):
    values = vars(MODULES[name])
    shared = CONSTANTS[name].keys() & values.keys()
    assert {constant: values[constant] for constant in shared} == {
        constant: CONSTANTS[name][constant] for constant in shared}


@pytest.mark.parametrize("name", MODULES)
def test_no_java_constant_is_missing(name):
    missing = {constant for constant in CONSTANTS[name] if not hasattr(MODULES[name], constant)}
    assert missing <= {constant for module, constant in CODES_ONLY_IN_497 | NOT_PORTED if module == name}


@pytest.mark.parametrize("name", ["RequestCode", "ResponseCode"])
def test_codes_are_distinct_and_known(name):
    own = {constant: value for constant, value in vars(MODULES[name]).items() if constant.isupper()}
    assert len(set(own.values())) == len(own)
    # A ROCKETMQ header has 16 bits for a code.
    assert max(own.values()) < 1 << 15
    assert set(own) - set(CONSTANTS[name]) <= {"FLOW_CONTROL", "SUCCESS"} | FROM_514 | OWN


def test_reserved_property_names_equal_javas():
    assert message_const.STRING_HASH_SET == set(CONSTANTS["reserved"])


def test_transaction_bits_are_replaced():
    flag = sys_flags.reset_transaction_value(0x3D, sys_flags.TRANSACTION_PREPARED_TYPE)
    assert flag == 0x35


@pytest.mark.parametrize("bits", range(32))
def test_pull_flag_bits(bits):
    given = [bool(bits >> shift & 1) for shift in range(5)]
    flag = sys_flags.build_pull_sys_flag(*given)
    assert flag == bits
    assert given[:3] == [sys_flags.has_commit_offset_flag(flag), sys_flags.has_suspend_flag(flag),
                         sys_flags.has_subscription_flag(flag)]
    assert sys_flags.clear_commit_offset_flag(flag) == bits & ~1


def test_unit_flag_bits():
    flag = sys_flags.build_topic_sys_flag(True, True)
    assert flag == 3 and sys_flags.has_unit_flag(flag) and sys_flags.has_unit_sub_flag(flag)
    assert [sys_flags.build_topic_sys_flag(unit, sub) for unit, sub in ((True, False), (False, True))] == [1, 2]


@pytest.mark.parametrize(("perm", "text"), [(0, "---"), (1, "--X"), (2, "-W-"), (4, "R--"), (6, "RW-"), (7, "RWX"),
                                            (8, "---"), (15, "RWX")])
def test_permissions_are_shown_as_text(perm, text):
    assert sys_flags.perm2_string(perm) == text


# Topic names, namespaces, subscriptions and help texts.

NAMES_GOLDEN = golden("names")


@pytest.mark.parametrize("case", NAMES_GOLDEN["subscriptions"], ids=lambda case: repr(case["expression"]))
def test_subscriptions_are_built_as_java_does(case):
    data = subscriptions.build("t", case["expression"], None)
    assert (data.subString, sorted(data.tagsSet), sorted(data.codeSet)) == (
        case["subString"], case["tags"], case["codes"])


def test_subscriptions_without_tags_or_expression():
    assert subscriptions.build("t", None, "TAG").subString == "*"
    sql = subscriptions.build("t", "a > 1", "SQL92")
    assert (sql.expressionType, sql.subString, sql.tagsSet) == ("SQL92", "a > 1", set())
    for wrong in ("||", "||||"):
        with pytest.raises(ValueError, match="split"):
            subscriptions.build("t", wrong, "TAG")
    for wrong in (None, ""):
        with pytest.raises(ValueError, match="SQL92"):
            subscriptions.build("t", wrong, "SQL92")
    assert subscriptions.is_tag_type(None) and subscriptions.is_tag_type("") and subscriptions.is_tag_type("TAG")
    assert not subscriptions.is_tag_type("SQL92")


@pytest.mark.parametrize("case", NAMES_GOLDEN["namespaces"], ids=lambda case: repr(case["resource"]))
def test_namespaces_equal_javas(case):
    name = case["resource"]
    assert namespace_util.without_namespace(name) == case["without"]
    assert namespace_util.without_namespace(name, "ns") == case["withoutNs"]
    assert namespace_util.without_namespace(name, None) == case["withoutNull"]
    assert namespace_util.wrap_namespace("ns", name) == case["wrap"]
    assert namespace_util.wrap_namespace(None, name) == case["wrapNull"]
    assert namespace_util.is_already_with_namespace(name, "ns") == case["already"]


def test_retry_topics_are_recognised_by_their_prefix():
    assert namespace_util.is_retry_topic("%RETRY%g") and not namespace_util.is_retry_topic(None)


@pytest.mark.parametrize(("topic", "remark"), [
    (None, "is blank"), ("", "is blank"), (" \t", "is blank"), ("a b", "illegal characters"), ("../x", "illegal"),
    ("a\n", "illegal"), ("\u00e4", "illegal"), ("t" * 128, "longer than topic max length")])
def test_invalid_topics_are_refused_with_javas_remark(topic, remark):
    response = SimpleNamespace(code=0, remark=None)
    assert not topics.validate_topic(topic, response)
    assert response.code == response_code.SYSTEM_ERROR and remark in response.remark


@pytest.mark.parametrize("topic", ["T", "%RETRY%g", "a|b", "0_-", "t" * 127])
def test_valid_topics_leave_the_response_unchanged(topic):
    response = SimpleNamespace(code=0, remark=None)
    assert TopicValidator.validate_topic(topic, response)
    assert response == SimpleNamespace(code=0, remark=None)


@given(st.text(max_size=140))
def test_any_text_is_a_topic_or_refused(text):
    good = topics.check_topic(text) is None
    assert good == (0 < len(text) <= 127 and all(c.isascii() and (c.isalnum() or c in "%|_-") for c in text))


def test_system_topics_are_separate_for_each_broker():
    one, other = TopicValidator(), TopicValidator()
    one.add_system_topic("broker-a")
    response = SimpleNamespace(code=0, remark=None)
    assert one.is_system_topic("broker-a", response) and not other.is_system_topic("broker-a")
    assert response.code == response_code.SYSTEM_ERROR and "conflict with system topic" in response.remark
    assert one.is_system_topic("rmq_sys_x") and topics.is_system_topic("TBW102")
    assert not topics.is_system_topic("broker-a") and "broker-a" in one.system_topic_set


def test_sends_to_some_system_topics_are_forbidden():
    validator, response = TopicValidator(), SimpleNamespace(code=0, remark=None)
    assert validator.is_not_allowed_send_topic("SCHEDULE_TOPIC_XXXX", response)
    assert response.code == response_code.NO_PERMISSION and "is forbidden" in response.remark
    assert not validator.is_not_allowed_send_topic("TBW102")
    assert topics.is_not_allowed_send_topic("OFFSET_MOVED_EVENT")


def test_topic_text_survives_a_round_trip():
    topic = TopicConfig("T", 1, 2, 6)
    copy = TopicConfig()
    assert copy.decode(topic.encode()) and copy == topic and hash(copy) == hash(topic)
    assert not copy.decode("T 1 2 6") and not copy.decode("")
    for wrong in ("T a 2 6 SINGLE_TAG", "T 1 2 6 OTHER", "T 1 2 4294967296 SINGLE_TAG"):
        with pytest.raises(ValueError, match="invalid|input"):
            copy.decode(wrong)
    assert copy == topic


def test_data_versions_are_equal_when_both_numbers_are():
    version = DataVersion()
    assert abs(version.timestamp - current_time_millis()) < 10_000 and version.counter == 0
    other = DataVersion(1, 2)
    other.next_version()
    assert other.counter == 3 and other.timestamp > 1
    version.assign_new_one(other)
    assert version == other and hash(version) == hash(other) and version != DataVersion(other.timestamp, 2)


def test_new_groups_have_javas_settings():
    group = SubscriptionGroupConfig("g")
    assert (group.retryQueueNums, group.retryMaxTimes) == (1, 16)
    assert (group.brokerId, group.whichBrokerWhenConsumeSlowly) == (0, 1)
    assert len({group, SubscriptionGroupConfig("g")}) == 1


def test_errors_link_to_the_documentation():
    text = faq_url.suggest_todo(faq_url.MQLIST_NOT_EXIST)
    assert text == "\nSee http://rocketmq.apache.org/docs/faq/ for further details."
    assert faq_url.attach_default_url("x" + text) == "x" + text
    assert faq_url.attach_default_url(None) is None
    assert faq_url.attach_default_url("x").startswith("x\nFor more information, please visit the url, http")


def test_registration_results_start_empty():
    assert RegisterBrokerResult() == RegisterBrokerResult(None, None, None)
    assert namespace_util.NAMESPACE_ORDER_TOPIC_CONFIG == "ORDER_TOPIC_CONFIG"


# The answer to GET_COMMIT_LOG_CHECKSUMS, and the limits of a request.

CRCS = st.lists(st.integers(0, 0xFFFF_FFFF), max_size=50)


@given(CRCS, st.integers(0, 5))
def test_encoded_answer_is_decoded(crcs, more):
    body = log_checksums.encode(crcs)
    assert body == b"".join(crc.to_bytes(4, "big") for crc in crcs)
    assert log_checksums.decode(body, len(crcs) + more) == tuple(crcs)


@given(CRCS.filter(bool), st.integers(1, 3))
def test_body_of_another_size_is_refused(crcs, cut):
    body = log_checksums.encode(crcs)
    for wrong, count in ((body[:-cut], len(crcs)), (body + bytes(cut), len(crcs) + 1), (body, len(crcs) - 1)):
        with pytest.raises(ValueError, match=f"{len(wrong)} bytes are not the checksums of at most {count} blocks"):
            log_checksums.decode(wrong, count)


@given(st.integers(-3, 1 << 62), st.integers(-3, 2 * MAX_BLOCK_SIZE), st.integers(-3, 2 * MAX_BLOCKS))
def test_request_reads_at_most_16_mib(offset, block_size, count):
    header = GetCommitLogChecksumsRequestHeader(offset, block_size, count)
    if offset >= 0 and 0 < block_size <= 1 << 20 and 0 < count <= 4096 and block_size * count <= 16 << 20:
        header.check_fields()
    else:
        with pytest.raises(HeaderFieldError):
            header.check_fields()


@pytest.mark.parametrize(("fields", "reason"), [
    ((-1, 1, 1), "offset is -1, and must not be negative"),
    ((0, 0, 1), "blockSize is 0, and must be from 1 to 1048576"),
    ((0, MAX_BLOCK_SIZE + 1, 1), "blockSize is 1048577, and must be from 1 to 1048576"),
    ((0, 1, 0), "count is 0, and must be from 1 to 4096"),
    ((0, 1, MAX_BLOCKS + 1), "count is 4097, and must be from 1 to 4096"),
    ((0, MAX_RANGE // MAX_BLOCKS + 1, MAX_BLOCKS),
     "4096 blocks of 4097 bytes are 16781312 bytes; the limit of a request is 16777216"),
])
def test_invalid_request_is_named(fields, reason):
    with pytest.raises(HeaderFieldError) as error:
        GetCommitLogChecksumsRequestHeader(*fields).check_fields()
    assert str(error.value) == reason


@given(CRCS, st.integers(1, 20), st.integers(0, 3))
def test_blocks_follow_their_checksums(crcs, block_size, more):
    data = bytes(range(block_size)) * len(crcs)
    body = log_checksums.encode(crcs) + data
    assert log_checksums.decode_with_bytes(body, len(crcs) + more, block_size) == (tuple(crcs), data)
    with pytest.raises(ValueError, match="are not at most"):
        log_checksums.decode_with_bytes(body + b"x", len(crcs) + more, block_size)
    if crcs:
        with pytest.raises(ValueError, match="are not at most"):
            log_checksums.decode_with_bytes(body, len(crcs) - 1, block_size)


def test_at_most_one_mib_is_sent_with_its_bytes():
    GetCommitLogChecksumsRequestHeader(0, MAX_BLOCK_SIZE, 1, True).check_fields()
    with pytest.raises(HeaderFieldError, match="2097152 bytes are requested; the limit is 1048576"):
        GetCommitLogChecksumsRequestHeader(0, MAX_BLOCK_SIZE, 2, True).check_fields()


# The compressed registration, compared with a real broker's, and hostile ones.

JAVA = bytes.fromhex(golden("bodies")["registerCompressed"])
VERSION = b'{"counter":1,"timestamp":2}'


def block(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def body(version: bytes = VERSION, topics: tuple[bytes, ...] = (b"T 1 2 6 SINGLE_TAG",), count: int | None = None,
         filters: bytes = b"[]") -> bytes:
    count = len(topics) if count is None else count
    return zlib.compress(block(version) + struct.pack(">i", count) + b"".join(map(block, topics)) + block(filters))


def without_lost_fields(registration: RegisterBrokerBody) -> RegisterBrokerBody:
    for topic in registration.topicConfigSerializeWrapper.topicConfigTable.values():
        topic.topicSysFlag, topic.order = 0, False
    return registration


def test_java_registration_is_read():
    assert RegisterBrokerBody.decode_compressed(JAVA) == without_lost_fields(model_golden.registration())


def test_registration_inflates_to_the_same_bytes_as_javas():
    assert zlib.decompress(model_golden.registration().encode_compressed()) == zlib.decompress(JAVA)


@given(st.dictionaries(st.text("abc%_-|", min_size=1, max_size=20), st.integers(-2**31, 2**31 - 1), max_size=20),
       st.lists(st.text(max_size=20), max_size=3), st.integers(-2**63, 2**63 - 1))
def test_registrations_survive_a_round_trip(topics, filters, timestamp):
    registration = RegisterBrokerBody(filterServerList=[text.encode("utf-8", "replace").decode() for text in filters])
    wrapper = registration.topicConfigSerializeWrapper
    wrapper.topicConfigTable = {name: TopicConfig(name, number, number, number) for name, number in topics.items()}
    wrapper.dataVersion = DataVersion(timestamp, 3)
    assert RegisterBrokerBody.decode_compressed(registration.encode_compressed()) == registration


@pytest.mark.parametrize("data", [
    b"", b"no zlib", JAVA[:-9], JAVA[:20], zlib.compress(b""), zlib.compress(b"\0\0"),
    body(count=2**31 - 1), body(count=-1), body(count=2),
    zlib.compress(struct.pack(">i", 2**31 - 1) + VERSION), zlib.compress(struct.pack(">i", -1) + VERSION),
    body(version=b"null"), body(version=b"[1]"), body(version=b"{"), body(version=b'{"counter":"x"}'),
    body(version=b'{"counter":true}'), body(version=b"[" * 100_000),
    body(topics=(b"T 1 2 6",)), body(topics=(b"T x 2 6 SINGLE_TAG",)), body(topics=(b"T 1 2 6 ANY_TAG",)),
    body(topics=(b"T 1 2 99999999999 SINGLE_TAG",)), body(topics=(b"T 1_0 2 6 SINGLE_TAG",)),
    body(filters=b"{}"), body(filters=b"[1]"), body(filters=b"x"),
], ids=range(25))
def test_hostile_registrations_are_errors(data):
    with pytest.raises(RegisterBrokerBodyError):
        RegisterBrokerBody.decode_compressed(data)


def test_registrations_that_inflate_too_much_are_refused(monkeypatch):
    monkeypatch.setattr(cluster_bodies, "MAX_INFLATED_SIZE", 10_000)
    with pytest.raises(RegisterBrokerBodyError, match="inflates"):
        RegisterBrokerBody.decode_compressed(zlib.compress(bytes(100_000)))


def test_registrations_with_an_excessive_compression_ratio_are_refused():
    with pytest.raises(RegisterBrokerBodyError, match="the body of 10.. bytes inflates to 3..... bytes and more"):
        RegisterBrokerBody.decode_compressed(zlib.compress(bytes(1 << 20)))
    for count in (1, 100, 50_000):
        sent = RegisterBrokerBody()
        names = [f"namespace-of-a-department%topic-{index}" for index in range(count)]
        sent.topicConfigSerializeWrapper.topicConfigTable = {name: TopicConfig(name) for name in names}
        read = RegisterBrokerBody.decode_compressed(sent.encode_compressed())
        assert list(read.topicConfigSerializeWrapper.topicConfigTable) == names


def test_too_many_topics_and_too_much_json_are_refused(monkeypatch):
    with pytest.raises(RegisterBrokerBodyError, match="10001 elements of JSON, the limit is 10000"):
        RegisterBrokerBody.decode_compressed(body(filters=b"[" * 10_001))
    monkeypatch.setattr(cluster_bodies, "MAX_TOPICS", 2)
    assert RegisterBrokerBody.decode_compressed(body(topics=(b"T 1 2 6 SINGLE_TAG",) * 2))
    with pytest.raises(RegisterBrokerBodyError, match="3 topics, the limit is 2"):
        RegisterBrokerBody.decode_compressed(body(topics=(b"T 1 2 6 SINGLE_TAG",) * 3))


@given(st.binary(max_size=80))
def test_any_inflated_bytes_are_a_registration_or_an_error(data):
    try:
        RegisterBrokerBody.decode_compressed(zlib.compress(data))
    except RegisterBrokerBodyError:
        assert True


@given(st.integers(0, 200), st.binary(min_size=1, max_size=4))
def test_damaged_registrations_are_a_registration_or_an_error(position, piece):
    plain = bytearray(zlib.decompress(JAVA))
    plain[position:position + len(piece)] = piece
    try:
        registration = RegisterBrokerBody.decode_compressed(zlib.compress(plain))
    except RegisterBrokerBodyError:
        return
    assert json.dumps(registration.filterServerList)
