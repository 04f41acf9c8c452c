"""The producer groups that are online."""
import itertools
import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from rmqha.broker.client.client_channels import ClientChannelInfo
from rmqha.common.protocol.client_bodies import ProducerInfo, ProducerTableInfo
from rmqha.remoting.addresses import parse_channel_remote_addr
from rmqha.remoting.exception import RemotingCommandException

if TYPE_CHECKING:
    from rmqha.remoting.channel import Channel

log = logging.getLogger("RocketmqBroker")

CHANNEL_EXPIRED_TIMEOUT_MS = 120 * 1000
GET_AVAILABLE_CHANNEL_RETRY_COUNT = 3
MAX_GROUPS_OF_CHANNEL = 2000


class ProducerManager:
    """The producers by group and channel, and the channels by client id. Written under `_lock`, read without it.

    Java: org.apache.rocketmq.broker.client.ProducerManager (4.9.8)
    """

    def __init__(self) -> None:
        self.group_channel_table: dict[str, dict[Channel, ClientChannelInfo]] = {}  # written under _lock
        self._client_channel_table: dict[str, Channel] = {}  # written under _lock
        self._groups_of_channel: dict[Channel, set[str]] = {}  # guarded by _lock
        self._counter = itertools.count()
        self._lock = threading.Lock()

    def get_producer_table(self) -> ProducerTableInfo:
        """Return all producers, for the admin tool."""
        table = {group: [_producer_info(info) for info in list(channels.values())]
                 for group, channels in list(self.group_channel_table.items()) if channels}
        return ProducerTableInfo(table)

    def scan_not_active_channel(self) -> None:
        """Remove producers whose last heartbeat is older than 120 s."""
        for group, channels in list(self.group_channel_table.items()):
            for channel, info in list(channels.items()):
                if info.age_ms() > CHANNEL_EXPIRED_TIMEOUT_MS:
                    with self._lock:
                        self._remove(group, channel)
                    log.warning("SCAN: remove expired channel[%s] from ProducerManager groupChannelTable, "
                                "producer group name: %s", parse_channel_remote_addr(channel), group)
                    channel.close()

    def do_channel_close_event(self, remote_addr: str, channel: "Channel") -> None:
        """Remove the producers of a closed channel from their groups."""
        with self._lock:
            for group in list(self._groups_of_channel.get(channel, ())):
                info = self._remove(group, channel)
                log.info("NETTY EVENT: remove channel[%s][%s] from ProducerManager groupChannelTable, "
                         "producer group: %s", info, remote_addr, group)

    def register_producer(self, group: str, client_channel_info: ClientChannelInfo) -> None:
        """Process the heartbeat of a producer.

        Raises RemotingCommandException when its connection is in too many groups.
        """
        channel = client_channel_info.channel
        with self._lock:
            groups = self._groups_of_channel.get(channel, ())
            if group in groups:
                self.group_channel_table[group][channel].touch()
                return
            # Differs: the number of producer groups of a connection is limited; the original accepts any number
            if len(groups) >= MAX_GROUPS_OF_CHANNEL:
                raise RemotingCommandException("too many producer groups on one connection: at most "
                                               f"{MAX_GROUPS_OF_CHANNEL} are allowed")
            self._groups_of_channel.setdefault(channel, set()).add(group)
            self.group_channel_table.setdefault(group, {})[channel] = client_channel_info
            self._name_client(client_channel_info)
            log.info("new producer connected, group: %s channel: %s", group, client_channel_info)

    def _name_client(self, info: ClientChannelInfo) -> None:
        # Differs: a client id that belongs to a live connection of another account stays there. Otherwise any client
        # could claim the id and receive the replies to the other's requests; the original gives the id to the last
        # connection that names it
        holder = self._client_channel_table.get(info.client_id)
        if holder is not None and holder.is_active and self._access_key_of(holder) != info.access_key:
            log.warning("client id %s of channel[%s] is already used by another account on channel[%s]",
                        info.client_id, info.channel, holder)
            return
        self._client_channel_table[info.client_id] = info.channel

    def _access_key_of(self, channel: "Channel") -> str | None:
        for group in self._groups_of_channel.get(channel, ()):
            return self.group_channel_table[group][channel].access_key
        return None

    def unregister_producer(self, group: str, client_channel_info: ClientChannelInfo) -> None:
        """Unregister a producer."""
        with self._lock:
            old = self._remove(group, client_channel_info.channel)
            if old is not None:
                log.info("unregister a producer[%s] from groupChannelTable %s", group, client_channel_info)
                if group not in self.group_channel_table:
                    log.info("unregister a producer group[%s] from groupChannelTable", group)

    def _remove(self, group: str, channel: "Channel") -> ClientChannelInfo | None:
        """Remove a producer from all tables and return it; None if not found. Under _lock."""
        channels = self.group_channel_table.get(group, {})
        info = channels.pop(channel, None)
        if info is None:
            return None
        # Differs: a producer group is removed with its last producer, however that left; in the original its name stays
        # for ever when the connection was lost. And a client id is removed only with the connection that it belongs to.
        if not channels:
            self.group_channel_table.pop(group, None)
        if self._client_channel_table.get(info.client_id) is channel:
            del self._client_channel_table[info.client_id]
        groups = self._groups_of_channel.get(channel, set())
        groups.discard(group)
        if not groups:
            self._groups_of_channel.pop(channel, None)
        return info

    def get_available_channel(self, group_id: str | None,
                              is_permitted: Callable[[ClientChannelInfo], bool] | None = None) -> "Channel | None":
        """Return a live channel of the group, taking turns among those that are permitted; None if not found."""
        if group_id is None:
            return None
        channels = [channel for channel, info in list(self.group_channel_table.get(group_id, {}).items())
                    if is_permitted is None or is_permitted(info)]
        if not channels:
            log.warning("Check transaction failed, channel table is empty. groupId=%s", group_id)
            return None
        first = next(self._counter)
        for step in range(min(GET_AVAILABLE_CHANNEL_RETRY_COUNT, len(channels))):
            channel = channels[(first + step) % len(channels)]
            if channel.is_active:
                return channel
        return None

    def find_channel(self, client_id: str) -> "Channel | None":
        """Return the channel of a client, or None."""
        return self._client_channel_table.get(client_id)


def _producer_info(info: ClientChannelInfo) -> ProducerInfo:
    language = info.language.name if info.language is not None else None
    return ProducerInfo(info.client_id, "/" + parse_channel_remote_addr(info.channel), language, info.version,
                        info.last_update_timestamp)
