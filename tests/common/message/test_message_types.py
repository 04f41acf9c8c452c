"""A value of a wrong type is refused where it is given, with the field's name."""
import pytest

from rmqha.client import exception
from rmqha.common.message.message import Message

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


def test_what_is_right_is_taken():
    for body in (b"b", bytearray(b"b"), memoryview(b"b")):
        message = Message("T", body, tags="a", keys=("k", "l"), flag=-3)
        assert (message.tags, message.keys, message.flag) == ("a", "k l", -3)
        exception.check_message(message, 1000)
    for keys in (None, "", [], ()):
        assert Message("T", b"b", tags="", keys=keys).properties == {"WAIT": "true"}
