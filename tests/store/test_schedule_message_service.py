"""Delivery of delayed messages: levels, progress, restarts, and asynchronous delivery."""
import json
import logging
import os
import threading
from collections import deque

import pytest

from rmqha.common.broker_config import BrokerConfig
from rmqha.common.futures import Completable
from rmqha.common.message import message_const
from rmqha.common.message.message_decoder import message_properties2string
from rmqha.common.threads import ScheduledService
from rmqha.common.topics import RMQ_SYS_SCHEDULE_TOPIC, RMQ_SYS_TRANS_HALF_TOPIC
from rmqha.common.util_all import current_time_millis
from rmqha.store import delay_levels, schedule_message_service
from rmqha.store.append import MessageExtBrokerInner
from rmqha.store.default_message_store import DefaultMessageStore
from rmqha.store.message_store_config import BrokerRole, MessageStoreConfig
from rmqha.store.results import PutMessageResult, PutMessageStatus
from tests.support.wait import wait_until


@pytest.fixture(autouse=True)
def short_times(monkeypatch):
    monkeypatch.setattr(schedule_message_service, "FIRST_DELAY_TIME_MS", 10)
    monkeypatch.setattr(schedule_message_service, "DELAY_FOR_A_WHILE_MS", 10)
    # 1 ms instead of 1 s, so that level 1 is due after 100 ms.
    monkeypatch.setattr(delay_levels, "_TIME_UNITS_MS", {"s": 1, "m": 60, "h": 3600, "d": 86400})


def make_store(root, **keys) -> DefaultMessageStore:
    config = MessageStoreConfig()
    values = {"storePathRootDir": str(root), "storePathCommitLog": f"{root}/commitlog", "haListenPort": 0,
              "mappedFileSizeCommitLog": 1 << 20, "mappedFileSizeConsumeQueue": 20 * 1000, "maxHashSlotNum": 100,
              "maxIndexNum": 400, "brokerRole": BrokerRole.ASYNC_MASTER, "messageDelayLevel": "100s 1000s 1h", **keys}
    for key, value in values.items():
        assert hasattr(config, key), key
        setattr(config, key, value)
    return DefaultMessageStore(config, None, None, BrokerConfig())


@pytest.fixture
def store(tmp_path):
    store = make_store(tmp_path / "store")
    assert store.load()
    store.start()
    yield store
    store.shutdown()


def message(level: int | None, body: bytes = b"body", topic: str = "T", **properties: str) -> MessageExtBrokerInner:
    msg = MessageExtBrokerInner(topic, body)
    msg.queue_id = 2
    msg.tags = "tag"
    msg.keys = "key"
    msg.properties.update(properties)
    if level is not None:
        msg.delay_time_level = level
    msg.born_timestamp = current_time_millis()
    msg.born_host, msg.store_host = ("10.1.2.3", 4567), ("10.1.2.4", 10911)
    msg.properties_string = message_properties2string(msg.properties)
    return msg


def put(store, msg) -> None:
    assert store.put_message(msg).put_message_status is PutMessageStatus.PUT_OK


def delivered(store, topic: str = "T", queue_id: int = 2) -> list:
    found = []
    for index in range(store.get_max_offset_in_queue(topic, queue_id)):
        offset = store.get_commit_log_offset_in_queue(topic, queue_id, index)
        found.append(store.look_message_by_offset(offset))
    return found


def test_message_is_delivered_when_it_is_due(store):
    began = current_time_millis()
    put(store, message(1))
    (msg,) = wait_until(lambda: delivered(store))
    assert msg.store_timestamp - began >= 100
    assert (msg.topic, msg.queue_id, msg.body, msg.tags, msg.keys) == ("T", 2, b"body", "tag", "key")
    assert msg.born_host == ("10.1.2.3", 4567)


def test_delivered_record_still_carries_its_delay_properties(store):
    """RocketMQ does the same: it encodes the properties before it clears DELAY, and sets WAIT afterwards."""
    put(store, message(1))
    (msg,) = wait_until(lambda: delivered(store))
    assert msg.properties[message_const.PROPERTY_DELAY_TIME_LEVEL] == "1"
    assert msg.properties[message_const.PROPERTY_REAL_TOPIC] == "T"
    assert msg.properties[message_const.PROPERTY_REAL_QUEUE_ID] == "2"
    assert message_const.PROPERTY_WAIT_STORE_MSG_OK not in msg.properties


def test_levels_do_not_wait_for_each_other_and_each_is_in_order(store):
    put(store, message(3, b"last"))
    for number in range(5):
        put(store, message(2, b"2-%d" % number))
        put(store, message(1, b"1-%d" % number))
    wait_until(lambda: len(delivered(store)) == 10)
    bodies = [msg.body for msg in delivered(store)]
    assert [body for body in bodies if body.startswith(b"1-")] == [b"1-%d" % number for number in range(5)]
    assert [body for body in bodies if body.startswith(b"2-")] == [b"2-%d" % number for number in range(5)]
    assert bodies[0] == b"1-0"


def test_a_long_backlog_does_not_block_other_levels(store, monkeypatch):
    monkeypatch.setattr(schedule_message_service, "_MAX_TURN_MS", 0)
    for number in range(50):
        put(store, message(1, b"%d" % number))
    put(store, message(1, b"other", topic="U"))
    wait_until(lambda: len(delivered(store)) == 50)
    assert [msg.body for msg in delivered(store)] == [b"%d" % number for number in range(50)]
    wait_until(lambda: delivered(store, "U"))


def test_progress_is_saved_and_nothing_is_delivered_twice_after_a_restart(store, tmp_path):
    for number in range(3):
        put(store, message(1, b"%d" % number))
    wait_until(lambda: len(delivered(store)) == 3)
    # The progress is counted after the put.
    wait_until(lambda: progress(store) == 3)
    stats: dict[str, str] = {}
    store.schedule_message_service.build_running_stats(stats)
    assert stats == {"scheduleMessageOffset_1": "3,3"}
    store.shutdown()
    saved = (tmp_path / "store/config/delayOffset.json").read_text()
    assert saved.replace("\n", "").replace("\t", "") == '{"offsetTable":{1:3}}'
    again = make_store(tmp_path / "store")
    assert again.load()
    again.start()
    try:
        put(again, message(1, b"3"))
        wait_until(lambda: len(delivered(again)) >= 4)
        assert [msg.body for msg in delivered(again)] == [b"0", b"1", b"2", b"3"]
    finally:
        again.shutdown()


def test_file_of_rocketmq_is_read(tmp_path):
    folder = tmp_path / "store/config"
    os.makedirs(folder)
    (folder / "delayOffset.json").write_text('{\n\t"offsetTable":{1:0,2:17\n\t}\n}')
    store = make_store(tmp_path / "store")
    assert store.load()
    try:
        service = store.schedule_message_service
        # 17 is beyond the empty queue.
        assert service.offset_table == {1: 0, 2: 0}
        assert json.loads(service.encode().replace("{1:", '{"1":').replace(",2:", ',"2":')) == {
            "offsetTable": {"1": 0, "2": 0}}
    finally:
        store.shutdown()


@pytest.mark.parametrize("offset", [99, -5])
def test_progress_outside_the_queue_is_corrected(store, tmp_path, offset):
    put(store, message(1))
    wait_until(lambda: delivered(store))
    store.shutdown()
    (tmp_path / "store/config/delayOffset.json").write_text('{"offsetTable":{1:%d}}' % offset)
    again = make_store(tmp_path / "store")
    assert again.load()
    try:
        assert again.schedule_message_service.offset_table[1] == (1 if offset > 0 else 0)
    finally:
        again.shutdown()


def test_slave_does_not_deliver_and_saves_no_progress(tmp_path):
    store = make_store(tmp_path / "store", brokerRole=BrokerRole.SLAVE)
    assert store.load()
    store.start()
    assert not store.schedule_message_service.is_started
    store.shutdown()
    assert not os.path.exists(tmp_path / "store/config/delayOffset.json")


def test_promoted_slave_resumes_at_the_masters_progress(tmp_path):
    first = make_store(tmp_path / "store", messageDelayLevel="1d")
    assert first.load()
    first.start()
    for number in range(4):
        put(first, message(1, b"%d" % number))
    wait_until(lambda: first.get_max_offset_in_queue(RMQ_SYS_SCHEDULE_TOPIC, 0) == 4)
    first.shutdown()
    promoted = make_store(tmp_path / "store", brokerRole=BrokerRole.SLAVE)
    assert promoted.load()
    promoted.start()
    try:
        # The progress that was meanwhile copied from the master.
        (tmp_path / "store/config/delayOffset.json").write_text('{"offsetTable":{1:3}}')
        promoted.role.take(BrokerRole.ASYNC_MASTER)
        promoted.handle_schedule_message_service(BrokerRole.ASYNC_MASTER)
        wait_until(lambda: delivered(promoted))
        assert [msg.body for msg in delivered(promoted)] == [b"3"]
    finally:
        promoted.shutdown()


def test_message_without_a_destination_does_not_stop_the_level(store, caplog):
    """In 4.9, no later message of the level is ever delivered."""
    broken = message(1, b"broken", topic=RMQ_SYS_SCHEDULE_TOPIC)
    broken.queue_id = 0
    broken.properties_string = "DELAY\x011"
    broken.properties = {}
    with caplog.at_level(logging.ERROR, "RocketmqStore"):
        put(store, broken)
        put(store, message(1, b"good"))
        wait_until(lambda: delivered(store))
    assert "REAL_TOPIC" in caplog.text
    assert [msg.body for msg in delivered(store)] == [b"good"]


def test_half_message_is_discarded(store):
    half = message(1, b"half", REAL_TOPIC=RMQ_SYS_TRANS_HALF_TOPIC, REAL_QID="0")
    half.topic, half.queue_id = RMQ_SYS_SCHEDULE_TOPIC, 0
    half.properties_string = message_properties2string(half.properties)
    half.clear_property(message_const.PROPERTY_DELAY_TIME_LEVEL)
    put(store, half)
    put(store, message(1, b"good"))
    wait_until(lambda: delivered(store))
    assert store.get_max_offset_in_queue(RMQ_SYS_TRANS_HALF_TOPIC, 0) == 0


class Refusing:
    """A wrapper of the store that refuses the first puts."""

    def __init__(self, store, status: PutMessageStatus, times: int) -> None:
        self.store, self.status, self.times = store, status, times

    def async_put_message(self, msg):
        self.times -= 1
        if self.times >= 0:
            return Completable.completed(PutMessageResult(self.status))
        return self.store.async_put_message(msg)


def test_refused_put_is_retried(store):
    store.schedule_message_service.write_message_store = Refusing(store, PutMessageStatus.SERVICE_NOT_AVAILABLE, 3)
    put(store, message(1))
    put(store, message(1, b"second"))
    wait_until(lambda: len(delivered(store)) == 2)
    assert [msg.body for msg in delivered(store)] == [b"body", b"second"]


def test_put_that_can_never_succeed_is_skipped(store):
    store.schedule_message_service.write_message_store = Refusing(store, PutMessageStatus.MESSAGE_ILLEGAL, 1)
    put(store, message(1))
    put(store, message(1, b"second"))
    wait_until(lambda: delivered(store))
    assert [msg.body for msg in delivered(store)] == [b"second"]


def test_clock_set_back_does_not_delay_messages_beyond_their_level(store, monkeypatch):
    service = store.schedule_message_service
    task = schedule_message_service.DeliverDelayedMessageTimerTask(service, None, 1, 0)
    now = current_time_millis()
    assert task._correct_deliver_timestamp(now, now + 100) == now + 100
    assert task._correct_deliver_timestamp(now, now + 101) == now


def test_levels_are_parsed(tmp_path, monkeypatch):
    monkeypatch.undo()
    store = make_store(tmp_path / "store", messageDelayLevel="1s 5m 2h 1d ")
    service = store.schedule_message_service
    assert service.levels.parse()
    assert service.levels.table == {1: 1000, 2: 300_000, 3: 7_200_000, 4: 86_400_000}
    assert service.levels.max_level == 4
    assert service.levels.deliver_timestamp(1, 5000) == 6000
    assert service.levels.deliver_timestamp(9, 5000) == 6000


@pytest.mark.parametrize("levels", ["", "1s  5s", "1x", "s", "1.5s", " 1s"])
def test_malformed_levels_are_refused(tmp_path, levels):
    store = make_store(tmp_path / "store", messageDelayLevel=levels)
    assert not store.state.delay_levels.parse()


def test_queue_of_a_level():
    service = schedule_message_service.ScheduleMessageService
    assert service.delay_level2queue_id(18) == 17


def test_level_above_the_last_is_the_last(store):
    put(store, message(99))
    wait_until(lambda: store.get_max_offset_in_queue(RMQ_SYS_SCHEDULE_TOPIC, 2) == 1)


def test_start_and_shutdown_are_idempotent(store):
    service = store.schedule_message_service
    service.start()
    service.shutdown()
    service.shutdown()
    service.start()
    put(store, message(1))
    wait_until(lambda: delivered(store))


# Asynchronous delivery.

def wait_long(predicate, what: str = ""):
    """Call wait_until with a long timeout."""
    return wait_until(predicate, 60_000, what)


@pytest.fixture
def async_store(tmp_path):
    store = make_store(tmp_path / "store", enableScheduleAsyncDeliver=True)
    assert store.load()
    store.start()
    yield store
    store.shutdown()


class Slow:
    """A wrapper of the store that holds its answers until `release`."""

    def __init__(self, store) -> None:
        self.store, self.held = store, []

    def async_put_message(self, msg):
        held = Completable()
        self.held.append((held, self.store.async_put_message(msg).get(60_000)))
        return held

    def release(self, count: int) -> None:
        """Complete the first `count` held answers."""
        for held, result in self.held[:count]:
            held.complete(result)
        del self.held[:count]


def check_delivered(store, *bodies: bytes) -> None:
    """Check that exactly these are delivered, in order; the consume queue may lag behind the put."""
    wait_long(lambda: len(delivered(store)) >= len(bodies))
    assert [msg.body for msg in delivered(store)] == list(bodies)


def progress(store, level: int = 1) -> int:
    return store.schedule_message_service.offset_table.get(level, 0)


def test_asynchronous_delivery_does_not_wait_for_puts_and_counts_in_order(async_store):
    slow = async_store.schedule_message_service.write_message_store = Slow(async_store)
    for number in range(5):
        put(async_store, message(1, b"%d" % number))
    wait_long(lambda: len(slow.held) == 5, what="all puts before the first answer")
    last, result = slow.held.pop()
    last.complete(result)
    slow.release(2)
    wait_long(lambda: progress(async_store) == 2)
    slow.release(2)
    wait_long(lambda: progress(async_store) == 5)
    check_delivered(async_store, *(b"%d" % number for number in range(5)))


def test_asynchronous_delivery_stops_at_the_limit_of_pending_puts(async_store):
    async_store.message_store_config.scheduleAsyncDeliverMaxPendingLimit = 3
    slow = async_store.schedule_message_service.write_message_store = Slow(async_store)
    pending = async_store.schedule_message_service.deliver_pending_table[1]
    for number in range(10):
        put(async_store, message(1, b"%d" % number))
    wait_long(lambda: len(pending) == 4, what="one more than the limit")
    slow.release(4)
    wait_long(lambda: progress(async_store) == 4 and len(pending) == 4)
    assert len(slow.held) == 4
    slow.release(4)
    wait_long(lambda: len(slow.held) == 2)
    slow.release(2)
    wait_long(lambda: progress(async_store) == 10)
    check_delivered(async_store, *(b"%d" % number for number in range(10)))


def test_asynchronous_delivery_retries_failed_puts(async_store, monkeypatch):
    monkeypatch.setattr(schedule_message_service, "_RESEND_STEP_MS", 1)
    async_store.schedule_message_service.write_message_store = Refusing(
        async_store, PutMessageStatus.SERVICE_NOT_AVAILABLE, 3)
    put(async_store, message(1))
    put(async_store, message(1, b"second"))
    wait_long(lambda: progress(async_store) == 2)
    wait_long(lambda: len(delivered(async_store)) == 2)
    assert {msg.body for msg in delivered(async_store)} == {b"body", b"second"}


def test_asynchronous_delivery_waits_for_a_message_that_keeps_failing(async_store, monkeypatch):
    monkeypatch.setattr(schedule_message_service, "_RESEND_STEP_MS", 1)
    async_store.message_store_config.scheduleAsyncDeliverMaxResendNum2Blocked = 2
    service = async_store.schedule_message_service
    refusing = service.write_message_store = Refusing(async_store, PutMessageStatus.SERVICE_NOT_AVAILABLE, 1 << 30)
    put(async_store, message(1))
    pending = service.deliver_pending_table[1]
    wait_long(lambda: pending and pending[0].need2_blocked())
    put(async_store, message(1, b"second"))
    wait_long(lambda: async_store.get_max_offset_in_queue(RMQ_SYS_SCHEDULE_TOPIC, 0) == 2)
    seen = pending[0].resend_count
    wait_long(lambda: pending[0].resend_count > seen + 3)
    assert len(pending) == 1 and progress(async_store) == 0
    refusing.times = 0
    wait_long(lambda: progress(async_store) == 2)
    check_delivered(async_store, b"body", b"second")


def test_asynchronous_delivery_skips_an_illegal_message(async_store):
    async_store.schedule_message_service.write_message_store = Refusing(
        async_store, PutMessageStatus.MESSAGE_ILLEGAL, 1)
    put(async_store, message(1))
    put(async_store, message(1, b"second"))
    wait_long(lambda: progress(async_store) == 2)
    check_delivered(async_store, b"second")


def test_missing_record_is_retried_a_few_times_and_then_skipped(async_store):
    async_store.message_store_config.scheduleAsyncDeliverMaxResendNum2Blocked = 1
    service = async_store.schedule_message_service
    process = schedule_message_service.PutResultProcess(service, 1, 0, 1 << 40, 100, True)
    for _ in range(2):
        process._resend_at_ns = 0
        process.do_resend()
        assert process.status is schedule_message_service.ProcessStatus.EXCEPTION
    process._resend_at_ns = 0
    process.do_resend()
    assert process.status is schedule_message_service.ProcessStatus.SKIP and process.resend_count == 3


def test_shutdown_of_asynchronous_delivery_counts_the_answered_puts(async_store, tmp_path):
    slow = async_store.schedule_message_service.write_message_store = Slow(async_store)
    for number in range(3):
        put(async_store, message(1, b"%d" % number))
    wait_long(lambda: len(slow.held) == 3)
    # No thread handles the results any more.
    async_store.schedule_message_service._handle_executor_service.shutdown()
    slow.release(2)
    async_store.shutdown()
    saved = (tmp_path / "store/config/delayOffset.json").read_text()
    assert saved.replace("\n", "").replace("\t", "") == '{"offsetTable":{1:2}}'


class Impatient(ScheduledService):
    """A service that does not wait for its tasks at shutdown, unless asked to."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.join_time_ms = 1


def test_shutdown_waits_for_a_pending_put_and_counts_it(tmp_path, monkeypatch):
    monkeypatch.setattr(schedule_message_service, "ScheduledService", Impatient)
    store = make_store(tmp_path / "store")
    slow = store.schedule_message_service.write_message_store = Slow(store)
    assert store.load()
    store.start()
    put(store, message(1, b"slow"))
    wait_long(lambda: slow.held, what="the message is put")
    shutdown = threading.Thread(target=store.shutdown)
    shutdown.start()
    wait_long(lambda: not store.schedule_message_service.is_started, what="the shutdown has begun")
    assert progress(store) == 0
    slow.release(1)
    shutdown.join(240)
    assert not shutdown.is_alive()
    assert json.loads((tmp_path / "store/config/delayOffset.json").read_text().replace("1:", '"1":')) == {
        "offsetTable": {"1": 1}}


def test_message_whose_put_was_unanswered_at_shutdown_is_delivered_again(tmp_path, monkeypatch):
    monkeypatch.setattr(schedule_message_service, "_PUT_TIMEOUT_MS", 50)
    store = make_store(tmp_path / "store")
    slow = store.schedule_message_service.write_message_store = Slow(store)
    assert store.load()
    store.start()
    put(store, message(1, b"slow"))
    wait_long(lambda: slow.held, what="the message is put")
    store.shutdown()
    store = make_store(tmp_path / "store")
    assert store.load()
    store.start()
    try:
        wait_long(lambda: progress(store) == 1, what="the message is delivered")
        assert {msg.body for msg in delivered(store)} == {b"slow"}
    finally:
        store.shutdown()


class Emptied(deque):
    """A deque that seems to hold an item: the handling thread takes the last one at that moment."""

    def __bool__(self) -> bool:
        return True

    def __len__(self) -> int:
        return 1


def test_asynchronous_delivery_continues_when_the_last_result_is_taken_meanwhile(async_store):
    service = async_store.schedule_message_service
    service._handle_executor_service.shutdown()
    pending = service.deliver_pending_table[1] = Emptied()
    put(async_store, message(1, b"delivered"))
    check_delivered(async_store, b"delivered")
    assert pending.popleft().next_offset == 1
    service.deliver_pending_table[1] = deque()
