"""The comparison of a slave's log with its master's: its extent, its rate, and the report of differences."""
import json
import struct
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqha.common.message.message_layout import BLANK_MAGIC_CODE
from rmqha.common.protocol.cluster_bodies import HARuntimeInfo
from rmqha.remoting.protocol import remoting_serializable
from rmqha.store.ha import flow_monitor, log_comparison
from rmqha.store.ha.flow_monitor import FlowMonitor
from rmqha.store.ha.ha_handshake import Answer, Finding, Question, Range, Verdict
from rmqha.store.ha.log_comparison import ComparisonError, Divergence, compare_with_master, read_tail, record_start
from rmqha.store.ha.peers import HAConnectionState
from rmqha.store.ha.scrub_state import Difference, ScrubState
from rmqha.store.message_store_config import BrokerRole
from rmqha.tools.store_files.readers import StoreReader
from rmqha.tools.store_files.rebuild import apply
from tests.store.ha.support import BIG_SEGMENT, SEGMENT, FakeStore, Peer, config, record, running
from tests.store.support import message, open_store, put, wait_dispatched
from tests.support.wait import wait_until

# The common part of the two logs: every divergence is found, with its offset.


def answer(store: FakeStore, question: Question) -> Answer:
    """Answer as a correct master does."""
    offset = question.offset
    for number, block in enumerate(question.blocks):
        crc = read_tail(store, offset, block.size)
        if crc != block.crc:
            return Answer(number, crc is None)
        offset += block.size
    return Answer(len(question.blocks), False)


def compare(slave: FakeStore, master: FakeStore) -> Finding:
    return answered(slave, master.ha_service.held_range(), lambda question: answer(master, question))


def answered(slave: FakeStore, held: Range, ask: Callable[[Question], Answer]) -> Finding:
    """Return the slave's finding, with `ask` answering for the master."""
    comparison = compare_with_master(slave, held)
    said = None
    while True:
        try:
            question = comparison.send(said)
        except StopIteration as stop:
            return stop.value
        said = ask(question)


def store_of(records: list[tuple[int, int]]) -> FakeStore:
    """Make a store with records of (size, seed)."""
    store = FakeStore()
    for size, seed in records:
        store.put(size, seed)
    return store


def first_other(slave: FakeStore, master: FakeStore) -> int:
    """Return the offset of the slave's first record that differs from the master's, by comparing all bytes."""
    mine, theirs, at = slave.log(), master.log(), 0
    while at < len(mine):
        size = struct.unpack_from(">i", mine, at)[0]
        if mine[at:at + size] != theirs[at:at + size]:
            return at
        at += size
    return at


@pytest.fixture(params=[(64, 64 * 1024 * 1024), (512, 1024), (64 * 1024, 64 * 1024 * 1024)],
                ids=["small blocks", "small windows", "as it is"])
def sizes(request, monkeypatch):
    monkeypatch.setattr(log_comparison, "_BLOCK", request.param[0])
    monkeypatch.setattr(log_comparison, "_WINDOW", request.param[1])


COMMON = [(1000, number) for number in range(90)]  # more than a file


@pytest.mark.parametrize("lost, written", [
    ([(1000, 200)], [(1000, 201)] * 3), ([(1000, 200)] * 5, [(1000, 201)] * 9), ([(1000, 200)] * 5, [(700, 201)] * 9),
    ([(333, 1), (1000, 200)], [(333, 1), (1000, 7), (1000, 8)]), ([(1000, 200)] * 70, [(1000, 201)] * 90),
    ([(60_000, 200)], [(60_000, 201)]), ([(500, 9)] * 3, []), ([(1000, 200)] * 5, [(900, 201)])],
    ids=["equal sizes, overtaken", "more of it", "other sizes", "behind a same one", "over a file's end", "one large",
         "ahead", "ahead, and other bytes"])
def test_divergence_is_found_with_its_offset(sizes, lost, written):
    slave, master = store_of([*COMMON, *lost]), store_of([*COMMON, *written])
    expected = first_other(slave, master)
    assert compare(slave, master) == (Verdict.DIVERGED, expected)
    assert expected < slave.get_max_phy_offset()


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.integers(100, 3000), st.integers(0, 3)), min_size=1, max_size=80),
       st.lists(st.tuples(st.integers(100, 3000), st.integers(4, 7)), max_size=30),
       st.lists(st.tuples(st.integers(100, 3000), st.integers(8, 11)), max_size=30))
def test_common_part_of_any_two_logs_is_found(common, lost, written):
    slave, master = store_of([*common, *lost]), store_of([*common, *written])
    finding, expected = compare(slave, master), first_other(slave, master)
    end = slave.get_max_phy_offset()
    if expected == end and end <= master.get_max_phy_offset():
        assert finding == (Verdict.GOOD, end)
    else:
        assert finding.verdict is Verdict.DIVERGED
        assert finding.same_up_to == expected
        assert slave.log()[:expected] == master.log()[:expected]


def test_incomplete_record_at_the_slaves_end_is_accepted():
    master = store_of(COMMON)
    slave = FakeStore()
    slave.segments = {0: bytearray(master.log()[:12_345])}
    assert compare(slave, master) == (Verdict.GOOD, 12_345)


def test_log_of_another_master_has_nothing_in_common(sizes):
    slave, master = store_of([(1000, number + 7) for number in range(90)]), store_of(COMMON)
    assert compare(slave, master) == (Verdict.DIVERGED, -1)


def test_tail_in_a_new_file_is_compared_beyond_that_file():
    """The few bytes in the last file may be equal by chance, since a record begins with its size."""
    slave, master = store_of([(1000, number) for number in range(66)]), store_of([(1000, 9) for _ in range(70)])
    slave.segments[SEGMENT] = bytearray(master.segments[SEGMENT][:9])
    assert compare(slave, master).verdict is Verdict.DIVERGED


def test_masters_deleted_files_are_not_asked_for():
    master = store_of([*COMMON, *COMMON])
    slave = FakeStore()
    slave.segments = {at: bytearray(data) for at, data in master.segments.items()}
    del master.segments[0]
    assert compare(slave, master) == (Verdict.GOOD, slave.get_max_phy_offset())


def test_slave_that_ends_before_the_masters_first_file_gets_not_held():
    master = store_of([*COMMON, *COMMON])
    slave = store_of(COMMON[:3])
    del master.segments[0]
    assert compare(slave, master) == (Verdict.NOT_HELD, -1)


@pytest.mark.parametrize("count", [0, 3])
def test_empty_slave_is_good(count):
    assert compare(FakeStore(), store_of(COMMON[:count])) == (Verdict.GOOD, 0)


def test_slave_of_an_empty_master_has_diverged():
    assert compare(store_of(COMMON[:3]), FakeStore()) == (Verdict.DIVERGED, -1)


@pytest.mark.parametrize("said", [Answer(-1, False), Answer(1 << 20, False), Answer(0, True)])
def test_impossible_answer_is_an_error(said):
    with pytest.raises(ComparisonError):
        answered(store_of(COMMON), Range(0, 1 << 40), lambda _question: said)


def test_contradictory_answers_of_a_master_are_an_error():
    """A block differs, but then all its records are equal."""
    asked = []

    def ask(question: Question) -> Answer:
        asked.append(question)
        return Answer(len(question.blocks) - (len(asked) == 1), False)
    with pytest.raises(ComparisonError):
        answered(store_of(COMMON), Range(0, 1 << 40), ask)
    assert len(asked) == 2


def test_record_start_knows_the_blank_end_of_a_file():
    store = store_of(COMMON)
    blank = store.log().index(struct.pack(">i", BLANK_MAGIC_CODE)) - 4
    assert [record_start(store, at) for at in (blank - 1, blank, blank + 5, SEGMENT - 1, SEGMENT, SEGMENT + 1)] == [
        blank - 1000, blank, blank, blank, SEGMENT, SEGMENT]


def test_record_start_in_invalid_bytes_is_unknown():
    store = FakeStore()
    store.segments = {0: bytearray(b"x" * 5000)}
    assert record_start(store, 3000) == -1 and record_start(store, 0) == 0


def test_large_record_is_compared_as_one():
    slave, master = store_of([*COMMON[:3], (60_000, 1)]), store_of([*COMMON[:3], (60_000, 2)])
    assert record(60_000, 1) != record(60_000, 2)
    assert compare(slave, master) == (Verdict.DIVERGED, 3000)


# A slave whose queues do not match its master's log reports this until the queues are rebuilt.


def told(store) -> dict[str, str]:
    stats: dict[str, str] = {}
    store.ha_service.build_running_stats(stats)
    return stats


def state(store) -> tuple[str | None, int, str | None]:
    info = store.ha_service.get_runtime_info(store.get_max_phy_offset())
    info = remoting_serializable.decode(HARuntimeInfo, remoting_serializable.encode(info))
    client = info.haClientRuntimeInfo
    return client.state, client.divergedOffset, client.divergedReason


@pytest.fixture
def records(tmp_path) -> bytes:
    """Make a log of ten messages of one queue."""
    with open_store(tmp_path / "master") as master:
        put(master, *(message(body=b"%d" % number * 100) for number in range(10)))
        with master.get_commit_log_data(0) as result:
            return bytes(result.buffer[:master.get_max_phy_offset()])


def start_of(records: bytes, number: int) -> int:
    size = len(records) // 10
    assert len(records) == size * 10
    return size * number


@pytest.mark.parametrize("repeated", [True, False], ids=["repeatedly", "order maybe wrong"])
def test_record_with_an_unexpected_index_is_a_divergence(records, repeated, tmp_path):
    fifth = start_of(records, 5)
    with open_store(tmp_path / "slave", brokerRole=BrokerRole.SLAVE) as slave:
        slave.append_to_commit_log(0, records, 0, fifth)
        wait_dispatched(slave)
        queue = slave.get_consume_queue("T", 0)
        # Add a unit for a message that the master does not have.
        if repeated:
            queue.put_message_position_info(fifth - 50, 60, 0, 5)
            queue.max_physic_offset = fifth
        else:
            # The records of the lost units are not in the log.
            queue.mapped_file_queue.mapped_files[-1].set_positions(4 * 20)
        assert state(slave)[1:] == (-1, None) and "haDivergedOffset" not in told(slave)
        slave.append_to_commit_log(fifth, records, fifth, len(records) - fifth)
        wait_dispatched(slave)
        what, offset, reason = state(slave)
        assert (what, offset) == ("DIVERGED", fifth)
        assert reason.startswith(f"the record at commit log offset {fifth} is message 5 of T-0, whose next one is ")
        stats = told(slave)
        assert (stats["haDivergedOffset"], stats["haDivergedReason"]) == (str(fifth), reason)
        assert int(stats["haDivergedCount"]) == (1 if repeated else 2)


def test_unexpected_index_is_not_a_divergence_on_a_master(records, tmp_path):
    with open_store(tmp_path / "store") as store:
        queue = store.consume_queue_table.find_queue("T", 0)
        assert queue.put_message_position_info(0, 50, 0, 0)
        assert queue.put_message_position_info(50, 50, 0, 1) and queue.put_message_position_info(100, 50, 0, 1)
        assert store.ha_service.divergence.found is None


def test_divergence_is_kept_across_a_restart_and_cleared_by_a_rebuild(records, tmp_path):
    with open_store(tmp_path, brokerRole=BrokerRole.SLAVE) as slave:
        slave.append_to_commit_log(0, records, 0, len(records))
        wait_dispatched(slave)
        assert slave.get_consume_queue("T", 0).put_message_position_info(len(records), 50, 0, 3)
        found = state(slave)
        assert found[0] == "DIVERGED"
    with open_store(tmp_path, brokerRole=BrokerRole.SLAVE) as slave:
        assert state(slave) == found
    apply(StoreReader(str(tmp_path), (), None, None), str(tmp_path), True, True, lambda position: None)
    with open_store(tmp_path, brokerRole=BrokerRole.SLAVE) as slave:
        assert state(slave)[1:] == (-1, None)


def test_divergence_of_the_log_takes_precedence_and_is_cleared_when_the_log_matches(tmp_path):
    divergence = Divergence(str(tmp_path / "file"))
    divergence.queue_does_not_fit(7, "queue")
    divergence.log_differs(3, "log")
    assert divergence.found == (3, "log")
    divergence.log_fits()
    assert divergence.found == (7, "queue")
    divergence.queues_are_mended()
    assert divergence.found is None and not (tmp_path / "file").exists()


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"offset": "x", "reason": "", "count": 1}', b"\xff"])
def test_unreadable_divergence_file_is_reported_and_ignored(tmp_path, content, caplog):
    (tmp_path / "file").write_bytes(content)
    divergence = Divergence(str(tmp_path / "file"))
    divergence.load()
    assert divergence.found is None and "it is unknown whether" in caplog.text


# The progress of scrubbing: rounds, ages by a clock of the test, differences, and the saved file.

HOUR = 3_600_000


class Clock:
    def __init__(self) -> None:
        self.now = 1_700_000_000_000

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def scrub_state(tmp_path, clock):
    return ScrubState(str(tmp_path / "scrub.json"), clock)


def test_age_is_unknown_before_the_first_round(scrub_state):
    assert scrub_state.unscrubbed_ms() == -1 and scrub_state.is_round_due(HOUR)


def test_age_is_that_of_the_oldest_uncompared_byte(scrub_state, clock):
    scrub_state.log_is(0, 1000)
    scrub_state.begin_round(0)
    clock.now += 5000
    scrub_state.log_is(0, 2000)
    assert scrub_state.unscrubbed_ms() == 5000
    scrub_state.compared(1000, 1000)
    clock.now += 100
    assert scrub_state.unscrubbed_ms() == 5100, "appended some time after the first call, 5,100 ms ago"
    scrub_state.compared(2000, 1000)
    assert scrub_state.unscrubbed_ms() == 0 and scrub_state.rounds == 1 and scrub_state.compared_bytes == 2000
    clock.now += 7000
    scrub_state.log_is(0, 3000)
    clock.now += 10
    assert 0 < scrub_state.unscrubbed_ms() <= 7110


def test_compared_bytes_are_due_again_in_the_next_round(scrub_state, clock):
    scrub_state.log_is(0, 1000)
    scrub_state.begin_round(0)
    scrub_state.compared(1000, 1000)
    assert not scrub_state.is_round_due(HOUR)
    clock.now += HOUR // 2
    assert scrub_state.is_round_due(HOUR) and scrub_state.unscrubbed_ms() == 0
    scrub_state.begin_round(0)
    assert scrub_state.unscrubbed_ms() == HOUR // 2 and not scrub_state.is_round_due(HOUR)
    clock.now += 60
    scrub_state.compared(500, 500)
    assert scrub_state.unscrubbed_ms() == HOUR // 2 + 60 and scrub_state.rounds == 1
    scrub_state.compared(1000, 500)
    assert scrub_state.unscrubbed_ms() == 0 and scrub_state.rounds == 2


def test_position_follows_a_truncated_or_deleted_log(scrub_state):
    scrub_state.log_is(0, 5000)
    scrub_state.begin_round(0)
    scrub_state.compared(4000, 4000)
    scrub_state.log_is(0, 3000)
    assert scrub_state.position == 3000 and scrub_state.unscrubbed_ms() == 0
    scrub_state.log_is(3500, 9000)
    assert scrub_state.position == 3500


def test_a_clock_set_back_starts_a_round(scrub_state, clock):
    scrub_state.log_is(0, 10)
    scrub_state.begin_round(0)
    scrub_state.compared(10, 10)
    clock.now -= 10 * HOUR
    assert scrub_state.is_round_due(HOUR) and scrub_state.unscrubbed_ms() == 0


def test_number_of_samples_is_limited_and_the_age_is_an_upper_bound(scrub_state, clock):
    scrub_state.log_is(0, 1)
    scrub_state.begin_round(0)
    scrub_state.compared(1, 1)
    begun = clock.now
    for end in range(2, 5000):
        clock.now += 1000
        scrub_state.log_is(0, end)
    assert len(scrub_state._samples) <= 256
    assert scrub_state.unscrubbed_ms() <= clock.now - begun
    scrub_state.compared(4000, 3999)
    age = clock.now - (begun + 3999 * 1000)
    assert age <= scrub_state.unscrubbed_ms() <= age + 64 * 1000


def difference(offset: int) -> Difference:
    return Difference(offset, 100, f"at {offset}", "slave")


def test_each_difference_is_kept_once_and_at_most_100_are_kept(scrub_state):
    assert scrub_state.differs(difference(7)) and not scrub_state.differs(difference(7))
    assert all(scrub_state.differs(difference(1000 + at)) for at in range(150))
    assert len(scrub_state.found) == 100 and scrub_state.differences == 151 and scrub_state.first_difference == 7
    scrub_state.keep(each for each in scrub_state.found if each.offset == 1000)
    assert scrub_state.found == (difference(1000),) and scrub_state.differences == 1


def test_the_state_survives_a_restart(scrub_state, clock, tmp_path):
    scrub_state.load()
    scrub_state.log_is(0, 1000)
    scrub_state.begin_round(0)
    scrub_state.compared(600, 600)
    scrub_state.differs(difference(5))
    scrub_state.save()
    clock.now += 4000
    again = ScrubState(str(tmp_path / "scrub.json"), clock)
    again.load()
    assert (again.position, again.found, again.unscrubbed_ms()) == (600, (difference(5),), 4000)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"found": 3}', '{"found": [{}]}', "\x00" * 100,
                                  json.dumps({"position": -1, "roundBegin": 0, "roundStarted": 0, "lastRoundBegan": 0,
                                              "lastRoundEnd": 0, "more": 0, "samples": [], "found": []})])
def test_a_damaged_file_leads_to_a_new_round(scrub_state, tmp_path, text, caplog):
    (tmp_path / "scrub.json").write_text(text)
    scrub_state.load()
    assert scrub_state.is_round_due(HOUR) and not scrub_state.found
    assert "scrubbing begins with a new round" in caplog.text


# Bytes per second: counted, and limited.

SECOND = 1_000_000_000


class FlowMonitorClock:
    """A replacement for `time` in flow_monitor."""

    def __init__(self) -> None:
        self.now = 5 * SECOND

    def monotonic_ns(self) -> int:
        return self.now


@pytest.fixture
def flow_monitor_clock(monkeypatch) -> FlowMonitorClock:
    clock = FlowMonitorClock()
    monkeypatch.setattr(flow_monitor, "time", clock)
    return clock


def test_rate_is_the_number_of_bytes_in_the_last_whole_second(flow_monitor_clock):
    monitor = FlowMonitor(config())
    monitor.add_byte_count_transferred(100)
    monitor.add_byte_count_transferred(200)
    assert monitor.transferred_byte_in_second == 0
    flow_monitor_clock.now += SECOND
    assert monitor.transferred_byte_in_second == 300
    monitor.add_byte_count_transferred(7)
    flow_monitor_clock.now += SECOND
    assert monitor.transferred_byte_in_second == 7
    flow_monitor_clock.now += 2 * SECOND
    assert monitor.transferred_byte_in_second == 0


def test_without_flow_control_there_is_no_limit(flow_monitor_clock):
    monitor = FlowMonitor(config())
    monitor.add_byte_count_transferred(1 << 40)
    assert monitor.can_transfer_max_byte_num() == 2**31 - 1


def test_limit_holds_within_each_second(flow_monitor_clock):
    monitor = FlowMonitor(config(haFlowControlEnable=True, maxHaTransferByteInSecond=1000))
    assert monitor.can_transfer_max_byte_num() == 1000
    monitor.add_byte_count_transferred(400)
    assert monitor.can_transfer_max_byte_num() == 600
    monitor.add_byte_count_transferred(900)
    assert monitor.can_transfer_max_byte_num() == 0
    flow_monitor_clock.now += SECOND // 4
    assert monitor.next_second_in_ms() == 750
    flow_monitor_clock.now += SECOND
    assert monitor.can_transfer_max_byte_num() == 1000


@pytest.mark.parametrize("limit", [0, -5])
def test_a_limit_of_zero_or_less_still_lets_bytes_through(flow_monitor_clock, limit):
    assert FlowMonitor(config(haFlowControlEnable=True, maxHaTransferByteInSecond=limit)).can_transfer_max_byte_num()


def test_slave_gets_the_log_no_faster_than_the_limit(monkeypatch):
    clock = FlowMonitorClock()
    monkeypatch.setattr(flow_monitor, "time", clock)
    store = FakeStore(mappedFileSizeCommitLog=BIG_SEGMENT, haFlowControlEnable=True, maxHaTransferByteInSecond=50_000,
                      haHousekeepingInterval=60_000)
    for seed in range(120):
        store.put(1000, seed)
    with running(store), Peer.connect(store) as peer:
        peer.report(1)
        received = b""
        for second in range(1, 3):
            while len(received) < second * 50_000:
                received += peer.read_data_frame()[1]
            (connection,) = store.ha_service.connection_list
            wait_until(lambda c=connection: c.state is HAConnectionState.SUSPEND, 60_000)
            assert len(received) == second * 50_000 == connection.transfer_from_where - 1
            assert connection.is_serving and store.ha_service.slave_count() == 1
            clock.now += SECOND
        while len(received) < 120_000 - 1:
            received += peer.read_data_frame()[1]
        assert received == store.log(1)


def test_suspended_slave_is_kept_alive_by_heartbeats():
    store = FakeStore(mappedFileSizeCommitLog=BIG_SEGMENT, haFlowControlEnable=True, maxHaTransferByteInSecond=1,
                      haHousekeepingInterval=60_000)
    store.put(1000)
    with running(store), Peer.connect(store) as peer:
        peer.report(1)
        frames = [peer.read_frame() for _ in range(4)]
        assert [body for _offset, body in frames if not body], "no heartbeat arrived"
