"""Java's rules: numbers, completables, `.properties` files; and hashes of classes used in sets."""
import dataclasses
import enum
import importlib
import pkgutil
import threading
import typing

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rmqha.broker
import rmqha.common
import rmqha.namesrv
import rmqha.remoting
from rmqha.common import java
from rmqha.common.futures import AtomicBoolean, AtomicInteger, AtomicLong, Completable
from rmqha.common.java import PropertiesError, hash_map_order, int32, int64, string_hash_code
from rmqha.common.subscriptions import SubscriptionData
from rmqha.common.texts import Secret
from rmqha.remoting.tls_system_config import TlsSystemConfig

# Completables, atomics and Java's rules.


def test_first_completion_wins_and_late_callbacks_run_at_once():
    seen = []
    future = Completable()
    future.then(seen.append)
    assert future.complete(1) and not future.complete(2)
    future.then(seen.append)
    assert seen == [1, 1] and future.get() == 1 and future.is_done


def test_get_times_out_and_get_waits():
    future = Completable()
    with pytest.raises(TimeoutError):
        future.get(1)
    threading.Timer(0.02, future.complete, ["late"]).start()
    assert future.get(60_000) == "late"


@pytest.mark.parametrize("order", ["first", "second", "both"])
def test_combine_waits_for_both(order):
    a, b = Completable(), Completable()
    if order == "both":
        a.complete(1), b.complete(2)
    both = Completable.combine(a, b, lambda x, y: (x, y))
    for future, value in ((a, 1), (b, 2)) if order == "first" else ((b, 2), (a, 1)):
        future.complete(value)
    assert both.get(60_000) == (1, 2)


def test_failing_callback_is_logged_and_others_run(caplog):
    seen = []
    future = Completable()
    future.then(lambda _value: 1 / 0)
    future.then(seen.append)
    future.complete(5)
    assert seen == [5] and "ZeroDivisionError" in caplog.text


def test_then_apply_always_completes(caplog):
    future = Completable()
    applied = future.then_apply(lambda value: value // 0, lambda error: type(error).__name__)
    future.complete(1)
    assert applied.get(0) == "ZeroDivisionError"


def test_parallel_increments_are_not_lost():
    counter = AtomicInteger()
    threads = [threading.Thread(target=lambda: [counter.increment_and_get() for _ in range(2000)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counter.get() == 8000


def test_atomics_wrap_like_java():
    assert AtomicInteger(2**31 - 1).increment_and_get() == -(2**31)
    assert AtomicLong(2**63 - 1).increment_and_get() == -(2**63)
    number = AtomicLong(5)
    assert not number.set_max(5) and number.set_max(6) and number.compare_and_set(6, 1) and number.get() == 1
    flag = AtomicBoolean()
    assert flag.compare_and_set(False, True) and not flag.compare_and_set(False, True)


@given(st.integers())
def test_wraps_stay_in_range_and_agree_modulo(value):
    assert -(2**31) <= int32(value) < 2**31 and (int32(value) - value) % 2**32 == 0
    assert -(2**63) <= int64(value) < 2**63 and (int64(value) - value) % 2**64 == 0


@pytest.mark.parametrize("text, code", [
    ("", 0), ("hello", 99162322), ("polygenelubricants", -(2**31)), ("TagA", 2598919),
    ("消息", 893927), ("😀", 1772899)])
def test_string_hash_code_equals_javas(text, code):
    assert string_hash_code(text) == code


def test_hash_map_order_equals_javas():
    # Observed on OpenJDK 17: HashMap with these puts, keySet().
    keys = ["KEYS", "UNIQ_KEY", "CLUSTER", "WAIT", "TAGS"]
    # UNIQ_KEY and CLUSTER share a bucket, where insertion order decides.
    assert hash_map_order(keys) == keys
    assert hash_map_order(["BBBB", "AaAa", "AaBB", "BBAa"]) == ["BBBB", "AaAa", "AaBB", "BBAa"]
    numbers = [0, 119, 84, 7, 154, 21, 175, 42, 112, 63, 133, 14, 35, 196, 56, 91, 147, 168, 105, 70, 126, 203, 77, 98,
               189, 161, 182, 140, 28, 49]
    assert hash_map_order(f"key{i * 7}" for i in range(30)) == [f"key{n}" for n in numbers]


# The `.properties` reader follows the rules of java.util.Properties.

CASES = {
    b"a=b": {"a": "b"},
    b"a = b": {"a": "b"},
    b"a:b": {"a": "b"},
    b"a b": {"a": "b"},
    b"a\tb c": {"a": "b c"},
    b"  a   :   b  ": {"a": "b  "},
    b"a": {"a": ""},
    b"a=": {"a": ""},
    b"=b": {"": "b"},
    b"a==b": {"a": "=b"},
    b"a = : b": {"a": ": b"},
    b"# comment\n! comment\n\n \t\n  # comment\na=1": {"a": "1"},
    b"a=1 # no comment": {"a": "1 # no comment"},
    b"a=1\r\nb=2\rc=3": {"a": "1", "b": "2", "c": "3"},
    b"a=one\\\n   two\\\r\n\tthree": {"a": "onetwothree"},
    b"a=one\\\n# part of it": {"a": "one# part of it"},
    b"a=one\\\n\nb=2": {"a": "one", "b": "2"},
    b"a=one\\\\\nb=2": {"a": "one\\", "b": "2"},
    b"# no continuation \\\na=1": {"a": "1"},
    b"a\\ b=1\nc\\=d=2\ne\\:f=3": {"a b": "1", "c=d": "2", "e:f": "3"},
    b"a=\\t\\n\\r\\f\\\\\\z": {"a": "\t\n\r\f\\z"},
    b"a=\\u00e9\\u4e2d": {"a": "é中"},
    b"a=\\ud83d\\ude00": {"a": "\U0001f600"},
    b"a=caf\xe9": {"a": "café"},
    b"a=1\na=2": {"a": "2"},
    b"a=x\x0cy": {"a": "x\x0cy"},
    b"a=x\x85y\x1cz": {"a": "x\x85y\x1cz"},
    b"namesrvAddr=127.0.0.1:9876;127.0.0.1:9877": {"namesrvAddr": "127.0.0.1:9876;127.0.0.1:9877"},
    b"": {},
    b"\\": {},
    b"a=b\\": {"a": "b"},
}


@pytest.mark.parametrize("data", CASES, ids=repr)
def test_text_reads_as_java_reads_it(data):
    assert java.load(data) == CASES[data]


@pytest.mark.parametrize("data", [b"a=\\u12", b"a=\\u12g4", b"a=1\nb=\\u\n", b"\\u+123=a"])
def test_malformed_unicode_escape_is_an_error_with_its_line(data):
    with pytest.raises(PropertiesError) as raised:
        java.load(data)
    assert raised.value.line == (2 if b"\n" in data else 1)


def test_every_key_has_the_line_that_set_it():
    properties = java.load(b"# c\na=1\nb=2\\\n 3\n\nc=4\na=5")
    assert properties.lines == {"a": 7, "b": 3, "c": 6}


@given(st.binary(max_size=200))
def test_any_bytes_give_properties_or_a_properties_error(data):
    try:
        properties = java.load(data)
    except PropertiesError as error:
        assert error.line >= 1
        return
    assert set(properties.lines) == set(properties)
    assert all(1 <= line <= data.count(b"\n") + data.count(b"\r") + 1 for line in properties.lines.values())


@given(st.dictionaries(st.text(min_size=1, max_size=8), st.text(max_size=12), max_size=5))
def test_escaped_properties_are_read_back(properties):
    text = "".join(f"{java.escape(key, is_key=True)}={java.escape(value)}\n"
                   for key, value in properties.items())
    assert text.isascii()
    assert java.load(text.encode("ascii")) == properties


def test_plain_text_is_not_escaped():
    assert java.escape("/home/x/store;a=b:c d") == "/home/x/store;a=b:c d"


# Classes used in sets and as keys: every difference between two objects makes their hashes differ.


def hashable_dataclasses():
    for room in (rmqha.common, rmqha.remoting, rmqha.namesrv, rmqha.broker):
        for module in pkgutil.walk_packages(room.__path__, room.__name__ + "."):
            for found in vars(importlib.import_module(module.name)).values():
                if (isinstance(found, type) and dataclasses.is_dataclass(found) and found.__module__ == module.name
                        and found.__hash__ is not None and "__hash__" in vars(found) and "__eq__" in vars(found)):
                    yield found


CLASSES = sorted(set(hashable_dataclasses()), key=lambda cls: cls.__qualname__)


def others_than(value, hint):
    """Return values of a field's type that differ from `value`."""
    kinds = (hint, *typing.get_args(hint))
    if any(isinstance(kind, type) and issubclass(kind, enum.Enum) for kind in kinds):
        kind = next(kind for kind in kinds if isinstance(kind, type) and issubclass(kind, enum.Enum))
        return [member for member in kind if member is not value]
    if typing.get_origin(hint) is set:
        return [{1}, {2}] if int in kinds else [{"one"}, {"two"}]
    if bool in kinds:
        return [not value]
    if int in kinds:
        return [(value or 0) + 1, -1, -2]
    return ["one", "two"] if str in kinds else []


def is_sent(cls):
    """Return whether the class can be created without arguments, as every class read from JSON can."""
    return all(field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
               for field in dataclasses.fields(cls))


def test_classes_are_discovered():
    assert {"SubscriptionData", "ConsumerData", "ProducerData", "MessageQueue", "TopicConfig", "Connection",
            "SubscriptionGroupConfig", "DataVersion"} <= {cls.__name__ for cls in CLASSES if is_sent(cls)}


@pytest.mark.parametrize("cls", [cls for cls in CLASSES if is_sent(cls)], ids=lambda cls: cls.__name__)
def test_hash_covers_what_equality_covers(cls):
    hints = typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        if not field.compare or field.metadata.get("secret"):
            continue
        one = cls()
        hashes = {hash(one)}
        if field.name == "subscriptionDataSet":
            values = [{SubscriptionData("one")}, {SubscriptionData("two")}]
        else:
            values = others_than(getattr(one, field.name), hints[field.name])
        assert values, field.name
        for value in values:
            hashes.add(hash(dataclasses.replace(one, **{field.name: value})))
        assert len(hashes) >= len(values), field.name  # Python's hash(-1) equals hash(-2)


def test_settings_with_passwords_have_a_hash_without_them():
    one, other = (TlsSystemConfig(tls_client_key_password=Secret(text)) for text in ("one", "other"))
    assert one != other and hash(one) == hash(other)
    left_out = [(cls.__name__, field.name) for cls in CLASSES for field in dataclasses.fields(cls)
                if field.metadata.get("secret")]
    assert left_out == [("TlsSystemConfig", "tls_server_key_password"), ("TlsSystemConfig", "tls_client_key_password")]


@pytest.mark.parametrize("cls", [cls for cls in CLASSES if is_sent(cls)], ids=lambda cls: cls.__name__)
def test_equal_objects_have_equal_hashes(cls):
    one = cls()
    other = dataclasses.replace(one)
    assert one == other and hash(one) == hash(other)
