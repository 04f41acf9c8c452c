"""Whatever comes in, each request gets one answer, and a good client beside it is served."""
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmqha.common import sys_flags
from rmqha.common.protocol import admin_headers, client_headers, request_code, response_code
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from tests.support.tiers import drawn

_MODULES = (admin_headers, client_headers)
FIELD_NAMES = sorted({field.name for module in _MODULES for header in vars(module).values()
                      if hasattr(header, "__dataclass_fields__") for field in fields(header)})
CODES = sorted({code for name, code in vars(request_code).items() if name.isupper()})
TEXTS = st.one_of(
    st.integers(-(2**64), 2**64).map(str), st.text(max_size=8),
    st.sampled_from(["0", "1", "true", "%RETRY%", "TBW102", "Known", "../x", "*"]))
BODIES = st.one_of(
    st.none(), st.binary(max_size=64), st.sampled_from([b"{}", b"[]", b"null", b"{", b'{"clientID":"c"}', b"\xff" * 9]),
    st.dictionaries(st.sampled_from(["mqSet", "consumerGroup", "clientId", "groupName", "consumerDataSet"]),
                    st.sampled_from(["[]", "[1]", "null", '"x"', "{}", "-1"])).map(
        lambda pairs: ("{" + ",".join(f'"{name}":{value}' for name, value in pairs.items()) + "}").encode()))


WELL_FORMED = {
    request_code.SEND_MESSAGE: client_headers.SendMessageRequestHeader,
    request_code.SEND_MESSAGE_V2: client_headers.SendMessageRequestHeaderV2,
    request_code.SEND_BATCH_MESSAGE: client_headers.SendMessageRequestHeaderV2,
    request_code.CONSUMER_SEND_MSG_BACK: client_headers.ConsumerSendMsgBackRequestHeader,
    request_code.PULL_MESSAGE: client_headers.PullMessageRequestHeader,
    request_code.QUERY_MESSAGE: client_headers.QueryMessageRequestHeader,
    request_code.VIEW_MESSAGE_BY_ID: client_headers.ViewMessageRequestHeader,
    request_code.QUERY_CONSUME_QUEUE: client_headers.QueryConsumeQueueRequestHeader,
    request_code.GET_CONSUMER_LIST_BY_GROUP: admin_headers.GetConsumerListByGroupRequestHeader,
    request_code.UPDATE_CONSUMER_OFFSET: admin_headers.UpdateConsumerOffsetRequestHeader,
    request_code.QUERY_CONSUMER_OFFSET: admin_headers.QueryConsumerOffsetRequestHeader,
    request_code.UNREGISTER_CLIENT: admin_headers.UnregisterClientRequestHeader,
    request_code.UPDATE_AND_CREATE_TOPIC: admin_headers.CreateTopicRequestHeader,
    request_code.GET_TOPIC_STATS_INFO: admin_headers.GetTopicStatsInfoRequestHeader,
    request_code.DELETE_SUBSCRIPTIONGROUP: admin_headers.DeleteSubscriptionGroupRequestHeader,
    request_code.SEARCH_OFFSET_BY_TIMESTAMP: client_headers.SearchOffsetRequestHeader,
    request_code.GET_MAX_OFFSET: client_headers.GetMaxOffsetRequestHeader,
    request_code.GET_MIN_OFFSET: client_headers.GetMinOffsetRequestHeader,
    request_code.GET_EARLIEST_MSG_STORETIME: client_headers.GetEarliestMsgStoretimeRequestHeader,
    request_code.GET_CONSUME_STATS: admin_headers.GetConsumeStatsRequestHeader,
    request_code.INVOKE_BROKER_TO_RESET_OFFSET: admin_headers.ResetOffsetRequestHeader,
    request_code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: admin_headers.GetConsumerStatusRequestHeader,
    request_code.QUERY_CONSUME_TIME_SPAN: admin_headers.QueryConsumeTimeSpanRequestHeader,
    request_code.QUERY_CORRECTION_OFFSET: admin_headers.QueryCorrectionOffsetHeader,
    request_code.CLONE_GROUP_OFFSET: admin_headers.CloneGroupOffsetRequestHeader,
    request_code.SEND_REPLY_MESSAGE: client_headers.SendMessageRequestHeader,
    request_code.SEND_REPLY_MESSAGE_V2: client_headers.SendMessageRequestHeaderV2,
    request_code.END_TRANSACTION: client_headers.EndTransactionRequestHeader,
    request_code.RESUME_CHECK_HALF_MESSAGE: client_headers.ResumeCheckHalfMessageRequestHeader,
    request_code.CONSUME_MESSAGE_DIRECTLY: admin_headers.ConsumeMessageDirectlyResultRequestHeader,
}
NAMES = st.sampled_from(["Known", "g", "%RETRY%g", "%DLQ%g", "", "../x", "t" * 128, "TBW102", "a@b", "\x00", "Ä",
                         "A" * 32])
SMALL = st.sampled_from([0, 1, -1, 3, 4, 31])
INTS = st.one_of(SMALL, st.sampled_from([2**31 - 1, -(2**31)]))
LONGS = st.one_of(SMALL, st.sampled_from([2**63 - 1, -(2**63)]))


@st.composite
def well_formed_requests(draw):
    """A code with a header whose fields all have the right type."""
    code = draw(st.sampled_from(sorted(WELL_FORMED)))
    values = {}
    for field in fields(WELL_FORMED[code]):
        if field.type is bool or field.type == "bool":
            values[field.name] = draw(st.booleans())
        elif field.metadata.get("bits"):
            values[field.name] = draw(INTS if field.metadata["bits"] == 32 else LONGS)
        else:
            values[field.name] = draw(NAMES)
    if code == request_code.PULL_MESSAGE:
        values["sysFlag"] &= ~sys_flags.FLAG_SUSPEND
    if code == request_code.END_TRANSACTION:  # an outcome that is not known gets no answer
        values["commitOrRollback"] = draw(st.sampled_from([4, 8, 12]))
    return code, WELL_FORMED[code](**values)


@pytest.fixture(scope="module")
def known(shared_broker):
    """A broker with a topic `Known`."""
    shared_broker.send("Known")
    return shared_broker


@settings(max_examples=drawn(400), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(CODES), st.dictionaries(st.sampled_from(FIELD_NAMES), TEXTS), BODIES)
def test_each_request_gets_an_answer(known, code, ext_fields, body):
    ext_fields.pop("suspendTimeoutMillis", None)  # else a pull may be held for as long as it says
    request = RemotingCommand.create_request_command(code)
    request.ext_fields, request.body = ext_fields, body
    response = known.client.invoke_sync(known.address, request, 60_000)
    assert isinstance(response.code, int) and response.is_response_type


@settings(max_examples=drawn(600), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(well_formed_requests(), st.sampled_from([b"", b"x", b"\x00\x00\x00\x17" + b"\x00" * 20]))
def test_each_well_formed_request_gets_an_answer(known, request_and_header, body):
    code, header = request_and_header
    response = known.call(code, header, body)
    assert isinstance(response.code, int) and response.is_response_type


def test_names_from_requests_make_no_folders_outside_the_store(known):
    root = Path(known.controller.message_store_config.storePathRootDir)
    assert {path.name for path in root.iterdir()} <= {
        "abort", "checkpoint", "checkpoint.positions", "commitlog", "config", "consumequeue", "consumequeue_ext",
        "index", "lock"}
    assert all(set(path.name) <= set(map(chr, range(32, 127))) for path in (root / "consumequeue").iterdir())
    assert {path.name for path in root.parent.iterdir()} <= {"store", "broker.conf", "broker.conf.bak"}


def test_good_client_is_served_afterwards(known):
    assert known.send("Known").code == response_code.SUCCESS
    assert known.pull("Known", 0).code == response_code.SUCCESS
