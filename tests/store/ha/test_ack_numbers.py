"""How many replicas must have a message: the keys of 5.x, and 4.9's rule while they are not set."""
from contextlib import ExitStack, contextmanager

import pytest

from rmqha.store.flush_services import GroupCommitRequest
from rmqha.store.ha import ha_handshake
from rmqha.store.ha.ha_handshake import Who
from rmqha.store.message_store_config import BrokerRole
from rmqha.store.results import PutMessageStatus
from tests.store.ha.support import FakeStore, Peer, running
from tests.store.support import message, open_store
from tests.support.wait import wait_until

EVERY, NONE, ANY = -1, 0, 1
RECORDS = 20


@contextmanager
def slaves(*names: str, **keys):
    """A running store of 20 records of 1000 bytes, and a peer of each name that holds them all."""
    store = FakeStore(haHandshakeEnable=True, haHousekeepingInterval=60_000, **keys)
    for seed in range(RECORDS):
        store.put(1000, seed)
    with running(store), ExitStack() as stack:
        peers = [stack.enter_context(introduced(store, name)) for name in names]
        wait_until(lambda: store.ha_service.slave_count() == len(set(names)), 60_000)
        yield store, dict(zip(names, peers))


def introduced(store: FakeStore, name: str) -> Peer:
    peer = Peer.connect(store)
    peer.send(ha_handshake.ASK + ha_handshake.encode_who(Who(name, 0, 0, 0)))
    peer.read(34 + 30)
    peer.report(store.get_max_phy_offset())
    return peer


@pytest.mark.parametrize("keys, in_sync_slaves, need", [
    ({}, 0, ANY), ({}, 2, ANY), ({"totalReplicas": 3}, 0, ANY),
    ({"inSyncReplicas": 2}, 0, None), ({"inSyncReplicas": 2}, 1, 2), ({"inSyncReplicas": 3}, 1, None),
    ({"inSyncReplicas": 3}, 2, 3), ({"inSyncReplicas": 2}, 2, 2),
    ({"minInSyncReplicas": 2}, 0, None), ({"minInSyncReplicas": 2}, 1, ANY),
    ({"inSyncReplicas": 3, "enableAutoInSyncReplicas": True}, 2, 3),
    ({"inSyncReplicas": 3, "enableAutoInSyncReplicas": True}, 1, 2),
    ({"inSyncReplicas": 3, "enableAutoInSyncReplicas": True}, 0, NONE),
    ({"inSyncReplicas": 3, "enableAutoInSyncReplicas": True, "minInSyncReplicas": 2}, 0, None),
    ({"inSyncReplicas": 3, "enableAutoInSyncReplicas": True, "minInSyncReplicas": 2}, 1, 2),
    ({"allAckInSyncStateSet": True}, 0, EVERY), ({"allAckInSyncStateSet": True}, 2, EVERY),
    ({"allAckInSyncStateSet": True, "minInSyncReplicas": 2}, 0, None),
    ({"allAckInSyncStateSet": True, "minInSyncReplicas": 2, "inSyncReplicas": 3}, 1, EVERY)])
def test_number_of_acknowledgements_follows_the_keys(keys, in_sync_slaves, need):
    with slaves(*"abc"[:in_sync_slaves], **keys) as (store, _peers):
        assert store.ha_service.ack_rule.need_ack_nums() == need


def test_request_waits_for_as_many_slaves_as_it_asks_for():
    with slaves("a", "b", "c") as (store, peers):
        end = store.put(1000)
        requests = {ack_nums: GroupCommitRequest(end, 60_000, ack_nums) for ack_nums in (EVERY, 1, 2, 3, 4)}
        for request in requests.values():
            store.ha_service.put_request(request)
        for name, done in (("b", {1, 2}), ("a", {1, 2, 3}), ("c", {1, 2, 3, 4, EVERY})):
            peers[name].read_data_frame()
            peers[name].report(end)
            wait_until(lambda done=done: done == {n for n, r in requests.items() if r.future.is_done}, 60_000)
        assert all(request.future.get(0) is PutMessageStatus.PUT_OK for request in requests.values())


def test_connections_of_one_slave_count_once():
    with slaves("a") as (store, _peers), introduced(store, "a") as again:
        end = store.put(1000)
        request = GroupCommitRequest(end, 300, 3)
        again.read_data_frame()
        again.report(end)
        wait_until(lambda: store.ha_service.push2_slave_max_offset.get() == end, 60_000)
        store.ha_service.put_request(request)
        assert request.future.get(120_000) is PutMessageStatus.FLUSH_SLAVE_TIMEOUT


def test_slave_that_goes_is_not_counted_any_more():
    with slaves("a", "b") as (store, peers):
        assert store.ha_service.ack_rule.acked_offset(3) == RECORDS * 1000
        peers["a"].close()
        wait_until(lambda: store.ha_service.slave_count() == 1, 60_000)
        assert store.ha_service.ack_rule.acked_offset(3) == -1


def test_every_slave_in_sync_does_not_mean_those_far_behind():
    with slaves("a", "b", haMaxGapNotInSync=5000) as (store, peers):
        for seed in range(10):
            end = store.put(1000, seed)
        peers["a"].read_data_frame()
        wait_until(lambda: all(c.transfer_from_where == end for c in store.ha_service.connection_list), 60_000)
        peers["a"].report(end)
        wait_until(lambda: store.ha_service.ack_rule.acked_offset(EVERY) == end, 60_000)
        assert store.ha_service.ack_rule.in_sync_replicas_nums(end) == 2


def test_every_slave_means_at_least_one():
    with slaves() as (store, _peers):
        assert store.ha_service.ack_rule.acked_offset(EVERY) == -1


def test_too_few_replicas_refuse_the_message_before_it_is_written(tmp_path):
    with open_store(tmp_path, brokerRole=BrokerRole.SYNC_MASTER, inSyncReplicas=2) as store:
        result = store.put_message(message())
        assert result.put_message_status is PutMessageStatus.IN_SYNC_REPLICAS_NOT_ENOUGH
        assert result.append_message_result is None and store.get_max_phy_offset() == 0
        unacknowledged = message(WAIT="false")
        assert store.put_message(unacknowledged).put_message_status is PutMessageStatus.PUT_OK


def test_asynchronous_master_asks_nobody(tmp_path):
    with open_store(tmp_path, brokerRole=BrokerRole.ASYNC_MASTER, inSyncReplicas=3, minInSyncReplicas=2) as store:
        assert store.put_message(message()).put_message_status is PutMessageStatus.PUT_OK


def test_automatic_number_lets_a_lone_master_go_on(tmp_path):
    with open_store(tmp_path, brokerRole=BrokerRole.SYNC_MASTER, inSyncReplicas=2,
                    enableAutoInSyncReplicas=True) as store:
        assert store.put_message(message()).put_message_status is PutMessageStatus.PUT_OK
