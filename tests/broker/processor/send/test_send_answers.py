"""The answers to simple sends: compiled, in Python and by the general encoder the same."""
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqha.broker.processor import send_codec
from rmqha.broker.processor.send_codec import SendAnswers, json_in_python
from rmqha.common.broker_config import BrokerConfig
from rmqha.remoting.protocol.header_codec import SerializeType
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.store.append import MessageRow
from tests.support.tiers import drawn

HOST = b"7F00000100002A9F"
LONG = st.integers(-2**63, 2**63 - 1)


@pytest.fixture(scope="module")
def compiled():
    """The compiled encoder."""
    module = pytest.importorskip("rmqha.native._express_send", reason="no C compiler was there at the install")
    return module.json_answers


def sends(queue_ids: list[int]) -> list[MessageRow]:
    """One to each of the queues."""
    return [MessageRow("T", queue_id, f"T-{queue_id}", 0, 0, 0, 0, 0, b"", 0, b"", b"") for queue_id in queue_ids]


@settings(max_examples=drawn(300))
@given(st.lists(st.tuples(st.integers(0, 2**62), st.integers(0, 2**31 - 1), LONG, LONG), max_size=5),
       st.permutations(range(4)), st.lists(st.binary(max_size=9), min_size=5, max_size=5), st.binary(max_size=20))
def test_compiled_and_python_write_the_same(compiled, answers, order, between, host):
    offsets, queue_ids, queue_offsets, opaques = map(list, zip(*answers, strict=True)) if answers else ([], [], [], [])
    arguments = tuple(between), tuple(order), host, offsets, sends(queue_ids), queue_offsets, opaques
    assert compiled(*arguments) == json_in_python(*arguments)


@pytest.mark.parametrize("json", ["compiled", "python"])
@pytest.mark.parametrize("kind", SerializeType)
@pytest.mark.parametrize("region", ["DefaultRegion", 'a "%s" @é@'])
def test_general_decoder_reads_what_was_told(request, monkeypatch, json, kind, region):
    monkeypatch.setattr(send_codec, "_json_answers",
                        json_in_python if json == "python" else request.getfixturevalue("compiled"))
    config = BrokerConfig()
    config.regionId = region
    data = SendAnswers(config).encode(10, kind, HOST, [0, 2**40 + 5], sends([3, 0]), [0, 2**33], [7, 1_234_567_891])
    for queue_id, queue_offset, opaque, msg_id in (
            (3, 0, 7, "7F00000100002A9F0000000000000000"),
            (0, 2**33, 1_234_567_891, "7F00000100002A9F0000010000000005")):
        length = int.from_bytes(data[:4])
        command, data = RemotingCommand.decode(data[4:4 + length]), data[4 + length:]
        assert (command.code, command.opaque, command.is_response_type, command.serialize_type) == (
            10, opaque, True, kind)
        assert command.ext_fields == {"msgId": msg_id, "queueId": str(queue_id), "queueOffset": str(queue_offset),
                                      "MSG_REGION": region, "TRACE_ON": "true"}
    assert data == b""


@pytest.mark.parametrize("arguments", [
    ((b"",) * 4, (0, 1, 2, 3), HOST, [], [], [], []), ((b"",) * 4 + ("",), (0, 1, 2, 3), HOST, [], [], [], []),
    ((b"",) * 5, (0, 1, 2, 4), HOST, [], [], [], []), ((b"",) * 5, (0, 1, 2, -1), HOST, [], [], [], []),
    ((b"",) * 5, (0, 1, 2, 3), HOST, [1], [], [1], [1]), ((b"",) * 5, (0, 1, 2, 3), HOST, [1], ["x"], [1], [1]),
    ((b"",) * 5, (0, 1, 2, 3), HOST, [2**70], sends([1]), [1], [1]), ((b"",) * 5, (0, 1), HOST, [], [], [], [])])
def test_compiled_one_takes_nothing_else(compiled, arguments):
    with pytest.raises((TypeError, ValueError, OverflowError)):
        compiled(*arguments)
