"""What is made of the answers of masters and slaves, whatever their kind."""
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqha.common.protocol.cluster_bodies import HAConnectionRuntimeInfo, HARuntimeInfo
from rmqha.tools.admin.cluster_admin import Broker, NoAnswerError, chosen
from rmqha.tools.check_base import Status
from rmqha.tools.replication import reader
from rmqha.tools.replication.ask import Told
from rmqha.tools.replication.reader import read_broker, sample_offsets
from rmqha.tools.replication.status import RateMeter, as_json, render
from rmqha.tools.terminal import CannotAnswerError
from tests.support.tiers import drawn

MASTER = Broker("C", "a", 0, "10.0.0.1:10911")
SLAVE = Broker("C", "a", 1, "10.0.0.2:10911")
OTHER = Broker("C", "a", 2, "10.0.0.3:10911")


class Answers:
    """Stands for ClusterAdmin: address -> (config, runtime table, answer to 907, newest store time).

    A broker may be a list of those: one for each look, the last one from then on.
    """

    timeout_millis = 60_000

    def __init__(self, records=None, **brokers):
        self._records = records or {}
        self._brokers = {name.replace("_", ".").replace("..", ":"): told for name, told in brokers.items()}

    def _told(self, address):
        for broker, told in ((MASTER, "master"), (SLAVE, "slave"), (OTHER, "other")):
            if broker.address == address and told in self._brokers:
                answers = self._brokers[told]
                return answers if isinstance(answers, tuple) else answers[0]
        raise NoAnswerError(f"the broker {address} can't be reached")

    def get_broker_config(self, address):
        return self._told(address)[0]

    def runtime_info(self, address):
        answer = self._told(address)[1]
        for answers in self._brokers.values():
            if isinstance(answers, list) and answers[0][1] is answer and len(answers) > 1:
                answers.pop(0)  # the last question of a look
        return answer

    def ha_runtime_info(self, address):
        return self._told(address)[2]

    def view_record(self, address, offset):
        return self._records.get(address, b"same") if offset == 0 else b"same"

    def newest_store_timestamp(self, address, _deadline):
        return self._told(address)[3]


def read_group(admin, group):
    return reader.read_group(admin, group, patience_s=0)


def broker(role, end, info=None, newest=None, begin=0, config=None, **table):
    return ({"brokerRole": role, "brokerName": "a", "haSlaveFallbehindMax": "1000", **(config or {})},
            {"commitLogMinOffset": str(begin), "commitLogMaxOffset": str(end), "brokerVersionDesc": "V", **table},
            info, newest)


def connection(address, acked, end, **fields):
    return HAConnectionRuntimeInfo(address, acked, end - acked, end - acked < 1000, **fields)


def master_of_5(end, *connections):
    return HARuntimeInfo(True, end, 0, list(connections))


def test_slaves_of_a_49_master_are_asked_themselves():
    view = read_group(Answers(master=broker("ASYNC_MASTER", 5000, newest=9_000),
                              slave=[broker("SLAVE", 3000), broker("SLAVE", 3500, newest=2_500)]), [MASTER, SLAVE])
    (slave,) = view.slaves
    assert (slave.state, slave.ack_offset, slave.lag_bytes, slave.lag_seconds) == ("FOLLOWS", 3500, 1500, 6.5)
    assert slave.in_sync is False and slave.rate is None and slave.status is Status.OK


def test_connection_and_registered_slave_of_one_host_are_one():
    info = master_of_5(5000, connection("10.0.0.2:40001", 4900, 5000, transferredByteInSecond=77))
    view = read_group(Answers(master=broker("SYNC_MASTER", 5000, info, 10_000),
                              slave=[broker("SLAVE", 4900, None, 9_000), broker("SLAVE", 4950, None, 9_000)]),
                      [MASTER, SLAVE])
    (slave,) = view.slaves
    assert (slave.address, slave.connection, slave.broker_id) == (SLAVE.address, "10.0.0.2:40001", 1)
    assert (slave.ack_offset, slave.lag_bytes, slave.lag_seconds, slave.rate) == (4900, 100, 1.0, 77)
    assert (slave.state, slave.in_sync) == ("CONNECTED", True)


def test_state_and_time_of_an_rmqha_master_are_taken():
    info = master_of_5(5000, connection("10.0.0.2:40001", 4000, 5000))
    told = {"haSlave_10.0.0.2:40001": "TRANSFER,4000,1000,5,6,x", "haSlaveLagMs_10.0.0.2:40001": "1234"}
    (slave,) = read_broker(Answers(master=broker("SYNC_MASTER", 5000, info, **told)), MASTER).slaves
    assert (slave.state, slave.lag_seconds, slave.in_sync) == ("TRANSFER", 1.234, False)


def test_slave_without_a_connection_is_shown():
    info = master_of_5(5000, connection("10.0.0.2:40001", 5000, 5000))
    view = read_group(Answers(master=broker("SYNC_MASTER", 5000, info, 10), slave=broker("SLAVE", 5000),
                              other=broker("SLAVE", 100, None, 5)), [MASTER, SLAVE, OTHER])
    assert [(slave.address, slave.state) for slave in view.slaves] == [(SLAVE.address, "CONNECTED"),
                                                                       (OTHER.address, "NOT_CONNECTED")]
    told = broker("SLAVE", 100, haClientState="APPEND_FAILED", haClientLastError="disk is full")
    view = read_group(Answers(master=broker("SYNC_MASTER", 5000, info, 10), slave=broker("SLAVE", 5000), other=told),
                      [MASTER, SLAVE, OTHER])
    assert (view.slaves[1].state, view.slaves[1].note) == ("APPEND_FAILED", "disk is full")


def test_slave_whose_first_record_is_another_has_diverged():
    records = {SLAVE.address: b"other"}
    view = read_group(Answers(records, master=broker("ASYNC_MASTER", 5000), slave=broker("SLAVE", 5000)),
                      [MASTER, SLAVE])
    assert [(slave.state, slave.status) for slave in view.slaves] == [("DIVERGED", Status.CRITICAL)]
    assert "its record at 0 is not its master's" in render(view)


def told(begin, end, **config):
    return Told(MASTER, {"mappedFileSizeCommitLog": "1000", **config},
                {"commitLogMinOffset": str(begin), "commitLogMaxOffset": str(end)})


@pytest.mark.parametrize(("master", "slave", "offsets"), [
    (told(0, 5000), told(0, 3500), [0, 3000]),
    (told(0, 5000), told(0, 3000), [0, 2000]),
    (told(0, 500), told(0, 300), [0]),
    (told(2000, 5000), told(0, 3500), [2000, 3000]),
    (told(2000, 5000), told(0, 1500), []),
    (told(0, 5000), told(0, 0), []),
    (told(0, 5000), told(0, 5000, mappedFileSizeCommitLog="2000"), []),
])
def test_samples_are_where_files_begin_that_both_hold(master, slave, offsets):
    assert sample_offsets(master, slave) == offsets


def test_slave_that_gives_no_answer_is_shown():
    view = read_group(Answers(master=broker("ASYNC_MASTER", 5000, newest=9_000)), [MASTER, SLAVE])
    assert [(slave.state, slave.in_sync) for slave in view.slaves] == [("UNREACHABLE", False)]


def test_slave_ahead_of_its_master_is_no_good_one():
    view = read_group(Answers(master=broker("ASYNC_MASTER", 5000), slave=broker("SLAVE", 6000)), [MASTER, SLAVE])
    (slave,) = view.slaves
    assert (slave.state, slave.lag_bytes, slave.lag_seconds, slave.in_sync) == ("AHEAD", -1000, None, False)
    assert "1000 bytes more than its master" in render(view)


def test_refused_slaves_are_shown_with_the_reason():
    table = {"haRefusedSlave_10.0.0.9_7000": "7000,0,5000", "haRefusedSlave_fd00::1_5": "5,100,5000"}
    view = read_broker(Answers(master=broker("SYNC_MASTER", 5000, master_of_5(5000), **table)), MASTER)
    assert [each.address for each in view.refused] == ["10.0.0.9", "fd00::1"]
    diverged = read_broker(Answers(master=broker("SYNC_MASTER", 5000, None, haRefusedSlave_h_9="4000,0,5000")), MASTER)
    assert "REFUSED h: its log is another one: before 4000" in render(diverged)
    text = render(view)
    assert "REFUSED 10.0.0.9: it is ahead of the master: it asks for 7000, the master ends at 5000" in text
    assert "REFUSED fd00::1: it is too far behind: it asks for 5, the master begins at 100" in text
    assert "is ahead" in as_json(view)["refused"][0]["reason"]


def test_unreachable_master_and_slaves_without_one_are_said():
    view = read_group(Answers(), [MASTER])
    assert "UNREACHABLE: the broker 10.0.0.1:10911 can't be reached" in render(view)
    view = read_group(Answers(slave=broker("SLAVE", 5000)), [SLAVE])
    assert "no master of this name is registered" in render(view) and view.slaves[0].ack_offset == 5000


def test_rate_of_a_slave_comes_from_two_looks():
    def look(end):
        return read_group(Answers(master=broker("ASYNC_MASTER", 9000), slave=broker("SLAVE", end)), [MASTER, SLAVE])
    meter, first, second = RateMeter(), look(1000), look(4000)
    meter.fill_in([first], 10.0)
    meter.fill_in([second], 12.0)
    assert (first.slaves[0].rate, second.slaves[0].rate) == (None, 1500)


@pytest.mark.parametrize(("cluster", "name", "text"), [
    ("D", None, "no cluster 'D' at the name server; it knows C"),
    (None, "10.0.0.1:10912", "did you mean 10.0.0.1:10911?"),
    (None, "zzz", "no broker 'zzz' at the name server; it knows"),
])
def test_unknown_names_get_the_nearest(cluster, name, text):
    with pytest.raises(CannotAnswerError) as failed:
        chosen([MASTER, SLAVE], cluster, name)
    assert text in failed.value.message


def test_broker_may_be_given_by_name_or_any_of_its_addresses():
    lone = Broker("C", "b", 0, "10.0.0.4:10911")
    for name in ("a", MASTER.address, SLAVE.address):
        assert chosen([MASTER, SLAVE, lone], "C", name) == [MASTER, SLAVE]


@settings(max_examples=drawn(200), deadline=None)
@given(st.dictionaries(st.sampled_from(["commitLogMaxOffset", "haRefusedSlave_h_1", "haRefusedSlave_", "haSlave_h:1",
                                        "haSlaveLagMs_h:1", "haClientState", "commitLogMinOffset"]), st.text()),
       st.dictionaries(st.sampled_from(["brokerId", "brokerRole", "haSlaveFallbehindMax"]), st.text()))
def test_any_answer_is_shown_or_refused(table, config):
    answer = ({**config}, table, master_of_5(5, connection("h:1", 1, 5)), None)
    try:
        render(read_group(Answers(master=answer, slave=answer), [MASTER, SLAVE]))
    except CannotAnswerError as error:
        assert "no number" in error.message
