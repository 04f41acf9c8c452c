"""What lands in sets and keys: whatever makes two of them different makes their hashes different."""
import dataclasses
import enum
import importlib
import pkgutil
import typing

import pytest

import rmqha.broker
import rmqha.common
import rmqha.namesrv
import rmqha.remoting
from rmqha.common.subscriptions import SubscriptionData
from rmqha.common.texts import Secret
from rmqha.remoting.tls_system_config import TlsSystemConfig


def hashable_dataclasses():
    for room in (rmqha.common, rmqha.remoting, rmqha.namesrv, rmqha.broker):
        for module in pkgutil.walk_packages(room.__path__, room.__name__ + "."):
            for found in vars(importlib.import_module(module.name)).values():
                if (isinstance(found, type) and dataclasses.is_dataclass(found) and found.__module__ == module.name
                        and found.__hash__ is not None and "__hash__" in vars(found) and "__eq__" in vars(found)):
                    yield found


CLASSES = sorted(set(hashable_dataclasses()), key=lambda cls: cls.__qualname__)


def others_than(value, hint):
    """Values of a field's type that differ from `value`."""
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
    """Whether it can be made without arguments: all that is read from JSON can."""
    return all(field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
               for field in dataclasses.fields(cls))


def test_classes_are_found():
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
        assert len(hashes) >= len(values), field.name  # -1 and -2 are one to Python


def test_settings_with_passwords_have_a_hash_without_them():
    one, other = (TlsSystemConfig(tls_client_key_password=Secret(text)) for text in ("one", "other"))
    assert one != other and hash(one) == hash(other)
    left_out = [(cls.__name__, field.name) for cls in CLASSES for field in dataclasses.fields(cls)
                if field.metadata.get("secret")]
    assert left_out == [("TlsSystemConfig", "tls_server_key_password"), ("TlsSystemConfig", "tls_client_key_password")]


@pytest.mark.parametrize("cls", [cls for cls in CLASSES if is_sent(cls)], ids=lambda cls: cls.__name__)
def test_equal_ones_have_equal_hashes(cls):
    one = cls()
    other = dataclasses.replace(one)
    assert one == other and hash(one) == hash(other)
