"""Each request code of a name server asked with many new names: what stays is limited, and goes with its connection."""
import json
import logging
from types import SimpleNamespace

import pytest

from rmqha.common.protocol import request_code
from rmqha.namesrv import kv_config_manager, registrations
from rmqha.remoting.exception import RemotingCommandException
from tests.interop.request_code_cases import NAMESRV_CODES
from tests.namesrv.test_default_request_processor import (  # noqa: F401, the fixtures
    BROKER,
    CHANNEL,
    ask,
    controller,
    register,
    registration,
)
from tests.support.kept import names_kept, own_objects

NAMES, LIMIT = 200, 30
KEPT_OBJECTS = 100
MARK = f"-new{LIMIT}-"  # in all new names, and in no text else
PLACE = ("brokerName", "brokerAddr", "clusterName")
RENAMED = ("namespace", "key", *PLACE)


def table_sizes(controller) -> dict[str, int]:
    """Entries of all tables."""
    routes, kv = controller.route_info_manager, controller.kv_config_manager
    return {name: len(getattr(routes, name)) for name in (
        "_topic_queue_table", "_broker_addr_table", "_cluster_addr_table", "_broker_live_table",
        "_filter_server_table")} | {
        "places": sum(len(places) for _channel, places in routes._limits._places.values()),
        "topics": sum(map(len, routes._limits._topics.values())), "departed": len(routes._departed._gone),
        "namespaces": len(kv._config_table), "keys": sum(map(len, kv._config_table.values()))}


def flood(ask, code, names: range) -> int:
    """Ask with a new name for each number; how many were refused."""
    refused = 0
    for number in names:
        fields = {name: f"{field.right}{MARK}{number}" if "unknown" in field.wrong or name in RENAMED else field.right
                  for name, field in code.fields.items()}
        body = code.body.replace(b"{n}", f"{MARK}{number}".encode()) or None
        if code.number == request_code.UPDATE_NAMESRV_CONFIG:
            body = f"nobody{MARK}{number}=1\n".encode()
        try:
            ask(code.number, body, **{**fields, **({"bodyCrc32": 0} if "bodyCrc32" in fields else {})})
        except RemotingCommandException:
            refused += 1
    return refused


def left_objects(ask, code, controller, names: range) -> bool:
    """Whether a flood of new names left objects of ours."""
    before = own_objects(controller)
    flood(ask, code, names)
    return any(count >= KEPT_OBJECTS for count in (own_objects(controller) - before).values())


@pytest.fixture
def silent():
    """No lines of the log, which pytest would keep."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.usefixtures("silent")
@pytest.mark.parametrize("code", NAMESRV_CODES, ids=lambda code: f"{code.number}-{code.name}")
def test_new_names_leave_nothing_but_what_is_limited(ask, controller, monkeypatch, code):
    monkeypatch.setattr(registrations, "MAX_PLACES_OF_CHANNEL", LIMIT)
    monkeypatch.setattr(kv_config_manager, "MAX_CHARACTERS", LIMIT * 200)
    register(ask, "T")
    flood(ask, code, range(3))
    before = table_sizes(controller)
    refused = flood(ask, code, range(NAMES))
    grown = {name: size - before[name] for name, size in table_sizes(controller).items() if size > before[name]}
    if code.number == request_code.PUT_KV_CONFIG:
        assert refused and set(grown) == {"namespaces", "keys"} and max(grown.values()) <= 3 * LIMIT
    elif code.number == request_code.REGISTER_BROKER:
        assert refused >= NAMES - LIMIT and max(grown.values()) <= LIMIT
    else:
        assert not grown
        assert not names_kept(MARK, controller)
        # other threads of ours may make objects in one flood or two
        assert not all(left_objects(ask, code, controller, range(first, first + NAMES))
                       for first in (NAMES, 2 * NAMES, 3 * NAMES))
    controller.route_info_manager.on_channel_destroy("127.0.0.1:40000", CHANNEL)
    gone = {name: size for name, size in table_sizes(controller).items()
            if name not in ("namespaces", "keys", "departed")}
    assert not any(gone.values()), gone


def test_values_of_a_full_kv_config_can_still_be_changed_and_deleted(ask, controller, monkeypatch):
    monkeypatch.setattr(kv_config_manager, "MAX_CHARACTERS", 300)
    ask(request_code.PUT_KV_CONFIG, namespace="n", key="k", value="v" * 100)
    with pytest.raises(RemotingCommandException, match="characters already"):
        ask(request_code.PUT_KV_CONFIG, namespace="n", key="other", value="v" * 100)
    assert ask(request_code.PUT_KV_CONFIG, namespace="n", key="k", value="w" * 90).code == 0
    assert ask(request_code.DELETE_KV_CONFIG, namespace="n", key="k").code == 0
    assert controller.kv_config_manager._size == 0 and not controller.kv_config_manager._config_table


def test_deleting_what_is_not_there_writes_no_file(ask, tmp_path):
    ask(request_code.DELETE_KV_CONFIG, namespace="n", key="k")
    assert not (tmp_path / "kvConfig.json").exists()


def test_broker_with_too_many_topics_is_refused_and_keeps_those_it_has(ask, controller, monkeypatch):
    monkeypatch.setattr(registrations, "MAX_TOPICS_OF_BROKER", 3)
    register(ask, "A", "B")
    body = json.dumps({"filterServerList": [], "topicConfigSerializeWrapper": {
        "dataVersion": {"counter": 9, "timestamp": 9},
        "topicConfigTable": {name: {"topicName": name} for name in "CDE"}}}).encode()
    with pytest.raises(registrations.RegistrationError, match="too many"):
        ask(request_code.REGISTER_BROKER, body, **BROKER)
    assert set(controller.route_info_manager._topic_queue_table) == {"A", "B"}
    assert ask(request_code.DELETE_TOPIC_IN_NAMESRV, topic="A").code == 0
    assert controller.route_info_manager._limits.topics_of("broker-a") == ["B"]


def test_names_of_brokers_and_topics_have_a_length(ask, controller):
    for field in PLACE + ("haServerAddr",):
        with pytest.raises(registrations.RegistrationError, match="256 characters"):
            register(ask, "T", **{field: "n" * 256})
    with pytest.raises(registrations.RegistrationError, match="300 characters"):
        register(ask, "t" * 300)
    assert not controller.route_info_manager._broker_addr_table


def test_unregistering_under_a_wrong_name_leaves_no_broker_that_never_expires(ask, controller):
    register(ask, "T")
    ask(request_code.UNREGISTER_BROKER, brokerName="other", brokerAddr=BROKER["brokerAddr"], clusterName="c1",
        brokerId=0)
    routes = controller.route_info_manager
    assert set(routes._broker_live_table) == {BROKER["brokerAddr"]}
    routes._clock = lambda: 1 << 60
    assert routes.scan_not_active_broker() == 1
    assert not routes._broker_addr_table and not routes._topic_queue_table


def test_broker_that_was_in_two_clusters_leaves_both(ask, controller):
    register(ask, "T")
    register(ask, "T", clusterName="c2")
    channel = SimpleNamespace()
    controller.route_info_manager.on_channel_destroy(BROKER["brokerAddr"], channel)
    assert not controller.route_info_manager._cluster_addr_table
