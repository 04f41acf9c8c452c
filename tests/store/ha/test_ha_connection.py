"""The master's side of replication, with peers that the test drives byte by byte."""
import errno
import logging
import socket
import threading
from contextlib import ExitStack

import pytest

from rmqha.common.futures import Round
from rmqha.store.ha import frame_format, ha_connection, ha_handshake, ha_service
from rmqha.store.ha.ha_connection import HAConnection, WriteSocketService
from rmqha.store.ha.log_comparison import read_tail
from rmqha.store.ha.peers import HAConnectionState
from rmqha.store.message_store_config import BrokerRole
from tests.store.ha.support import SEGMENT, FakeStore, Peer, open_descriptors, running
from tests.support.wait import at_least, own_threads, wait_until


@pytest.fixture(autouse=True)
def quick_housekeeping(monkeypatch):
    monkeypatch.setattr(ha_connection, "_SELECT_MS", 100)


@pytest.fixture
def master():
    store = FakeStore()
    for seed in range(20):
        store.put(1000, seed)
    with running(store):
        # Let the services open their lasting descriptors first.
        with Peer.connect(store) as peer:
            peer.report(0)
            peer.read_data_frame()
        wait_until(lambda: store.ha_service.connection_count.get() == 0 and store.ha_service.ha_client.selector)
        yield store
    wait_until(lambda: store.shares == 0, what="all of the log is given back")
    assert store.ha_service.connection_count.get() == 0


def test_slave_gets_the_log_from_the_offset_of_its_first_report(master):
    with Peer.connect(master) as peer:
        peer.report(5000)
        offset, body = peer.read_data_frame()
        assert (offset, body) == (5000, master.log(5000))


def test_nothing_is_sent_before_the_first_report(master):
    with Peer.connect(master) as peer:
        peer.sock.settimeout(0.3)
        with pytest.raises(TimeoutError):
            peer.read(1)


def test_empty_slave_begins_at_the_masters_last_file(master):
    while master.get_max_phy_offset() < 2 * SEGMENT + 100:
        master.put(3000)
    with Peer.connect(master) as peer:
        peer.report(0)
        assert peer.read_data_frame()[0] == 2 * SEGMENT


def test_frames_are_at_most_the_batch_size_and_never_cross_a_file():
    store = FakeStore(haTransferBatchSize=1000)
    while store.get_max_phy_offset() < 2 * SEGMENT + 5000:
        store.put(3000)
    with running(store), Peer.connect(store) as peer:
        peer.report(9)
        at, log = 9, b""
        while at < store.get_max_phy_offset():
            offset, body = peer.read_data_frame()
            assert offset == at and 0 < len(body) <= 1000
            assert offset // SEGMENT == (offset + len(body) - 1) // SEGMENT
            log, at = log + body, at + len(body)
        assert log == store.log(9)


def test_idle_link_gets_heartbeats_at_the_next_offset(master):
    with Peer.connect(master) as peer:
        end = master.get_max_phy_offset()
        peer.report(end)
        assert [peer.read_frame() for _ in range(3)] == [(end, b"")] * 3


def test_an_append_is_sent_at_once(master, monkeypatch):
    monkeypatch.setattr("rmqha.store.ha.ha_connection._NO_DATA_WAIT_MS", 600_000)
    with Peer.connect(master) as peer:
        end = master.get_max_phy_offset()
        peer.report(end)
        wait_until(lambda: master.ha_service.wait_notify_object.waiting_threads)
        for _ in range(3):
            at = master.get_max_phy_offset()
            master.put(500)
            # Long before the next poll.
            assert peer.read_data_frame()[0] == at


def test_slow_slave_gets_every_byte_in_order():
    """The socket's buffers fill up: writes end anywhere, and continue from there."""
    store = FakeStore(mappedFileSizeCommitLog=8 << 20, haHousekeepingInterval=20_000)
    for seed in range(75):
        store.put(100_000, seed)
    with running(store), Peer.connect(store) as peer:
        peer.report(1)
        # Let the writer fill the socket.
        at_least(0.2)
        at, log = 1, []
        while at < store.get_max_phy_offset():
            offset, body = peer.read_data_frame()
            assert offset == at
            at += len(body)
            log.append(body)
        assert b"".join(log) == store.log(1)
    wait_until(lambda: store.shares == 0, what="all of the log is given back")


def test_bytes_that_putting_threads_could_not_send_are_sent_by_the_writer():
    """Several threads put while the slave reads nothing, so that one of their writes is cut; then the slave reads."""
    store = FakeStore(mappedFileSizeCommitLog=32 << 20, haHousekeepingInterval=60_000)
    store.put(100)
    with running(store), Peer.connect(store) as peer:
        peer.report(1)
        wait_until(lambda: store.ha_service.slave_count() == 1)
        lock = threading.Lock()

        def put_some(seed: int) -> None:
            for number in range(50):
                # As under the put lock.
                with lock:
                    store.put(100_000, seed + number)
        threads = [threading.Thread(target=put_some, args=(seed,)) for seed in (1, 2, 3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(240)
        writer = store.ha_service.connection_list[0].write_socket_service
        wait_until(lambda: writer.next_transfer_from_where < store.get_max_phy_offset())
        at, log = 1, []
        while at < store.get_max_phy_offset():
            offset, body = peer.read_data_frame()
            assert offset == at
            at += len(body)
            log.append(body)
        assert b"".join(log) == store.log(1)
        store.put(100)
        assert peer.read_data_frame()[0] == at
    wait_until(lambda: store.shares == 0, what="all of the log is given back")


@pytest.mark.parametrize("error", [OSError(errno.ENOBUFS, "no buffers"), MemoryError("no room")])
def test_put_whose_transfer_fails_closes_the_connection_and_is_answered(monkeypatch, error):
    # Keep the writer thread out of it.
    monkeypatch.setattr("rmqha.store.ha.ha_connection._NO_DATA_WAIT_MS", 600_000)
    store = FakeStore(haHousekeepingInterval=60_000)
    with running(store), Peer.connect(store) as peer:
        peer.report(0)
        wait_until(lambda: store.ha_service.wait_notify_object._asleep == 1)
        (connection,) = store.ha_service.connection_list
        writer, send = connection.write_socket_service, WriteSocketService._send

        def send_a_part(selector, buffers):
            monkeypatch.setattr(writer, "_send", lambda *args: send(writer, *args))
            connection.socket.send(buffers[0][:5])
            raise error
        monkeypatch.setattr(writer, "_send", send_a_part)
        store.put(100)
        # Nothing follows half a header.
        with pytest.raises(EOFError, match="after 5 of"):
            peer.read(200)
    wait_until(lambda: store.shares == 0, what="all of the log is given back")


def test_put_on_an_asynchronous_master_sends_nothing_itself(monkeypatch):
    store = FakeStore(brokerRole=BrokerRole.ASYNC_MASTER)
    with running(store), Peer.connect(store) as peer:
        peer.report(0)
        wait_until(lambda: store.ha_service.slave_count() == 1)
        (connection,) = store.ha_service.connection_list
        monkeypatch.setattr(connection.write_socket_service, "transfer_now", lambda: pytest.fail("sent by a put"))
        store.put(100)
        assert peer.read_data_frame()[0] == 0


def test_put_leaves_the_sending_to_a_writer_that_has_not_begun_or_has_ended(monkeypatch):
    begin = threading.Event()
    transfer = WriteSocketService._transfer_until_end
    monkeypatch.setattr(WriteSocketService, "_transfer_until_end", lambda self: begin.wait(240) and transfer(self))
    store = FakeStore()
    with running(store), Peer.connect(store) as peer:
        store.put(100)
        wait_until(lambda: store.ha_service.connection_list, 60_000)
        (connection,) = store.ha_service.connection_list
        writer = connection.write_socket_service
        assert not writer.transfer_now()  # no slave has reported
        peer.report(0)
        wait_until(lambda: connection.is_serving, 60_000)
        store.put(100)
        assert not writer.transfer_now() and writer.next_transfer_from_where == 0
        begin.set()
        assert peer.read_data_frame() == (0, store.log())
        wait_until(lambda: writer._ready and writer.transfer_now(), 60_000)  # all is sent
        peer.close()
        wait_until(lambda: not store.ha_service.connection_list and not writer._ready, 60_000)
        assert not writer.transfer_now()


def test_bytes_passed_by_a_put_are_sent_directly_to_a_slave_that_lacks_nothing_else(monkeypatch):
    idle, go_on, looks = threading.Event(), threading.Event(), []
    monkeypatch.setattr(WriteSocketService, "_gather", lambda self: idle.set() or go_on.wait(240))
    store = FakeStore()
    look = store.get_commit_log_data
    with running(store), Peer.connect(store) as peer:
        peer.report(0)
        # From here on, only this thread sends.
        assert idle.wait(240)
        monkeypatch.setattr(store, "get_commit_log_data", lambda offset: looks.append(offset) or look(offset))
        monkeypatch.setattr(store.ha_service, "on_appended", lambda: None)
        store.put(100)
        store.ha_service.send_appended(0, store.log())
        assert peer.read_data_frame() == (0, store.log()) and looks == []
        store.put(50)
        store.put(60)
        store.ha_service.send_appended(150, store.log(150))
        assert peer.read_data_frame() == (100, store.log(100)) and looks == [100]
        store.message_store_config.haTransferBatchSize = 40
        store.put(64)
        store.ha_service.send_appended(210, store.log(210))
        assert [peer.read_data_frame(), peer.read_data_frame()] == [(210, store.log(210)[:40]), (250, store.log(250))]
        go_on.set()


def test_puts_of_one_round_are_one_transfer(monkeypatch):
    store, transfers = FakeStore(), []
    send = store.ha_service.send_to_slaves
    monkeypatch.setattr(store.ha_service, "send_to_slaves",
                        lambda: transfers.append(store.get_max_phy_offset()) or send())
    with running(store), Peer.connect(store) as peer:
        peer.report(0)
        wait_until(lambda: store.ha_service.slave_count() == 1)
        with Round():
            for seed in range(5):
                store.put(1000, seed)
            assert not transfers
        assert transfers == [5000]
        received = b""
        while len(received) < 5000:
            received += peer.read_data_frame()[1]
        assert received == store.log()


@pytest.mark.parametrize("offset", [1 << 62, -1, -(1 << 63), (1 << 63) - 1])
def test_impossible_first_report_closes_and_is_not_an_acknowledgement(master, offset):
    with Peer.connect(master) as peer:
        peer.report(offset)
        # -1 asks for the handshake; the silence after it closes the connection.
        if offset == -1:
            wait_until(lambda: master.ha_service.connection_count.get() == 1)
            master.message_store_config.haHousekeepingInterval = 1000
        assert peer.is_closed()
    assert master.ha_service.push2_slave_max_offset.get() == 0
    assert not master.ha_service.ack_rule.is_slave_ok(master.get_max_phy_offset())


def test_first_report_beyond_the_masters_log_closes(master):
    with Peer.connect(master) as peer:
        peer.report(master.get_max_phy_offset() + 1)
        assert peer.is_closed()
    assert master.ha_service.push2_slave_max_offset.get() == 0


def test_later_report_beyond_the_masters_log_closes(master):
    with Peer.connect(master) as peer:
        peer.report(5000)
        peer.read_data_frame()
        peer.report(master.get_max_phy_offset() + 1)
        assert peer.is_closed()
    assert master.ha_service.push2_slave_max_offset.get() == 5000


def test_valid_and_impossible_report_in_one_read_are_both_ignored(master):
    with Peer.connect(master) as peer:
        peer.report(5000, master.get_max_phy_offset() + 1)
        assert peer.is_closed()
    assert master.ha_service.push2_slave_max_offset.get() == 0


def test_decreasing_report_closes(master):
    with Peer.connect(master) as peer:
        peer.report(5000, 6000, 5999)
        assert peer.is_closed()
    assert master.ha_service.push2_slave_max_offset.get() == 0


def test_acknowledgements_never_decrease(master):
    for offset in (9000, 5000, 0):
        with Peer.connect(master) as peer:
            peer.report(offset)
            peer.read_data_frame()
            wait_until(lambda: master.ha_service.push2_slave_max_offset.get() == 9000)
    wait_until(lambda: master.ha_service.connection_count.get() == 0)
    assert master.ha_service.push2_slave_max_offset.get() == 9000


def test_four_bytes_then_close_leave_no_trace(master):
    with Peer.connect(master) as peer:
        peer.send(b"\0\0\0\0")
    wait_until(lambda: master.ha_service.connection_count.get() == 0)
    assert master.ha_service.push2_slave_max_offset.get() == 0


def test_seven_bytes_and_silence_are_closed_by_housekeeping(master):
    with Peer.connect(master) as peer:
        peer.send(b"\0" * 7)
        wait_until(lambda: master.ha_service.connection_count.get() == 1)
        master.message_store_config.haHousekeepingInterval = 1000
        assert not master.ha_service.ack_rule.is_slave_ok(master.get_max_phy_offset())
        assert peer.is_closed()
    assert master.ha_service.push2_slave_max_offset.get() == 0


def test_incomplete_report_does_not_keep_a_connection_alive(master):
    """4.9 counts any byte as a sign of life."""
    master.message_store_config.haHousekeepingInterval = 1000
    with Peer.connect(master) as peer:
        stop, dripped = threading.Event(), []

        def drip():
            # The eighth byte would complete a report.
            for number in range(7):
                try:
                    peer.sock.send(b"\0")
                except OSError:
                    # The connection is closed by now.
                    return
                dripped.append(number)
                if stop.wait(0.9):
                    return

        thread = threading.Thread(target=drip)
        thread.start()
        assert peer.is_closed()
        stop.set()
        thread.join(240)
    assert len(dripped) < 7


def test_silent_peer_is_closed_and_never_a_slave(master):
    with Peer.connect(master) as peer:
        wait_until(lambda: master.ha_service.connection_count.get() == 1)
        master.message_store_config.haHousekeepingInterval = 1000
        assert not master.ha_service.ack_rule.is_slave_ok(0)
        assert peer.is_closed()
    wait_until(lambda: master.ha_service.connection_count.get() == 0)


def test_slave_counts_from_its_first_report_until_it_disconnects(master):
    with Peer.connect(master) as peer:
        peer.report(5000)
        wait_until(lambda: master.ha_service.ack_rule.is_slave_ok(master.get_max_phy_offset()))
        assert master.ha_service.slave_count() == 1
    wait_until(lambda: not master.ha_service.ack_rule.is_slave_ok(master.get_max_phy_offset()))


def test_slave_too_far_behind_is_not_ok(master):
    master.message_store_config.haSlaveFallbehindMax = 1000
    with Peer.connect(master) as peer:
        peer.report(master.get_max_phy_offset())
        wait_until(lambda: master.ha_service.ack_rule.is_slave_ok(master.get_max_phy_offset()))
        assert master.ha_service.ack_rule.is_slave_ok(master.get_max_phy_offset() + 999)
        assert not master.ha_service.ack_rule.is_slave_ok(master.get_max_phy_offset() + 1000)


def test_flood_of_repeated_reports_is_closed(master):
    with Peer.connect(master) as peer:
        peer.report(5000)
        try:
            for _round in range(50):
                peer.report(*[5000] * 1000)
        except ConnectionError:
            pass
        assert peer.is_closed()


def test_slave_below_the_masters_first_file_is_refused_and_reported(master, caplog):
    while master.get_max_phy_offset() < 3 * SEGMENT:
        master.put(3000)
    del master.segments[0]
    with caplog.at_level(logging.ERROR, "RocketmqStore"):
        for _round in range(3):
            with Peer.connect(master) as peer:
                peer.report(5000)
                assert peer.read_frame() == (SEGMENT, b"")
                assert peer.is_closed()
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == 1
    assert "SLAVE: 5000" in errors[0] and f"MASTER: {SEGMENT} to {master.get_max_phy_offset()}" in errors[0]
    (refused,) = master.ha_service.refused_slaves()
    assert (refused.slave_offset, refused.master_min_offset) == (5000, SEGMENT)
    stats: dict[str, str] = {}
    master.ha_service.build_running_stats(stats)
    assert stats["haRefusedSlave_127.0.0.1_5000"] == f"5000,{SEGMENT},{master.get_max_phy_offset()}"
    assert not master.ha_service.ack_rule.is_slave_ok(0)


def test_slave_ahead_of_the_master_gets_the_masters_end(master):
    end = master.get_max_phy_offset()
    with Peer.connect(master) as peer:
        peer.report(end + 5000)
        assert peer.read_frame() == (end, b"")
        assert peer.is_closed()
    assert [refused.slave_offset for refused in master.ha_service.refused_slaves()] == [end + 5000]


def test_slave_whose_file_is_deleted_while_it_is_served_is_refused():
    store = FakeStore()
    while store.get_max_phy_offset() < 2 * SEGMENT:
        store.put(3000)
    middle = store.segments.pop(SEGMENT)
    with running(store), Peer.connect(store) as peer:
        peer.report(SEGMENT - 100)
        peer.read_data_frame()
        wait_until(lambda: store.ha_service.slave_count() == 1)
        del store.segments[0]
        assert peer.is_closed()
        assert [refused.slave_offset for refused in store.ha_service.refused_slaves()] == [SEGMENT]
    assert len(middle) == SEGMENT


def test_slave_at_a_gap_in_the_log_is_refused_after_the_housekeeping_interval():
    store = FakeStore(haHousekeepingInterval=2000)
    while store.get_max_phy_offset() < 2 * SEGMENT + 100:
        store.put(3000)
    del store.segments[SEGMENT]
    with running(store), Peer.connect(store) as peer:
        while not store.ha_service.refused_slaves():
            try:
                # Otherwise the reader's housekeeping would close the connection.
                peer.report(SEGMENT)
                peer.sock.settimeout(0.1)
                peer.read_frame()
            except TimeoutError:
                continue
            except (ConnectionError, EOFError):
                break
        wait_until(lambda: store.ha_service.refused_slaves())
    assert [refused.slave_offset for refused in store.ha_service.refused_slaves()] == [SEGMENT]


def test_connections_come_and_go_without_a_trace(master):
    threads, descriptors = len(own_threads()), open_descriptors()
    for number in range(10_000):
        sock = socket.socket()
        sock.connect(("127.0.0.1", master.ha_service.ha_listen_port))
        if number % 3 == 0:
            sock.send(b"\0" * (number % 8))
        # A reset instead of a close.
        if number % 10 == 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        sock.close()
        # This peer is served only after all before it: a full backlog would make the kernel wait for a second.
        if number % 200 == 0:
            with Peer.connect(master) as peer:
                peer.report(5000)
                peer.read_data_frame()
    wait_until(lambda: master.ha_service.connection_list == () and len(own_threads()) <= threads
               and open_descriptors() <= descriptors, 60_000)
    wait_until(lambda: master.ha_service.connection_count.get() == 0)
    # The port still serves.
    with Peer.connect(master) as peer:
        peer.report(5000)
        assert peer.read_data_frame()[0] == 5000


@pytest.mark.parametrize("said", [b"", b"\0\0\0", ha_handshake.ASK], ids=["nothing", "a part", "a greeting"])
def test_connections_without_a_report_need_no_thread_and_the_most_silent_are_closed(master, said, monkeypatch):
    monkeypatch.setattr(ha_service, "MAX_WAITING", 20)
    waiting = master.ha_service.accept_socket_service._waiting
    hear, heard = HAConnection.hear, []

    def noted(connection):
        goes_on = hear(connection)
        heard.append(connection.client_addr)
        return goes_on
    monkeypatch.setattr(HAConnection, "hear", noted)
    with Peer.connect(master) as slave, ExitStack() as stack:
        slave.report(5000)
        slave.read_data_frame()
        # The writer is started first, and may have sent before the reader runs.
        wait_until(lambda: {"ReadSocketService", "WriteSocketService"} <= {one.name for one in own_threads()})
        threads = own_threads()
        peers = []
        for number in range(60):
            peers.append(stack.enter_context(Peer.connect(master)))
            peers[-1].send(said)
            # A peer that arrives or sends later is less silent.
            own = "%s:%d" % peers[-1].sock.getsockname()
            wait_until(lambda own=own: own in heard if said else own in [one.client_addr for one in list(waiting)])
            wait_until(lambda count=number + 1: len(waiting) == min(count, 20))
        assert own_threads() <= threads
        wait_until(lambda: master.ha_service.connection_count.get() == 21)
        assert all(peer.is_closed() for peer in peers[:40])
        if not said:
            peers[-1].report(5000)
            assert peers[-1].read_data_frame()[0] == 5000
        master.put(10)
        assert slave.read_data_frame()[0] >= 5000
    wait_until(lambda: not waiting)


def questions(end, count):
    """Make the bytes of a slave that asks to compare its log of `end` bytes, with `count` questions at once."""
    question = ha_handshake.encode_question(ha_handshake.Question(0, [ha_handshake.Block(end, 1)]))
    who = ha_handshake.encode_who_compares(ha_handshake.WhoCompares("c/b/1", 0, end))
    return ha_handshake.ASK + who + question * count


@pytest.mark.parametrize("said", [questions(5000, 100), ha_handshake.ASK + ha_handshake.encode_who(
    ha_handshake.Who("c/b/1", 5000, 1000, 1))], ids=["blocks", "a tail"])
def test_comparing_a_log_blocks_no_other_connection(said, monkeypatch):
    asked, may_answer = threading.Event(), threading.Event()

    def slow(*arguments):
        asked.set()
        assert may_answer.wait(240)
        return read_tail(*arguments)

    monkeypatch.setattr(frame_format, "read_tail", slow)
    store = FakeStore(haHousekeepingInterval=60_000)
    for seed in range(5):
        store.put(1000, seed)
    with running(store), Peer.connect(store) as comparing:
        comparing.send(said)
        assert asked.wait(240)
        try:
            with Peer.connect(store) as slave:
                slave.report(4000)
                assert slave.read_data_frame()[0] == 4000
        finally:
            may_answer.set()


def test_comparing_connections_share_few_threads_and_the_most_silent_is_closed(master, monkeypatch):
    monkeypatch.setattr(ha_service, "MAX_COMPARING", 3)
    before = own_threads()
    with ExitStack() as stack:
        peers = [stack.enter_context(Peer.connect(master)) for _ in range(10)]
        for peer in peers:
            peer.send(questions(5000, 1))
            assert peer.read_frame()[0] == ha_handshake.HELLO_OFFSET
            assert peer.read_frame()[0] == ha_handshake.ANSWER_OFFSET
            wait_until(lambda: len(own_threads() - before) <= 3)
        assert all(peer.is_closed() for peer in peers[:7])
        peers[-1].send(ha_handshake.encode_finding(ha_handshake.Finding(ha_handshake.Verdict.DIVERGED, 0)))
        assert peers[-1].read_frame()[0] == ha_handshake.VERDICT_OFFSET
    wait_until(lambda: not master.ha_service.connection_list)


def test_connection_that_reports_nothing_expires(master):
    master.ha_service.config.haHousekeepingInterval = 100
    with Peer.connect(master) as peer:
        assert peer.is_closed()
    wait_until(lambda: not master.ha_service.accept_socket_service._waiting)


def test_serving_connections_come_and_go_without_a_trace(master):
    threads, descriptors = len(own_threads()), open_descriptors()
    for number in range(100):
        with Peer.connect(master) as peer:
            peer.report(5000)
            if number % 2:
                peer.read_data_frame()
    wait_until(lambda: master.ha_service.connection_count.get() == 0)
    wait_until(lambda: len(own_threads()) <= threads)
    wait_until(lambda: open_descriptors() <= descriptors)
    wait_until(lambda: master.shares == 0)
    wait_until(lambda: master.ha_service.wait_notify_object.waiting_threads == 0)


def test_shutdown_closes_connections_and_joins_their_threads():
    threads, descriptors = len(own_threads()), open_descriptors()
    store = FakeStore()
    store.put(1000)
    with running(store):
        peers = [Peer.connect(store) for _ in range(5)]
        for peer in peers[:3]:
            peer.report(0)
            peer.read_data_frame()
        wait_until(lambda: store.ha_service.connection_count.get() == 5)
    wait_until(lambda: len(own_threads()) <= threads)
    assert all(peer.is_closed() for peer in peers)
    for peer in peers:
        peer.close()
    wait_until(lambda: open_descriptors() <= descriptors)
    store.ha_service.shutdown()


def test_thread_names_are_javas(master):
    with Peer.connect(master) as peer:
        peer.report(5000)
        peer.read_data_frame()
        names = {"AcceptSocketService", "GroupTransferService", "HAClient", "ReadSocketService", "WriteSocketService"}
        wait_until(lambda: names <= {thread.name for thread in own_threads()})


def test_state_of_a_connection_is_visible(master):
    with Peer.connect(master) as peer:
        wait_until(lambda: master.ha_service.connection_list)
        (connection,) = master.ha_service.connection_list
        assert connection.state is HAConnectionState.READY
        peer.report(5000)
        wait_until(lambda: connection.state is HAConnectionState.TRANSFER)
        stats: dict[str, str] = {}
        master.ha_service.build_running_stats(stats)
        assert stats["haSlaveCount"] == "1"
        assert stats[f"haSlave_{connection.client_addr}"].startswith("TRANSFER,5000,")
    wait_until(lambda: connection.state is HAConnectionState.SHUTDOWN)


def test_start_offset_is_fixed_before_the_slave_counts(master, monkeypatch):
    """Otherwise a put could rely on the slave, and the log could roll to the next file before the start is known."""
    begin = ha_connection.WriteSocketService.start
    held = []
    monkeypatch.setattr(ha_connection.WriteSocketService, "start", lambda service: held.append(service))
    with Peer.connect(master) as peer:
        peer.report(0)
        wait_until(lambda: held and master.ha_service.slave_count())
        while master.get_max_phy_offset() < SEGMENT + 5000:
            master.put(3000)
        begin(held[0])
        assert peer.read_data_frame()[0] == 0
