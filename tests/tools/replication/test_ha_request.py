"""Request 907 and the times of replication: what rmqha tells, read by itself and by RocketMQ 5.1.4's own haStatus."""
import json

import pytest

from rmqha.common.protocol import request_code
from rmqha.tools.admin.cluster_admin import ClusterAdmin
from tests.store.ha.support import Peer
from tests.support import real_rocketmq_5
from tests.support.java_mqadmin import JavaMqadmin
from tests.support.wait import wait_until

_FIELDS = {"master", "masterCommitLogMaxOffset", "inSyncSlaveNums", "haConnectionInfo", "haClientRuntimeInfo"}


@pytest.fixture
def admin(cluster):
    with ClusterAdmin(cluster.namesrv) as made:
        yield made


@pytest.fixture
def only_slave(cluster):
    """The cluster's slave is the one connection of its master, and has all: peers of other tests have left."""
    store = cluster.master.store
    wait_until(lambda: [peer.slave_ack_offset for peer in store.ha_service.connection_list]
               == [store.get_max_phy_offset()], what="only the slave is connected")


@pytest.mark.usefixtures("only_slave")
def test_master_tells_its_slaves_in_5s_fields(cluster):
    answer = json.loads(cluster.master.call(request_code.GET_BROKER_HA_STATUS).body)
    assert set(answer) == _FIELDS
    end = cluster.master.store.get_max_phy_offset()
    assert answer["master"] is True and answer["masterCommitLogMaxOffset"] == end
    (slave,) = answer["haConnectionInfo"]
    assert set(slave) == {"addr", "slaveAckOffset", "diff", "inSync", "transferredByteInSecond", "transferFromWhere"}
    assert (slave["slaveAckOffset"], slave["diff"], slave["inSync"]) == (end, 0, True)


def test_slave_tells_its_own_side(cluster):
    answer = json.loads(cluster.slave.call(request_code.GET_BROKER_HA_STATUS).body)
    assert set(answer) == _FIELDS and answer["master"] is False
    client = answer["haClientRuntimeInfo"]
    assert client["masterAddr"] == cluster.ha_address
    assert client["maxOffset"] == cluster.slave.store.get_max_phy_offset()


def test_runtime_table_tells_by_how_much_time_a_slave_is_behind(cluster, admin):
    store = cluster.master.store
    begin = store.get_max_phy_offset()
    cluster.send(1)
    first = store.get_max_phy_offset()
    wait_until(lambda: cluster.master.send("T").code in (0, 12) and _newest(cluster, admin) > _stored(cluster, begin),
               60_000, "a message that was stored later")
    with Peer.connect(store) as peer:
        peer.report(first - 10)  # within a record: the next one counts
        name = f"haSlaveLagMs_127.0.0.1:{peer.sock.getsockname()[1]}"
        table = wait_until(lambda: (told := admin.runtime_info(cluster.master.address)) and name in told and told,
                           60_000, "the peer is told")
    assert int(table[name]) == int(table["haNewestStoreTimestamp"]) - _stored(cluster, first)


def _stored(cluster, offset):
    with cluster.master.store.select_one_message_by_offset(offset) as result:
        return int.from_bytes(result.buffer[56:64])


def _newest(cluster, admin):
    return int(admin.runtime_info(cluster.master.address)["haNewestStoreTimestamp"])


def ha_status(folder, namesrv, address):
    """What 5.1.4's mqadmin haStatus prints: its lines that are no log."""
    done = JavaMqadmin(folder, real_rocketmq_5.VERSION).run("haStatus", "-n", namesrv, "-b", address)
    assert done.returncode == 0, done.stdout + done.stderr
    return [line.split() for line in done.stdout.splitlines() if line.startswith("#") or line[:1].isdigit()]


@pytest.mark.java
@pytest.mark.usefixtures("only_slave")
def test_mqadmin_of_514_shows_a_master_and_its_slave(cluster, tmp_path):
    cluster.send(1)
    end = str(cluster.master.store.get_max_phy_offset())
    lines = ha_status(tmp_path, cluster.namesrv, cluster.master.address)
    assert ["#MasterAddr", cluster.master.address] in lines and ["#MasterCommitLogMaxOffset", end] in lines
    assert ["#SlaveNum", "1"] in lines and ["#InSyncSlaveNum", "1"] in lines
    address, acked, diff, _speed, status, where = lines[-1]
    assert address.startswith("127.0.0.1:") and (acked, diff, status, where) == (end, "0", "OK", end)
