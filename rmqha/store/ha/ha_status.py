"""What an operator asks about replication."""
from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rmqha.common.protocol.cluster_bodies import HAClientRuntimeInfo, HAConnectionRuntimeInfo, HARuntimeInfo
from rmqha.remoting.addresses import retransmits
from rmqha.store.config.message_store_config import BrokerRole
from rmqha.store.ha.ha_connection_state import HAConnectionState

if TYPE_CHECKING:
    from rmqha.store.ha.ha_connection import HAConnection
    from rmqha.store.ha.ha_service import HAService

_MASTER_FLUSH_OFFSET_UNKNOWN = -1


def runtime_info(ha_service: HAService, master_put_where: int) -> HARuntimeInfo:
    """A slave's connection to its master, or a master's slaves: those that serve, by connection."""
    if ha_service.config.brokerRole is BrokerRole.SLAVE:
        return HARuntimeInfo(master=False, haClientRuntimeInfo=_client_info(ha_service))
    connections = [_connection_info(ha_service, connection, master_put_where)
                   for connection in ha_service.connection_list if connection.is_serving]
    return HARuntimeInfo(True, master_put_where, ha_service.in_sync_replicas_nums(master_put_where) - 1, connections)


def _connection_info(ha_service: HAService, connection: HAConnection, put_where: int) -> HAConnectionRuntimeInfo:
    acked = connection.slave_ack_offset
    return HAConnectionRuntimeInfo(
        addr=connection.client_addr, slaveAckOffset=acked, diff=put_where - acked,
        inSync=ha_service.is_in_sync(put_where, acked),
        transferredByteInSecond=connection.transferred_byte_in_second,
        transferFromWhere=connection.transfer_from_where)


def _client_info(ha_service: HAService) -> HAClientRuntimeInfo:
    client, diverged = ha_service.ha_client, ha_service.divergence.found
    return HAClientRuntimeInfo(
        masterAddr=client.master_address, transferredByteInSecond=client.transferred_byte_in_second,
        maxOffset=ha_service.default_message_store.get_max_phy_offset(),
        lastReadTimestamp=client.last_read_timestamp, lastWriteTimestamp=client.last_write_timestamp,
        masterFlushOffset=_MASTER_FLUSH_OFFSET_UNKNOWN, state=_client_state(ha_service),
        divergedOffset=diverged.offset if diverged is not None else -1,
        divergedReason=diverged.reason if diverged is not None else None)


def _client_state(ha_service: HAService) -> str:
    """DIVERGED comes before all: a slave with wrong queues may be connected, and in step with its master."""
    diverged = ha_service.divergence.found is not None
    return (HAConnectionState.DIVERGED if diverged else ha_service.ha_client.state).value


def build_running_stats(ha_service: HAService, stats: dict[str, str]) -> None:
    """Add the state to a broker's runtime information.

    `haSlave_<ip:port>` = state, ack offset, bytes behind, ms behind, bytes sent in the last second, identity.
    `haSlaveLost_<ip:port>` = from, to: what it had acknowledged, came back without, and is being sent again.
    `haSlaveSilenceMs_<ip:port>`, `haClientSilenceMs`: for how long the other side has said nothing.
    `haSlaveRetransmits_<ip:port>`, `haClientRetransmits`: how often in a row the kernel has sent the same bytes to it.
    `haClientAddress`: the slave's end of its connection, as its master names it when no proxy is between.
    `haRefusedSlave_<ip>_<offset>` = the offset, the master's lowest and highest; with a handshake also the offset up to
    which both are the same, when the slave has found it.
    On a slave: haMasterAddress, haClientState, haClientLastError, and when it has diverged (haClientState is DIVERGED
    then) haDivergedOffset, haDivergedReason and haDivergedCount, the number of records that did not fit their queue.
    On a slave also what it has verified and compared: haVerified..., haVerifyFail..., haScrub..., see `_add_checks`.
    `haCutOff` = where its log was cut off to rejoin, where it had ended, the file that has what was cut off.
    """
    highest = ha_service.default_message_store.get_max_phy_offset()
    stats["haConnectionCount"] = str(ha_service.connection_count.get())
    stats["haSlaveCount"] = str(ha_service.slave_count())
    stats["haPush2SlaveMaxOffset"] = str(ha_service.push2_slave_max_offset.get())
    for connection in ha_service.connection_list:
        acked = connection.slave_ack_offset
        stats[f"haSlave_{connection.client_addr}"] = (
            f"{connection.state.value},{acked},{highest - max(0, acked)},{connection.behind_ms()},"
            f"{connection.transferred_byte_in_second},{connection.slave_identity}")
        if connection.lost_from is not None and connection.is_serving and acked < connection.lost_from[1]:
            stats[f"haSlaveLost_{connection.client_addr}"] = f"{connection.lost_from[0]},{connection.lost_from[1]}"
        stats[f"haSlaveSilenceMs_{connection.client_addr}"] = str(connection.silence_ms())
        stats[f"haSlaveRetransmits_{connection.client_addr}"] = str(retransmits(connection.socket))
    for refused in ha_service.refused_slaves():
        stats[f"haRefusedSlave_{refused.host}_{refused.slave_offset}"] = (
            f"{refused.slave_offset},{refused.master_min_offset},{refused.master_max_offset}"
            + (f",{refused.same_up_to}" if refused.same_up_to >= 0 else ""))
    client = ha_service.ha_client
    if client.master_address is not None:
        stats["haMasterAddress"] = client.master_address
        stats["haClientState"] = _client_state(ha_service)
        stats["haClientLastError"] = client.last_error
        stats["haClientAddress"] = client.local_address
        stats["haClientSilenceMs"] = str(client.silence_ms())
        stats["haClientRetransmits"] = str(client.retransmits())
        _add_checks(ha_service, stats)
    if client.last_cut is not None:
        stats["haCutOff"] = ",".join(map(str, client.last_cut))
    diverged = ha_service.divergence.found
    if diverged is not None:
        stats["haDivergedOffset"], stats["haDivergedReason"] = str(diverged.offset), diverged.reason
        stats["haDivergedCount"] = str(ha_service.divergence.queue_count)


def _add_checks(ha_service: HAService, stats: dict[str, str]) -> None:
    """Of a slave: what it has checked before it acknowledged, and how far it was compared with its master.

    `haScrubUnscrubbedMs`: age of the oldest byte that is due, see ScrubState. `haScrubFirstDifference`,
    `haScrubFirstReason` and `haScrubDamaged` (whose copies fail their checks: `master:1,slave:2`) only when there is a
    difference, `haScrubLastError` only when the master can't be asked.
    """
    client, scrub = ha_service.ha_client, ha_service.scrub
    stats["haVerifiedBytes"] = str(client.verified_bytes)
    stats["haVerifyFailures"] = str(client.verify_failures)
    if client.verify_failures:
        stats["haVerifyFailedOffset"] = str(client.verify_failed_offset)
    stats["haScrubState"] = scrub.state
    stats["haScrubPosition"] = str(scrub.position)
    stats["haScrubRoundBegin"], stats["haScrubRoundEnd"] = str(scrub.round_begin), str(scrub.round_end)
    stats["haScrubUnscrubbedMs"] = str(scrub.unscrubbed_ms())
    stats["haScrubRounds"], stats["haScrubComparedBytes"] = str(scrub.rounds), str(scrub.compared_bytes)
    stats["haScrubDifferences"] = str(scrub.differences)
    if scrub.found:
        first = min(scrub.found)
        stats["haScrubFirstDifference"], stats["haScrubFirstReason"] = str(first.offset), first.reason
        damaged = Counter(each.where for each in scrub.found)
        stats["haScrubDamaged"] = ",".join(f"{where}:{count}" for where, count in sorted(damaged.items()))
    if scrub.last_error:
        stats["haScrubLastError"] = scrub.last_error
