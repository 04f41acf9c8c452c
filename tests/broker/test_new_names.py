"""Requests with hundreds of new names for each request code leave nothing behind, or no more than the limits here
allow."""
import json
import logging
from collections import Counter
from pathlib import Path

import pytest

from rmqha.broker import consumer_offset_manager, subscription_group_manager, topic_config_manager
from rmqha.broker.client import consumer_manager, producer_manager, rebalance_lock_manager
from rmqha.common.topics import is_system_topic
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.remoting.remoting_client import RemotingClient
from rmqha.remoting.remoting_config import RemotingClientConfig
from tests.interop.request_code_cases import BROKER_CODES, CLIENT, GROUP, ONLINE, PRODUCERS, TOPIC, Code, Field
from tests.support.tiers import in_all
from tests.support.wait import wait_until
from tests.support.watch import names_kept, own_objects

pytestmark = in_all

NAMES = 150  # new ones for each code
LIMIT = 40  # of each kind that is created on purpose
# Objects of one type that may remain (caches, pool threads); fewer than one for each name.
KEPT_OBJECTS = 120
# The names of the last request, and everything derived from them.
KEPT_NAMES = 5
# Each code's tables that grow by design, each up to LIMIT; the tables of connections and locks shrink with those.
GROUPS, TOPICS, ONLINE_GROUPS, LOCKS, OFFSETS = "groups", "topics", "online", "locks", "offsets"
MADE = {
    10: {TOPICS}, 310: {TOPICS}, 320: {TOPICS}, 324: {TOPICS}, 325: {TOPICS},
    36: {GROUPS, TOPICS}, 11: {GROUPS}, 34: {GROUPS, TOPICS, ONLINE_GROUPS}, 41: {LOCKS}, 15: {OFFSETS},
    314: {OFFSETS}, 17: {TOPICS}, 200: {GROUPS},
}
# Not sent: these end the fixtures' state or the process's settings, and create nothing.
LEFT_OUT = {25, 50, 51, 53}


def table_sizes(controller) -> dict[str, int]:
    """Return the sizes of all tables that requests fill."""
    store, stats = controller.message_store, controller.broker_stats_manager
    consumers, producers = controller.consumer_manager, controller.producer_manager
    locks, pulls = controller.rebalance_lock_manager, controller.pull_request_hold_service
    offsets, filters = controller.consumer_offset_manager, controller.consumer_filter_manager
    return {
        "queues": sum(1 for queue in store.all_consume_queues()),
        "queue tables": len(store.consume_queue_table),
        "folders": sum(1 for _path in Path(store.get_store_path_logic()).rglob("*")),
        # The broker creates its own system topics again when it needs them.
        TOPICS: sum(not is_system_topic(topic) for topic in list(controller.topic_config_manager.topic_config_table)),
        GROUPS: len(controller.subscription_group_manager.subscription_group_table),
        OFFSETS: sum(map(len, list(offsets.offset_table.values()))),
        "offset tables": len(offsets.offset_table),
        ONLINE_GROUPS: len(consumers._consumer_table) + len(consumers._held),
        "producers": len(producers.group_channel_table) + len(producers._client_channel_table)
        + len(producers._groups_of_channel),
        LOCKS: sum(map(len, list(locks._mq_lock_table.values()))),
        "lock tables": len(locks._mq_lock_table),
        "held pulls": len(pulls.pull_request_table) + len(pulls._held),
        "filters": sum(len(one.groupFilterData) for one in list(filters.filter_data_by_topic.values()))
        + len(filters.filter_data_by_topic),
        "counters": sum(len(one._stats_item_table) for one in stats.stats_table.values())
        + len(stats.moment_stats_item_set_fall_size.stats_item_table)
        + len(stats.moment_stats_item_set_fall_time.stats_item_table),
        "calls": len(controller.remoting_server.response_table),
    }


def mark(code: Code) -> str:
    """Return the part that all new names for a code share."""
    return f"-new{code.number}-"


def with_new_names(code: Code, number: int) -> tuple[dict[str, str], bytes]:
    """Return fields and body of a valid request, its names replaced by new ones."""
    suffix = f"{mark(code)}{number}"
    known = {TOPIC, GROUP, ONLINE, PRODUCERS, CLIENT, "broker-a"}
    fields = {name: _filled(value, suffix) for name, value in code.fields.items()}
    if code.number in (15, 314):
        # A topic that does not exist gets no offset at all.
        fields["topic"] = "Known"
    if code.number == 314:
        fields["srcGroup"] = GROUP
    if code.body[:1] != b"{":
        return fields, code.body

    def renamed(value: object) -> object:
        if isinstance(value, dict):
            return {key: renamed(one) for key, one in value.items()}
        if isinstance(value, list):
            return list(map(renamed, value))
        return value + suffix if value in known or "{n}" in str(value) else value

    return fields, json.dumps(renamed(json.loads(code.body))).replace("{n}", "n").encode()


def _filled(field: Field, suffix: str) -> str:
    if "unknown" in field.wrong or "of nobody" in field.wrong:
        return field.right.replace("{n}", "") + suffix
    return field.right if field.right[:1] != "{" else "0"


def flood(broker, codes: list[Code], names: range) -> None:
    """Send each code with a new name for each number, on one connection that is then closed."""
    client = RemotingClient(RemotingClientConfig())
    client.start()
    try:
        for number in names:
            for code in codes:
                fields, body = with_new_names(code, number)
                request = RemotingCommand.create_request_command(code.number)
                request.ext_fields, request.body = fields, body or None
                # These may give no answer.
                if code.number in (37, 52):
                    client.invoke_oneway(broker.address, request, 60_000)
                else:
                    client.invoke_sync(broker.address, request, 60_000)
    finally:
        client.shutdown()


def left_objects(broker, before: Counter[type]) -> bool:
    """Return whether many more of our objects remain, even after the connection's end must have been noticed."""
    try:
        wait_until(lambda: all(count < KEPT_OBJECTS for count in (own_objects(broker) - before).values()), 60_000)
    except AssertionError:
        return True
    return False


def left_objects_again(broker, code: Code, names: range) -> bool:
    """Return whether another flood of new names leaves objects behind."""
    before = own_objects(broker)
    flood(broker, [code], names)
    return left_objects(broker, before)


@pytest.fixture(scope="module")
def stocked(shared_broker):
    """A broker with a topic `Known` and an offset in it."""
    shared_broker.send("Known")
    shared_broker.next_offset("Known")
    shared_broker.controller.consumer_offset_manager.commit_offset("addr", GROUP, "Known", 0, 1)
    return shared_broker


@pytest.fixture
def broker(stocked, monkeypatch):
    """The broker with low limits."""
    controller = stocked.controller
    topics = controller.topic_config_manager.topic_config_table
    groups = controller.subscription_group_manager.subscription_group_table
    monkeypatch.setattr(topic_config_manager, "MAX_AUTO_CREATED_TOPICS", len(topics) + LIMIT)
    monkeypatch.setattr("rmqha.broker.processor.admin_topic_handlers.MAX_TOPICS", len(topics) + LIMIT)
    monkeypatch.setattr(subscription_group_manager, "MAX_AUTO_CREATED_GROUPS", len(groups) + LIMIT)
    monkeypatch.setattr("rmqha.broker.processor.admin_group_handlers.MAX_GROUPS", len(groups) + LIMIT)
    monkeypatch.setattr(consumer_offset_manager, "MAX_UNKNOWN_GROUPS",
                        len(controller.consumer_offset_manager._of_unknown_groups) + LIMIT)
    monkeypatch.setattr(rebalance_lock_manager, "MAX_LOCKS", LIMIT)
    monkeypatch.setattr(consumer_manager, "MAX_GROUPS_OF_CHANNEL", LIMIT)
    monkeypatch.setattr(producer_manager, "MAX_GROUPS_OF_CHANNEL", LIMIT)
    # pytest keeps every line.
    logging.disable(logging.CRITICAL)
    yield stocked
    logging.disable(logging.NOTSET)


def _expire_locks(controller, monkeypatch) -> None:
    monkeypatch.setattr(rebalance_lock_manager, "REBALANCE_LOCK_MAX_LIVE_TIME_MS", -1)
    controller.rebalance_lock_manager.remove_expired()


@pytest.mark.parametrize("code", [one for one in BROKER_CODES if one.number not in LEFT_OUT],
                         ids=lambda code: f"{code.number}-{code.name}")
def test_new_names_leave_only_what_is_created_by_design(broker, monkeypatch, code):
    controller = broker.controller
    flood(broker, [code], range(20))
    before = table_sizes(controller)
    objects = own_objects(broker)
    flood(broker, [code], range(NAMES))
    _expire_locks(controller, monkeypatch)
    controller.pull_request_hold_service.check_hold_request()
    allowed = MADE.get(code.number, set()) - {LOCKS, ONLINE_GROUPS}

    def grown() -> dict[str, int]:
        now = table_sizes(controller)
        return {name: size - before[name] for name, size in now.items() if size > before[name]}

    wait_until(lambda: not any(name in grown() for name in (ONLINE_GROUPS, "producers", "calls")), 60_000,
               "the connection's tables to be empty")
    if not allowed:
        assert not grown()
        wait_until(lambda: len(names_kept(mark(code), broker)) < KEPT_NAMES, 60_000, f"{code.name} forgets the names")
        # Other threads of ours may create objects during one flood or two.
        assert not (left_objects(broker, objects) and all(left_objects_again(broker, code, range(first, first + NAMES))
                                                  for first in (NAMES, 2 * NAMES)))
    elif allowed == {OFFSETS}:
        assert set(grown()) == {OFFSETS, "offset tables"} and max(grown().values()) <= LIMIT
    # Messages sent to the new topics create their queues, and counters.
    else:
        assert max(grown().get(name, 0) for name in (TOPICS, GROUPS)) <= LIMIT
        assert set(grown()) <= allowed | {"queues", "queue tables", "folders", "counters"}
        assert max(grown().values()) <= LIMIT * 6
