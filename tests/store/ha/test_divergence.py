"""A slave that notices that its queues are not its master's says so, and goes on saying so until they are mended."""
import pytest

from rmqha.common.protocol.cluster_bodies import HARuntimeInfo
from rmqha.remoting.protocol import remoting_serializable
from rmqha.store.ha.log_comparison import Divergence
from rmqha.store.message_store_config import BrokerRole
from rmqha.tools.store_files.readers import StoreReader
from rmqha.tools.store_files.rebuild import apply
from tests.store.support import message, open_store, put, wait_dispatched


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
    """A log of ten messages of one queue."""
    with open_store(tmp_path / "master") as master:
        put(master, *(message(body=b"%d" % number * 100) for number in range(10)))
        with master.get_commit_log_data(0) as result:
            return bytes(result.buffer[:master.get_max_phy_offset()])


def start_of(records: bytes, number: int) -> int:
    size = len(records) // 10
    assert len(records) == size * 10
    return size * number


@pytest.mark.parametrize("repeated", [True, False], ids=["repeatedly", "order maybe wrong"])
def test_record_whose_index_does_not_fit_is_divergence(records, repeated, tmp_path):
    fifth = start_of(records, 5)
    with open_store(tmp_path / "slave", brokerRole=BrokerRole.SLAVE) as slave:
        slave.append_to_commit_log(0, records, 0, fifth)
        wait_dispatched(slave)
        queue = slave.get_consume_queue("T", 0)
        if repeated:  # a unit of a message that the master does not have
            queue.put_message_position_info(fifth - 50, 60, 0, 5)
            queue.max_physic_offset = fifth
        else:  # the records whose units are missing are not in the log
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


def test_master_does_not_call_it_divergence(records, tmp_path):
    with open_store(tmp_path / "store") as store:
        queue = store.find_consume_queue("T", 0)
        assert queue.put_message_position_info(0, 50, 0, 0)
        assert queue.put_message_position_info(50, 50, 0, 1) and queue.put_message_position_info(100, 50, 0, 1)
        assert store.ha_service.divergence.found is None


def test_finding_outlives_a_restart_and_ends_with_a_rebuild(records, tmp_path):
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


def test_log_comes_before_queues_and_is_forgotten_when_it_fits(tmp_path):
    divergence = Divergence(str(tmp_path / "file"))
    divergence.queue_does_not_fit(7, "queue")
    divergence.log_differs(3, "log")
    assert divergence.found == (3, "log")
    divergence.log_fits()
    assert divergence.found == (7, "queue")
    divergence.queues_are_mended()
    assert divergence.found is None and not (tmp_path / "file").exists()


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"offset": "x", "reason": "", "count": 1}', b"\xff"])
def test_file_that_can_not_be_read_is_said_and_left(tmp_path, content, caplog):
    (tmp_path / "file").write_bytes(content)
    divergence = Divergence(str(tmp_path / "file"))
    divergence.load()
    assert divergence.found is None and "is not known" in caplog.text
