"""What brokers tell, as a snapshot has it: no server."""
from rmqha.common.message.message import MessageQueue
from rmqha.common.protocol.table_bodies import ConsumeStats, ConsumeStatsList, OffsetWrapper
from rmqha.tools.admin.cluster_admin import Broker
from rmqha.tools.check_base import Status
from rmqha.tools.replication.ask import Told
from rmqha.tools.replication.views import MasterView, RefusedView, SlaveView
from rmqha.tools.view.snapshot import all_faults, at_one_moment, broker_state, group_states

BROKER = Broker("C", "broker-a", 0, "10.0.0.1:10911")


def test_a_broker_that_told_nothing_says_why():
    state = broker_state(Told(BROKER, error="no answer", alive=False))
    assert (state.error, state.address, state.put_total, state.disk_used) == ("no answer", BROKER.address, -1, None)


def test_a_runtime_table_becomes_numbers_and_what_is_odd_is_unknown():
    state = broker_state(Told(BROKER, {"brokerRole": "SYNC_MASTER", "mappedFileSizeCommitLog": "1024",
                                       "diskMaxUsedSpaceRatio": "88"},
                              {"commitLogMinOffset": "-1", "commitLogMaxOffset": "2049", "msgPutTotalTodayNow": "7",
                               "msgGetTotalTodayNow": "many", "commitLogDiskRatio": "0.42",
                               "consumeQueueDiskRatio": "-1.0", "dispatchBehindBytes": "-5"}))
    assert (state.role, state.log_size, state.segments, state.put_total) == ("SYNC_MASTER", 2049, 3, 7)
    assert (state.get_total, state.disk_used, state.queue_disk_used) == (-1, 0.42, None)
    assert (state.disk_limit, state.dispatch_behind) == (0.88, 0)


def test_groups_of_all_brokers_come_together_without_the_idle_ones_of_the_system():
    def told(broker, end, offset):
        stats = ConsumeStats({MessageQueue("T", broker, 0): OffsetWrapper(end, offset, 5)}, 1.5)
        return ConsumeStatsList([{"readers": [stats]}, {"TOOLS_CONSUMER": []}, {"CID_RMQ_SYS_X": []}, {"idle": []}])
    groups = group_states([told("broker-a", 10, 4), told("broker-b", 7, 7)])
    assert [(group.name, group.behind, group.tps) for group in groups] == [("idle", 0, 0), ("readers", 6, 3.0)]
    assert [place.broker for place in groups[1].places] == ["broker-a", "broker-b"]


def test_a_slave_that_was_asked_a_moment_after_its_master_does_not_lag():
    healthy = SlaveView("s:1", 1, state="TRANSFER", ack_offset=11, lag_bytes=-1, in_sync=False)
    ahead = SlaveView("s:2", 2, state="AHEAD", lag_bytes=-9, in_sync=False, status=Status.CRITICAL)
    state = at_one_moment(MasterView("C", "broker-a", "m:1", slaves=[healthy, ahead]))
    assert [(slave.lag_bytes, slave.in_sync) for slave in state.slaves] == [(0, True), (-9, False)]


def test_refused_slaves_and_a_master_without_an_answer_are_faults():
    view = MasterView("C", "broker-a", "m:1", refused=[RefusedView("s:9", 50, 0, 10)], error="it is silent")
    assert [(each.status, each.text[:12]) for each in all_faults(view)] == [
        (Status.CRITICAL, "s:9 is refus"), (Status.CRITICAL, "it is silent")]
