"""What a slave is, by what master, slave and name server say: each broken pair, and the healthy ones beside."""
import threading

import pytest

from rmqha.tools.admin.cluster_admin import RefusedError
from rmqha.tools.check_base import Status
from rmqha.tools.replication.ask import ask_all
from rmqha.tools.replication.reader import Group, Reader
from tests.tools.replication.test_replication import (
    MASTER,
    OTHER,
    SLAVE,
    Answers,
    broker,
    connection,
    master_of_5,
    read_group,
)

HA = {"brokerIP2": "10.0.0.1", "haListenPort": "10912", "haSendHeartbeatInterval": "5000"}
END = "10.0.0.2:40001"  # the slave's end of its connection


def java_master(end, **table):
    return broker("ASYNC_MASTER", end, config=HA, **table)


def our_master(end, acked=None, address=END, **table):
    """An rmqha master with a connection that has acknowledged `acked`."""
    told = {f"haSlave_{address}": f"TRANSFER,{acked},0,0,0,{address.partition(':')[0]}"} if acked is not None else {}
    connections = [connection(address, acked, end)] if acked is not None else []
    return broker("ASYNC_MASTER", end, master_of_5(end, *connections), config=HA, **told, **table)


def our_slave(end, state="TRANSFER", address=END, follows="10.0.0.1:10912", **table):
    return broker("SLAVE", end, config=HA, haClientState=state, haClientAddress=address, haMasterAddress=follows,
                  **{"haClientSilenceMs": "100", "haClientLastError": "", **table})


def java_slave(end, follows=None, **config):
    return broker("SLAVE", end, config={**HA, **({"haMasterAddress": follows} if follows else {}), **config})


CRITICAL, UNKNOWN, WARNING, OK = Status.CRITICAL, Status.UNKNOWN, Status.WARNING, Status.OK


@pytest.mark.parametrize(("master", "slave", "state", "status"), [
    # healthy
    (our_master(5000, 5000), our_slave(5000), "TRANSFER", OK),
    (our_master(5000, 5000), java_slave(5000), "TRANSFER", OK),
    (java_master(5000), our_slave(5000), "TRANSFER", OK),
    ([java_master(5000), java_master(6000)], [java_slave(5000), java_slave(6000)], "FOLLOWS", OK),
    # nobody tells
    (java_master(5000), java_slave(5000), "IDLE", UNKNOWN),
    (java_master(0), java_slave(0), "IDLE", UNKNOWN),
    # never connected
    (our_master(5000), our_slave(0, "READY", "", haClientLastError="refused"), "NOT_CONNECTED", CRITICAL),
    (our_master(5000), java_slave(0), "NOT_CONNECTED", CRITICAL),
    (java_master(5000), our_slave(0, "READY", ""), "NOT_CONNECTED", CRITICAL),
    (java_master(0), our_slave(0, "READY", "10.0.0.2:4"), "NOT_CONNECTED", CRITICAL),
    (java_master(5000), java_slave(0), "STANDS_STILL", CRITICAL),
    # one direction only
    (our_master(5000, 5000), our_slave(5000, haClientSilenceMs="11500"), "SILENT", CRITICAL),
    (our_master(5000, 5000, **{f"haSlaveSilenceMs_{END}": "11500"}), our_slave(5000), "SILENT", CRITICAL),
    (our_master(5000, 5000, **{f"haSlaveRetransmits_{END}": "4"}), java_slave(5000), "SILENT", CRITICAL),
    (java_master(5000), our_slave(5000, haClientRetransmits="5"), "SILENT", CRITICAL),
    (our_master(5000, 4000), our_slave(4000), "STANDS_STILL", CRITICAL),
    # logs that don't fit
    (java_master(5000), java_slave(6000), "AHEAD", CRITICAL),
    (broker("ASYNC_MASTER", 5000, config=HA, begin=3000), java_slave(2000), "TOO_FAR_BEHIND", CRITICAL),
    (our_master(5000, 5000), our_slave(5000, haDivergedReason="index", haDivergedOffset="7"), "DIVERGED", CRITICAL),
    (our_master(5000), our_slave(4000, "OFFSET_REFUSED"), "OFFSET_REFUSED", CRITICAL),
    (our_master(5000), our_slave(4000, "APPEND_FAILED"), "APPEND_FAILED", CRITICAL),
    # somebody else
    (our_master(5000), our_slave(4000, follows="10.0.0.9:10912"), "NOT_CONNECTED", CRITICAL),
    (java_master(5000), our_slave(5000, follows="10.0.0.3:10912"), "IDLE", UNKNOWN),
    (java_master(5000), java_slave(5000, "10.0.0.9:10912"), "IDLE", UNKNOWN),
    ([java_master(5000), java_master(6000)], [java_slave(5000, "10.0.0.9:1"), java_slave(6000, "10.0.0.9:1")],
     "FOLLOWS", WARNING),
    (our_master(5000, 5000), java_slave(5000, brokerName="b"), "NO_SLAVE", CRITICAL),
    (our_master(5000, 5000), broker("ASYNC_MASTER", 5000, config=HA), "NO_SLAVE", CRITICAL),
])
def test_slave_is_what_is_proved(master, slave, state, status):
    view = read_group(Answers(master=master, slave=slave), [MASTER, SLAVE])
    assert (view.slaves[0].state, view.slaves[0].status) == (state, status), view.slaves[0].note
    assert status is OK or view.slaves[0].note
    assert status is not CRITICAL or view.slaves[0].in_sync is False


@pytest.mark.parametrize("slave", [our_slave(0, "READY", ""), java_slave(3000), java_slave(0)])
def test_receiver_on_the_slaves_host_does_not_make_up_for_it(slave):
    view = read_group(Answers(master=our_master(5000, 1), slave=slave), [MASTER, SLAVE])
    one, stranger = view.slaves
    assert (one.state, one.status) == ("NOT_CONNECTED", CRITICAL)
    assert (stranger.registered, stranger.counts, stranger.status) == (False, False, WARNING)


def test_slave_that_names_itself_counts_although_nobody_lists_it():
    master = our_master(5000, 5000)
    master[1][f"haSlave_{END}"] = "TRANSFER,5000,0,0,0,C/a/1"
    (stranger,) = read_group(Answers(master=master), [MASTER]).slaves
    assert (stranger.registered, stranger.counts, stranger.status) == (False, True, WARNING)


def test_connection_of_another_host_may_be_the_slaves_but_is_no_proof():
    view = read_group(Answers(master=our_master(5000, 5000, "10.9.9.9:1"), slave=java_slave(5000)), [MASTER, SLAVE])
    assert (view.slaves[0].state, view.slaves[0].status) == ("IDLE", UNKNOWN)


def test_master_that_another_address_leads_to_is_asked_who_it_is():
    other = broker("ASYNC_MASTER", 7000, config={**HA, "brokerName": "b", "brokerId": "0"})
    view = read_group(Answers(master=java_master(5000), slave=our_slave(4000, follows="10.0.0.3:10912"), other=other),
                      [MASTER, SLAVE])
    assert view.slaves[0].state == "OTHER_MASTER" and "that is b 0 at 10.0.0.3:10911" in view.slaves[0].note


def test_broker_that_refuses_the_question_is_unknown_not_bad():
    class Refusing(Answers):
        def get_broker_config(self, address):
            if address == SLAVE.address:
                raise RefusedError("no permission", 16)
            return super().get_broker_config(address)
    view = read_group(Refusing(master=java_master(5000)), [MASTER, SLAVE])
    assert [(each.state, each.status) for each in view.slaves] == [("NOT_TOLD", UNKNOWN)]
    view = read_group(Refusing(slave=java_slave(5)), [SLAVE])
    assert view.error == "no master of this name is registered"


def test_message_of_a_probe_makes_a_pair_at_rest_known():
    sent = []
    answers = Answers(master=[java_master(5000), java_master(6000)], slave=[java_slave(5000), java_slave(5000),
                                                                           java_slave(6000)])
    (view,) = Reader(answers, 30, sent.append).read([Group([MASTER, SLAVE])])
    assert sent == [MASTER] and [(each.state, each.status) for each in view.slaves] == [("FOLLOWS", OK)]


def test_two_brokers_of_one_id_are_a_fault():
    twin = type(SLAVE)("C", "a", 1, OTHER.address)
    view = read_group(Answers(master=our_master(5000), slave=our_slave(5000), other=our_slave(5000)),
                      [MASTER, SLAVE, twin])
    assert [fault.status for fault in view.faults] == [CRITICAL] and "a 1 is listed at" in view.faults[0].text


def test_broker_that_stands_still_holds_up_nobody_elses_answer():
    released = threading.Event()

    class Standing(Answers):
        timeout_millis = 200

        def get_broker_config(self, address):
            if address == SLAVE.address:
                released.wait(240)
            return super().get_broker_config(address)
    look = ask_all(Standing(master=java_master(5000), slave=java_slave(5000)), [MASTER, SLAVE])
    released.set()
    assert look[MASTER].answered and not look[SLAVE].alive and "answers too slowly" in look[SLAVE].error
