"""Headers: the fields, types and marks of a real RocketMQ's classes."""
import dataclasses
import importlib
import pkgutil

import pytest

import rmqha.common.protocol
from rmqha.common.protocol.admin_headers import CreateTopicRequestHeader
from rmqha.common.protocol.client_headers import (
    CheckTransactionStateResponseHeader,
    EndTransactionRequestHeader,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
)
from rmqha.common.protocol.command_custom_header import (
    INTEGER,
    LONG,
    CommandCustomHeader,
    HeaderFieldError,
    RpcRequestHeader,
    not_null_names,
)
from rmqha.common.protocol.namesrv_headers import GetRouteInfoRequestHeader
from rmqha.common.sys_flags import TopicFilterType
from tests.common.model_golden import golden

GOLDEN = {name.rsplit(".", 1)[1]: fields for name, fields in golden("headers").items()}
# 4.9.7 has these, 4.9.8 has not.
ONLY_IN_497 = {"GetBrokerClusterAclConfigResponseBody", "GetBrokerClusterAclConfigResponseHeader"}
# 5.1.4's headers, and rmqha's own beside them, are tested beside the brokers that send them.
OF_514 = {"rmqha.common.protocol.controller_headers"}
OF_ROLES = {"NotifyBrokerRoleChangedRequestHeader", "HandoverMasterRequestHeader", "HandoverMasterResponseHeader"}
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
    """The fields of a header as the capture writes them, but without Java's boxing."""
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


# Java has them, and nothing in 4.9 sends them.
OF_FILTER_SERVERS = {"RegisterFilterServerRequestHeader", "RegisterFilterServerResponseHeader",
                     "RegisterMessageFilterClassRequestHeader"}


def test_all_headers_are_there():
    of_49 = {name for name, kind in CLASSES.items() if kind.__module__ not in OF_514} - OF_ROLES
    assert of_49 == set(GOLDEN) - ONLY_IN_497 - {BODY} - OF_FILTER_SERVERS


@pytest.mark.parametrize("name", sorted(set(CLASSES) & set(GOLDEN)))
def test_header_fields_are_javas(name):
    assert java_form(CLASSES[name]) == captured_form(GOLDEN[name])


@pytest.mark.parametrize("name", sorted(set(CLASSES) & set(GOLDEN)))
def test_header_defaults_are_javas(name):
    header = CLASSES[name]()
    for text in GOLDEN[name]:
        declared, _, default = text.partition(" = ")
        value = getattr(header, declared.split(" ")[1])
        assert (str(value).lower() if value is not None else "") == default, declared


def test_fields_stand_in_javas_order():
    names = [field.name for field in dataclasses.fields(SendMessageRequestHeaderV2)]
    assert names == ["bname", *"abcdefghijklmn"]
    assert SendMessageRequestHeader("g", "t").topic == "t"


def test_v2_and_v1_are_the_same_request():
    v1 = SendMessageRequestHeader("g", "t", "d", 1, 2, 3, 4, 5, "p", 6, True, True, 7, bname="b")
    v2 = SendMessageRequestHeaderV2(a="g", b="t", c="d", d=1, e=2, f=3, g=4, h=5, i="p", j=6, k=True, l=7, m=True,
                                    n="b")
    assert SendMessageRequestHeaderV2.create_send_message_request_header_v1(v2) == v1


def test_missing_fields_are_named():
    assert not_null_names(GetRouteInfoRequestHeader) == ("topic",)
    assert not_null_names(RpcRequestHeader) == ()


def test_filter_type_must_be_one():
    header = CreateTopicRequestHeader("t", "d", 1, 1, 6, "SINGLE_TAG")
    header.check_fields()
    assert header.topic_filter_type_enum is TopicFilterType.SINGLE_TAG
    header.topicFilterType = "ANY"
    with pytest.raises(HeaderFieldError, match="ANY"):
        header.check_fields()


@pytest.mark.parametrize("outcome", [0, 8, 12])
def test_transactions_end_in_three_ways(outcome):
    EndTransactionRequestHeader(commitOrRollback=outcome).check_fields()


@pytest.mark.parametrize("header", [EndTransactionRequestHeader(commitOrRollback=4),
                                    EndTransactionRequestHeader(),
                                    CheckTransactionStateResponseHeader(commitOrRollback=0)])
def test_other_outcomes_are_refused(header):
    with pytest.raises(HeaderFieldError, match="commitOrRollback"):
        header.check_fields()
