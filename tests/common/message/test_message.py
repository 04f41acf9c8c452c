"""Messages, batches, queues and unique ids, and values of the wrong type."""
import pytest

from rmqha.client import exception
from rmqha.common.message import message_decoder
from rmqha.common.message import message_decoder as message_client_id_setter
from rmqha.common.message.message import Message, MessageExt, MessageExtBatch, MessageQueue, parse_int
from rmqha.common.message.message_decoder import MessageBatch
from rmqha.common.sys_flags import TopicFilterType
from rmqha.common.util_all import current_time_millis


def test_message_with_a_topic_waits_for_the_store():
    assert Message("T", b"x").properties == {"WAIT": "true"}
    assert Message("T", b"x", "tag", "key", 3, False).properties == {"TAGS": "tag", "KEYS": "key", "WAIT": "false"}
    assert Message().properties == {}
    assert MessageExt("T", b"x").properties == {}
    assert Message("T").wait_store_msg_ok and MessageExt().wait_store_msg_ok
    assert not Message("T", wait_store_msg_ok=False).wait_store_msg_ok


def test_wait_is_parsed_like_javas_parse_boolean():
    message = Message("T")
    for text, expected in (("TRUE", True), ("true", True), ("yes", False), ("", False), ("1", False)):
        message.put_property("WAIT", text)
        assert message.wait_store_msg_ok is expected


def test_keys_are_joined_by_spaces():
    message = Message("T")
    message.keys = ["a", "b"]
    assert message.keys == "a b"
    message.set_keys("c")
    assert message.keys == "c"


def test_delay_level_is_a_number():
    message = Message("T")
    assert message.delay_time_level == 0
    message.delay_time_level = 3
    assert message.properties["DELAY"] == "3"
    for text in ("", "x", "1.5", " 1", "1_0", "2147483648", "\u0663"):
        message.put_property("DELAY", text)
        with pytest.raises(ValueError, match="For input string"):
            _ = message.delay_time_level


def test_parse_int_agrees_with_java():
    assert [parse_int(text) for text in ("0", "+7", "-2147483648", "2147483647", "007")] == [
        0, 7, -2**31, 2**31 - 1, 7]


@pytest.mark.parametrize("name", ["KEYS", "TAGS", "UNIQ_KEY", "CLUSTER"])
def test_users_may_not_set_system_properties(name):
    with pytest.raises(ValueError, match="is used by system"):
        Message("T").put_user_property(name, "x")


@pytest.mark.parametrize(("name", "value"), [("", "x"), (" ", "x"), ("x", ""), ("x", " ")])
def test_blank_user_properties_are_refused(name, value):
    with pytest.raises(ValueError, match="can not be null or blank"):
        Message("T").put_user_property(name, value)


def test_messages_have_a_readable_repr():
    assert "topic='T'" in repr(Message("T"))
    assert "queueId=0" in repr(MessageExt("T"))


def test_batch_keeps_its_messages_together():
    batch = MessageBatch.generate_from_list([Message("T", b"a", wait_store_msg_ok=False),
                                             Message("T", b"b", wait_store_msg_ok=False)])
    assert batch.topic == "T" and not batch.wait_store_msg_ok
    assert [message.body for message in batch] == [b"a", b"b"]
    assert [message.body for message in message_decoder.decode_messages(batch.encode())] == [b"a", b"b"]


def test_messages_that_can_not_share_a_batch_are_refused():
    delayed = Message("T")
    delayed.delay_time_level = 1
    for messages, reason in (
            ([], "needs a message"), ([delayed], "TimeDelayLevel"), ([Message("%RETRY%g")], "Retry Group"),
            ([Message("T"), Message("U")], "same"), ([Message("T"), Message("T", wait_store_msg_ok=False)], "wait")):
        with pytest.raises(ValueError, match=reason):
            MessageBatch.generate_from_list(messages)


def test_queues_are_ordered_by_topic_broker_and_number():
    queues = [MessageQueue(*parts) for parts in (("b", "a", 0), ("a", "b", 10), ("a", "b", 9), ("a", "a", 5))]
    assert [(queue.topic, queue.brokerName, queue.queueId) for queue in sorted(queues)] == [
        ("a", "a", 5), ("a", "b", 9), ("a", "b", 10), ("b", "a", 0)]
    assert len({*queues, MessageQueue("b", "a", 0)}) == 4
    assert str(queues[0]) == "MessageQueue [topic=b, brokerName=a, queueId=0]"


def test_unique_ids_differ_and_contain_their_time():
    ids = {message_client_id_setter.create_uniq_id() for _ in range(1000)}
    assert len(ids) == 1000
    for uniq_id in ids:
        assert len(uniq_id) in (32, 56) and uniq_id == uniq_id.upper()
    one = ids.pop()
    assert abs(message_client_id_setter.get_nearly_time_from_id(one) - current_time_millis()) < 60_000
    with pytest.raises(ValueError, match="32 or 56"):
        message_client_id_setter.get_nearly_time_from_id("7F00")


def test_unique_id_is_set_only_once():
    message = Message("T")
    message_client_id_setter.set_uniq_id(message)
    first = message_client_id_setter.get_uniq_id(message)
    message_client_id_setter.set_uniq_id(message)
    assert message_client_id_setter.get_uniq_id(message) == first
    assert len(message_client_id_setter.create_fake_ip()) == 4


def test_filter_type_is_a_bit_of_the_record():
    assert MessageExt.parse_topic_filter_type(0) is TopicFilterType.SINGLE_TAG
    assert MessageExt.parse_topic_filter_type(2) is TopicFilterType.MULTI_TAG


def test_hosts_are_shown_as_addresses():
    message = MessageExtBatch("T", b"x")
    message.born_host = ("10.0.0.1", 5)
    assert message.born_host_string == "10.0.0.1"
    assert message.born_host_bytes.hex() == "0a00000100000005"


def test_unique_id_made_in_this_millisecond_has_the_current_time(monkeypatch):
    uniq_id = message_client_id_setter.create_uniq_id()
    made = message_client_id_setter.get_nearly_time_from_id(uniq_id)
    monkeypatch.setattr(message_client_id_setter.time, "time_ns", lambda: made * 1_000_000)
    assert message_client_id_setter.get_nearly_time_from_id(uniq_id) == made


# A value of the wrong type is refused where it is passed, with the field's name.

WRONG = [
    ("topic", 5, "message topic must be str, not int"),
    ("topic", b"T", "message topic must be str, not bytes"),
    ("body", "text", "message body must be bytes or bytearray or memoryview, not str"),
    ("body", None, "message body must be bytes or bytearray or memoryview, not NoneType"),
    ("body", 7, "message body must be bytes or bytearray or memoryview, not int"),
    ("tags", 0, "message tags must be str, not int"),
    ("tags", ["a"], "message tags must be str, not list"),
    ("keys", 0, "message keys must be str or Iterable, not int"),
    ("keys", b"k", "message keys must be str or Iterable, not bytes"),
    ("keys", ["a", 1], "message keys must be str, not int"),
    ("flag", "1", "message flag must be int, not str"),
    ("flag", 1.0, "message flag must be int, not float"),
    ("flag", True, "message flag must be int, not bool"),
    ("wait_store_msg_ok", "false", "message wait_store_msg_ok must be bool, not str"),
]


@pytest.mark.parametrize(("field", "value", "told"), WRONG)
def test_wrong_type_is_refused_by_the_constructor(field, value, told):
    with pytest.raises(TypeError) as error:
        Message(**{"topic": "T", "body": b"b", field: value})
    assert str(error.value) == told


@pytest.mark.parametrize(("field", "value"), [
    ("tags", 1), ("keys", 1), ("delay_time_level", "3"), ("delay_time_level", 1.5), ("wait_store_msg_ok", 1),
    ("instance_id", 1), ("buyer_id", b"x")])
def test_wrong_type_is_refused_by_a_property(field, value):
    with pytest.raises(TypeError, match=f"message {field} must be "):
        setattr(Message("T", b"b"), field, value)


@pytest.mark.parametrize("put", [Message.put_property, Message.put_user_property])
@pytest.mark.parametrize(("name", "value", "told"), [
    ("n", 1, "message property n must be str, not int"), (1, "v", "message a property's name must be str, not int"),
    ("n", b"v", "message property n must be str, not bytes")])
def test_property_of_a_wrong_type_is_refused(put, name, value, told):
    with pytest.raises(TypeError) as error:
        put(Message("T", b"b"), name, value)
    assert str(error.value) == told


@pytest.mark.parametrize(("field", "value", "told"), [
    ("topic", 5, "topic"), ("body", "text", "body"), ("flag", "1", "flag"), ("properties", None, "properties"),
    ("properties", {"n": 1}, "property n"), ("properties", {1: "v"}, "a property's name")])
def test_attribute_of_a_wrong_type_is_refused_by_the_send(field, value, told):
    message = Message("T", b"b")
    setattr(message, field, value)
    with pytest.raises(TypeError, match=f"message {told} must be "):
        exception.check_message(message, 1000)


def test_values_of_the_right_type_are_accepted():
    for body in (b"b", bytearray(b"b"), memoryview(b"b")):
        message = Message("T", body, tags="a", keys=("k", "l"), flag=-3)
        assert (message.tags, message.keys, message.flag) == ("a", "k l", -3)
        exception.check_message(message, 1000)
    for keys in (None, "", [], ()):
        assert Message("T", b"b", tags="", keys=keys).properties == {"WAIT": "true"}
