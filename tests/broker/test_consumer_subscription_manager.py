"""Subscriptions kept over a restart: which pulls they serve, which members they name, when they end, and the file."""
import contextlib
import json
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqha.broker import consumer_subscription_manager
from rmqha.broker.client.client_channels import ClientChannelInfo, ConsumerGroupInfo
from rmqha.broker.consumer_subscription_manager import ConsumerSubscriptionManager
from rmqha.common import subscriptions, sys_flags
from rmqha.common.protocol import request_code, response_code
from rmqha.common.protocol.admin_headers import (
    GetConsumerListByGroupRequestHeader,
    GetConsumerListByGroupResponseBody,
    UnregisterClientRequestHeader,
)
from rmqha.common.protocol.client_headers import PullMessageRequestHeader
from rmqha.common.subscriptions import ConsumerData, ConsumeType, HeartbeatData, MessageModel, SubscriptionData
from rmqha.remoting.protocol import remoting_serializable
from rmqha.remoting.remoting_client import RemotingClient
from rmqha.remoting.remoting_config import RemotingClientConfig
from rmqha.store.message_store_config import MessageStoreConfig
from tests.broker.support import BrokerHarness, bodies, running_broker
from tests.support.tiers import drawn
from tests.support.wait import wait_until

FILE = "store/config/consumerSubscription.json"
V = 1_700_000_000_000


def of_tags(topic: str, expression: str, version: int, type_: str = "TAG") -> SubscriptionData:
    made = subscriptions.build(topic, expression, type_)
    made.subVersion = version
    return made


others: dict[tuple[str, str], RemotingClient] = {}


@pytest.fixture(autouse=True)
def end_others():
    yield
    while others:
        others.popitem()[1].shutdown()


@pytest.fixture(autouse=True)
def saves_soon(monkeypatch):
    monkeypatch.setattr(consumer_subscription_manager, "_SAVE_AFTER_MS", 50)


@contextlib.contextmanager
def as_member(broker: BrokerHarness, client: str) -> Iterator[None]:
    """Use a member's own connection; "c" has the harness's."""
    before = broker.client
    if client != "c":
        key = (broker.address, client)
        if key not in others:
            others[key] = RemotingClient(RemotingClientConfig())
            others[key].start()
        broker.client = others[key]
    yield
    broker.client = before


def heartbeat(broker: BrokerHarness, *reported: SubscriptionData, group: str = "g", client: str = "c",
              model: MessageModel = MessageModel.CLUSTERING) -> None:
    data = ConsumerData(group, ConsumeType.CONSUME_PASSIVELY, model, subscriptionDataSet=set(reported))
    with as_member(broker, client):
        answer = broker.call(request_code.HEART_BEAT, body=HeartbeatData(client, set(), {data}))
    assert answer.code == response_code.SUCCESS


def pull(broker: BrokerHarness, version: int, topic: str = "T", **fields: object):
    """Pull as a push consumer does, with a version instead of the subscription."""
    given_fields = {"group": "g", "subVersion": version, "subscription": None,
                    "sysFlag": sys_flags.build_pull_sys_flag(False, False, False, False), **fields}
    return broker.pull(topic, 0, **given_fields)


def saved(folder: Path) -> dict:
    """Return the groups in the file."""
    file = folder / FILE
    return json.loads(file.read_text("utf-8"))["groups"] if file.exists() else {}


def saved_versions(folder: Path) -> dict[str, int]:
    """Return the versions of the group's subscription in the file, by client id."""
    return saved(folder)["g"]["subscriptions"]["T"]["versions"] if "g" in saved(folder) else {}


def stock(broker: BrokerHarness) -> None:
    """Store m0 to m4, with the tags a b a b a and a property n."""
    for index in range(5):
        broker.send("T", f"m{index}".encode(), properties={"TAGS": "ab"[index % 2], "n": str(index)})
    assert broker.next_offset("T") == 5


def killed(folder: Path, *reported: SubscriptionData, **fields: object) -> Path:
    """Return the folder of a broker that was killed soon after this heartbeat."""
    with running_broker(folder / "before", enablePropertyFilter=True) as broker:
        stock(broker)
        heartbeat(broker, *reported, **fields)
        wait_until(lambda: "g" in saved(folder / "before"), 60_000, "saved")
        # As a periodic task does, within 10 s.
        broker.controller.consumer_filter_manager.persist()
        shutil.copytree(folder / "before", folder / "after")
        broker.controller.shutdown()  # while its clients are connected
    return folder / "after"


@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
def test_pulls_of_before_are_served_after_a_restart(tmp_path, is_killed):
    folder = killed(tmp_path, of_tags("T", "a", V))
    with running_broker(folder if is_killed else tmp_path / "before") as broker:
        assert bodies(pull(broker, V)) == [b"m0", b"m2", b"m4"]
        assert broker.controller.consumer_manager.get_consumer_group_info("g") is None


@pytest.mark.parametrize("fields", [
    {"version": V + 1}, {"version": V - 1}, {"version": 0}, {"version": -1}, {"version": V, "expressionType": "SQL92"},
    {"version": V, "subscription": "b"}, {"version": V, "group": "other"},
], ids=str)
def test_pull_that_is_not_of_the_kept_subscription_waits_for_the_heartbeat(tmp_path, fields):
    with running_broker(killed(tmp_path, of_tags("T", "a", V))) as broker:
        assert pull(broker, **fields).code == response_code.SUBSCRIPTION_NOT_EXIST
        heartbeat(broker, of_tags("T", "b", V + 1), group=fields.get("group", "g"))
        if fields["version"] == V + 1:
            assert bodies(pull(broker, V + 1)) == [b"m1", b"m3"]


def test_another_topic_of_the_group_is_not_served(tmp_path):
    with running_broker(killed(tmp_path, of_tags("Other", "a", V))) as broker:
        assert pull(broker, V).code == response_code.SUBSCRIPTION_NOT_EXIST


def test_expression_is_kept_with_its_filter(tmp_path):
    folder = killed(tmp_path, of_tags("T", "n > 2", V, "SQL92"))
    with running_broker(folder, enablePropertyFilter=True) as broker:
        assert bodies(pull(broker, V, expressionType="SQL92")) == [b"m3", b"m4"]
        assert pull(broker, V, expressionType="TAG").code == response_code.SUBSCRIPTION_NOT_EXIST


@pytest.mark.parametrize("name, version", [("consumerFilter.json", V + 1), ("consumerFilter.json", V - 1)])
def test_expression_of_another_time_than_its_filter_is_not_served(tmp_path, name, version):
    """The two files are not saved at the same moment."""
    folder = killed(tmp_path, of_tags("T", "n > 2", V, "SQL92"))
    other = killed(tmp_path / "other", of_tags("T", "n > 3", version, "SQL92"))
    shutil.copy(other / "store/config" / name, folder / "store/config" / name)
    with running_broker(folder, enablePropertyFilter=True) as broker:
        code = pull(broker, V, expressionType="SQL92").code
        assert code in (response_code.FILTER_DATA_NOT_EXIST, response_code.FILTER_DATA_NOT_LATEST)


def test_group_that_may_not_broadcast_is_refused(tmp_path):
    folder = killed(tmp_path, of_tags("T", "a", V), model=MessageModel.BROADCASTING)
    with running_broker(folder) as broker:
        assert pull(broker, V).code == response_code.SUCCESS
        broker.controller.subscription_group_manager.find_subscription_group_config("g").consumeBroadcastEnable = False
        assert pull(broker, V).code == response_code.NO_PERMISSION


def test_members_that_subscribed_at_different_times_are_all_served(tmp_path):
    with running_broker(tmp_path / "before") as broker:
        stock(broker)
        heartbeat(broker, of_tags("T", "a", V + 5), client="c")
        heartbeat(broker, of_tags("T", "a", V + 3), client="d")
        heartbeat(broker, of_tags("T", "b", V + 4), client="e")  # overruled by the later ones
        heartbeat(broker, of_tags("T", "a", V + 9), client="f")
        broker.controller.shutdown()
    with running_broker(tmp_path / "before") as broker:
        assert [bodies(pull(broker, V + one)) for one in (3, 5, 9)] == [[b"m0", b"m2", b"m4"]] * 3
        assert pull(broker, V + 4).code == response_code.SUBSCRIPTION_NOT_EXIST
        # The first heartbeat is of the member that has subscribed first; the others have the same subscription.
        heartbeat(broker, of_tags("T", "a", V + 3), client="d")
        assert [bodies(pull(broker, V + one)) for one in (3, 5, 9)] == [[b"m0", b"m2", b"m4"]] * 3
        assert pull(broker, V + 10).code == response_code.SUBSCRIPTION_NOT_LATEST
        broker.controller.shutdown()
    with running_broker(tmp_path / "before") as broker:
        assert [pull(broker, V + one).code for one in (3, 5, 9)] == [response_code.SUCCESS] * 3
        # And here it has another one.
        heartbeat(broker, of_tags("T", "b", V + 4), client="e")
        assert [pull(broker, V + one).code for one in (5, 9)] == [response_code.SUBSCRIPTION_NOT_LATEST] * 2


def test_version_of_two_expressions_proves_nothing(tmp_path):
    with running_broker(tmp_path) as broker:
        heartbeat(broker, of_tags("T", "a", V))
        heartbeat(broker, of_tags("T", "b", V), client="d")
        stock(broker)
        broker.controller.shutdown()
    with running_broker(tmp_path) as broker:
        assert pull(broker, V).code == response_code.SUBSCRIPTION_NOT_EXIST


def list_of(broker: BrokerHarness) -> list[str] | None:
    """Return the members that the broker names; None for an error, after which clients keep their queues."""
    answer = broker.call(request_code.GET_CONSUMER_LIST_BY_GROUP, GetConsumerListByGroupRequestHeader("g"))
    if answer.code != response_code.SUCCESS:
        return None
    return sorted(remoting_serializable.decode(GetConsumerListByGroupResponseBody, answer.body).consumerIdList)


@pytest.fixture
def three(tmp_path):
    """The folder of a broker that was killed while its group had the members c, d and e."""
    with running_broker(tmp_path / "before") as broker:
        stock(broker)
        for version, client in enumerate("cde"):
            heartbeat(broker, of_tags("T", "a", V + version), client=client)
        wait_until(lambda: len(saved_versions(tmp_path / "before")) == 3, 60_000, "saved")
        shutil.copytree(tmp_path / "before", tmp_path / "after")
        broker.controller.shutdown()
    return tmp_path / "after"


def pull_as(broker: BrokerHarness, client: str) -> None:
    with as_member(broker, client):
        assert pull(broker, V + "cde".index(client)).code == response_code.SUCCESS


def test_members_that_pull_are_named_before_their_heartbeats(three):
    with running_broker(three) as broker:
        assert list_of(broker) is None
        for client in "ced":
            assert list_of(broker) is None
            pull_as(broker, client)
        assert list_of(broker) == ["c", "d", "e"]
        heartbeat(broker, of_tags("T", "a", V + 1), client="d")
        assert list_of(broker) == ["c", "d", "e"]
        # A member whose connection ends is gone, with or without its heartbeat, and so is one that unregisters.
        others.pop((broker.address, "e")).shutdown()
        wait_until(lambda: list_of(broker) == ["c", "d"], 60_000, "e gone")
        others.pop((broker.address, "d")).shutdown()
        wait_until(lambda: list_of(broker) == ["c"], 60_000, "d gone")
        broker.call(request_code.UNREGISTER_CLIENT, UnregisterClientRequestHeader("c", None, "g"))
        assert list_of(broker) is None


def test_list_without_some_members_is_given_after_a_while_and_to_those_that_asked(three, monkeypatch):
    """Until then the first heartbeat would make its sender take over the queues of the others."""
    monkeypatch.setattr(consumer_subscription_manager, "GRACE_MS", 3600_000)
    with running_broker(three) as broker:
        heartbeat(broker, of_tags("T", "a", V + 1), client="d")
        pull_as(broker, "c")
        assert list_of(broker) is None
        notified = []
        monkeypatch.setattr(broker.controller.broker2_client, "notify_consumer_ids_changed",
                            lambda channel, group: notified.append(group))
        broker.controller._notify_put_off()
        assert notified == ["g", "g"] and list_of(broker) == ["c", "d"]
        broker.controller._notify_put_off()
        assert len(notified) == 2


def test_member_that_unregisters_is_not_waited_for(three):
    with running_broker(three) as broker:
        heartbeat(broker, of_tags("T", "a", V + 1), client="d")
        pull_as(broker, "c")
        assert list_of(broker) is None
        broker.call(request_code.UNREGISTER_CLIENT, UnregisterClientRequestHeader("e", None, "g"))
        assert list_of(broker) == ["c", "d"]


def test_members_of_one_version_are_named_after_their_heartbeats(tmp_path):
    """Nothing says which of them has sent a pull."""
    with running_broker(tmp_path) as broker:
        stock(broker)
        heartbeat(broker, of_tags("T", "a", V))
        heartbeat(broker, of_tags("T", "a", V), client="d")
        broker.controller.shutdown()
    with running_broker(tmp_path) as broker:
        assert pull(broker, V).code == response_code.SUCCESS and list_of(broker) is None
        heartbeat(broker, of_tags("T", "a", V))
        heartbeat(broker, of_tags("T", "a", V), client="d")
        assert list_of(broker) == ["c", "d"]


def test_all_members_are_notified_of_a_new_one(three, monkeypatch):
    with running_broker(three) as broker:
        notified = []
        monkeypatch.setattr(broker.controller.broker2_client, "notify_consumer_ids_changed",
                            lambda channel, group: notified.append(channel))
        for client in "cde":
            pull_as(broker, client)
        heartbeat(broker, of_tags("T", "a", V + 9), client="f")
        assert len(set(notified)) == len(notified) == 4 and list_of(broker) == ["c", "d", "e", "f"]


def test_first_heartbeat_ends_what_was_kept(tmp_path):
    with running_broker(killed(tmp_path, of_tags("T", "a", V), of_tags("U", "a", V))) as broker:
        heartbeat(broker, of_tags("T", "a", V))
        assert pull(broker, V, topic="U").code == response_code.TOPIC_NOT_EXIST
        broker.send("U")
        assert pull(broker, V, topic="U").code == response_code.SUBSCRIPTION_NOT_EXIST
        header = UnregisterClientRequestHeader("c", None, "g")
        assert broker.call(request_code.UNREGISTER_CLIENT, header).code == response_code.SUCCESS
        assert pull(broker, V).code == response_code.SUBSCRIPTION_NOT_EXIST


def test_groups_that_do_not_come_back_are_dropped(tmp_path, monkeypatch):
    folder = killed(tmp_path, of_tags("T", "a", V))
    monkeypatch.setattr(consumer_subscription_manager, "CHANNEL_EXPIRED_TIMEOUT_MS", -1)
    with running_broker(folder) as broker:
        assert pull(broker, V).code == response_code.SUBSCRIPTION_NOT_EXIST
        broker.controller.consumer_subscription_manager.drop_expired()
        wait_until(lambda: saved(folder) == {}, 60_000, "saved")


def test_group_without_members_is_not_kept(tmp_path):
    with running_broker(tmp_path) as broker:
        heartbeat(broker, of_tags("T", "a", V), group="ended")
        wait_until(lambda: "ended" in saved(tmp_path), 60_000, "saved")
        assert broker.call(request_code.UNREGISTER_CLIENT,
                           UnregisterClientRequestHeader("c", None, "ended")).code == response_code.SUCCESS
        heartbeat(broker, of_tags("T", "a", V))
        wait_until(lambda: set(saved(tmp_path)) == {"g"}, 60_000, "saved")
        broker.controller.shutdown()
    assert set(saved(tmp_path)) == {"g"}


# The file.

WRONG = [b"", b"{", b"\x80\xff", b"[]", b'{"groups":[]}', b'{"groups":{"g":5}}',
         b'{"groups":{"g":{"subscriptions":{"T":{"versions":[1]}}}}}',
         b'{"groups":{"g":{"subscriptions":{"T":{"data":{"topic":"U"}}}}}}',
         b'{"groups":{"g":{"subscriptions":{"T":{"data":{"topic":"T"},"versions":["x"]}}}}}',
         b'{"groups":{"g":{"subscriptions":{"T":{"data":{"topic":"T"},"versions":{"c":"x"}}}}}}', b"[" * 100_000, None]
EMPTY = [b'{}', b'{"groups":{"g":null}}', b'{"groups":{"g":{"subscriptions":{"T":null}}}}',
         b'{"groups":{"g":{"messageModel":"X"}}}']


@pytest.mark.parametrize("content", [*WRONG, *EMPTY], ids=lambda content: repr(content)[:60])
def test_damaged_file_is_ignored_with_a_log_line(tmp_path, caplog, content):
    file = tmp_path / FILE
    if content is None:
        file.mkdir(parents=True)
    else:
        file.parent.mkdir(parents=True)
        file.write_bytes(content)
    with caplog.at_level(logging.INFO, "RocketmqBroker"), running_broker(tmp_path) as broker:
        stock(broker)
        assert pull(broker, V).code == response_code.SUBSCRIPTION_NOT_EXIST
        heartbeat(broker, of_tags("T", "a", V))
        assert bodies(pull(broker, V)) == [b"m0", b"m2", b"m4"]
    lines = [one.getMessage() for one in caplog.records if "consumerSubscription.json" in one.getMessage()]
    assert lines[0].startswith("ignoring " if content in WRONG else "load ")


def test_file_that_is_too_large_is_ignored(tmp_path, monkeypatch, caplog):
    folder = killed(tmp_path, of_tags("T", "a", V))
    for name in ("MAX_FILE_BYTES", "MAX_CHARACTERS"):
        with monkeypatch.context() as patched, caplog.at_level(logging.WARNING, "RocketmqBroker"):
            patched.setattr(consumer_subscription_manager, name, 10)
            manager = manager_of(folder)
            assert manager.load() and manager.encode() == '{"groups":{}}'
    assert sum("ignoring" in record.getMessage() for record in caplog.records) == 2


def manager_of(folder: Path, save_later=lambda _task, _delay_ms: None) -> ConsumerSubscriptionManager:
    return ConsumerSubscriptionManager(MessageStoreConfig(storePathRootDir=str(folder / "store")), save_later)


class Members:
    """Heartbeats of groups for a manager, without a broker."""

    def __init__(self, manager: ConsumerSubscriptionManager) -> None:
        self.manager = manager
        self.groups: dict[str, ConsumerGroupInfo] = {}

    def report(self, group: str, *reported: SubscriptionData, client: str = "c") -> None:
        info = self.groups.setdefault(group, ConsumerGroupInfo(group, ConsumeType.CONSUME_PASSIVELY, None, None))
        info.channel_info_table[client] = ClientChannelInfo(client, client)  # type: ignore[index]  # by any key
        info.update_subscription(reported)
        self.manager.on_heartbeat(info, reported, client)


def test_many_changes_are_saved_once(tmp_path, monkeypatch):
    tasks = []
    manager = manager_of(tmp_path, lambda task, delay_ms: tasks.append((task, delay_ms)))
    monkeypatch.setattr(consumer_subscription_manager, "_SAVE_AFTER_MS", 1000)
    members = Members(manager)
    for number in range(100):
        members.report(f"g{number}", of_tags("T", "*", V + number))
    assert len(tasks) == 1 and tasks[0][1] == 1000
    tasks.pop()[0]()
    assert len(saved(tmp_path)) == 100
    for number in range(100):
        members.report(f"g{number}", of_tags("T", "*", V + number))
    assert not tasks
    members.report("g1", of_tags("T", "*", V))
    assert len(tasks) == 1


def test_table_is_bounded(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(consumer_subscription_manager, "MAX_CHARACTERS", 3000)
    monkeypatch.setattr(consumer_subscription_manager, "MAX_MEMBERS", 3)
    manager = manager_of(tmp_path)
    members = Members(manager)
    with caplog.at_level(logging.WARNING, "RocketmqBroker"):
        for number in range(50):
            members.report(f"g{number}", of_tags("T", "*", V))
    count = len(json.loads(manager.encode())["groups"])
    assert 5 < count < 12 and sum("too many subscriptions" in one.getMessage() for one in caplog.records) == 1
    manager.on_unregistered("g0")
    for number in range(10):
        members.report("g1", of_tags("T", "*", V + number), client=f"c{number}")
    assert json.loads(manager.encode())["groups"]["g1"]["subscriptions"]["T"]["versions"] \
        == {"c7": V + 7, "c8": V + 8, "c9": V + 9}
    for number in range(50):
        manager.on_unregistered(f"g{number}")
    assert manager._characters == 0


def test_members_that_have_left_are_forgotten(tmp_path):
    with running_broker(tmp_path) as broker:
        for version, client in enumerate("cd"):
            heartbeat(broker, of_tags("T", "a", V + version), client=client)
        others.pop((broker.address, "d")).shutdown()
        heartbeat(broker, of_tags("T", "a", V))
        wait_until(lambda: list_of(broker) == ["c"], 60_000, "d gone")
        heartbeat(broker, of_tags("T", "a", V))
        wait_until(lambda: saved_versions(tmp_path) == {"c": V}, 60_000, "saved")


# Any sequence of heartbeats and restarts: a pull that is served before the first heartbeat is served by its own
# consumer's subscription.

_EXPRESSIONS = ("*", "a", "b", "a || b")
_STEP = st.one_of(
    st.tuples(st.just("report"), st.sampled_from("gh"), st.integers(0, 4), st.sampled_from(_EXPRESSIONS)),
    st.tuples(st.just("report"), st.sampled_from("gh"), st.integers(0, 4), st.none()),
    st.tuples(st.just("leave"), st.sampled_from("gh")), st.tuples(st.just("restart")))


@settings(max_examples=drawn(300), deadline=None)
@given(steps=st.lists(_STEP, max_size=30))
def test_pull_is_served_by_the_consumers_own_subscription_or_not_at_all(tmp_path_factory, steps):
    folder = tmp_path_factory.mktemp("kept")
    manager = manager_of(folder)
    members, clock = Members(manager), V
    own: dict[tuple[str, int], SubscriptionData] = {}  # of each member of each group
    ever: dict[tuple[str, int], str | None] = {}  # by group and version
    for step, *arguments in steps:
        if step == "report":
            group, member, expression = arguments
            if expression is not None:  # None: the same again
                clock += 1
                own[group, member] = of_tags("T", expression, clock)
                ever[group, clock] = expression
            if (group, member) in own:
                members.report(group, own[group, member], client=str(member))
        elif step == "leave":
            members.groups.pop(arguments[0], None)
            manager.on_unregistered(arguments[0])
            own = {key: one for key, one in own.items() if key[0] != arguments[0]}
        else:
            manager.shutdown()
            manager = manager_of(folder)
            assert manager.load()
            members = Members(manager)
        for (group, version), expression in ever.items():
            header = PullMessageRequestHeader(consumerGroup=group, topic="T", subVersion=version)
            kept = manager.of_pull(header)
            if kept is not None:
                assert group not in members.groups
                assert kept.find_subscription_data("T").subString == expression
            info = members.groups.get(group)
            if info is not None and manager.is_same(header, info.subscription_table["T"]):
                assert info.subscription_table["T"].subString == expression
