"""The subscriptions of consumer groups, kept over a restart of the broker in consumerSubscription.json.

    heartbeats --on_heartbeat--> [groups] --within about a second--> consumerSubscription.json
    a start    <----load-------- the file; `of_pull` then serves a group's pulls until its first heartbeat
    pulls      ------see-------> the members that are back; `members` adds them to those that sent a heartbeat

Subscriptions
-------------
A push consumer's pull has the version of its subscription, but not the subscription, which the broker has from
heartbeats. A client sends a heartbeat every 30 s, and repeats a refused pull after 1 s. So without this table the
consumers of a restarted broker receive nothing for up to half a minute, although they soon are connected again.

A pull that is served by an older subscription than the consumer's own skips messages that it wants, and they are lost
to it. The version proves that this is not so: a client takes it from its clock when it subscribes, so that a changed
subscription has another one. The table therefore has, with each subscription, the versions that members have reported
together with exactly this expression, since they have subscribed at different times. A pull with any other version is
refused until the heartbeat. Go's client sends version 0 with each pull, which proves nothing.

Members
-------
After a restart the heartbeats of a group's members arrive one by one, in up to 30 s. If the broker named only those
whose heartbeat it has, the first member would take over all queues, while the others still read them, and each message
would be delivered twice. But the version in a pull also says which member sent it. So for two minutes the broker names
the members that pull as well, as long as their connections last. Members pull again within a second or two.

A list that may still lack members is refused, so that clients keep the queues that they have: before the group's first
heartbeat, as in RocketMQ, and in the first GRACE_MS. Later it is given, because the others may be gone.
"""
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from rmqha.broker import broker_path_config_helper
from rmqha.broker.client.client_channels import ConsumerGroupInfo, now_ms
from rmqha.broker.client.consumer_manager import CHANNEL_EXPIRED_TIMEOUT_MS, size_of
from rmqha.common import mix_all, subscriptions
from rmqha.common.config_manager import ConfigManager
from rmqha.common.lazy_dataclasses import dataclass, field
from rmqha.common.protocol.client_headers import PullMessageRequestHeader
from rmqha.common.subscriptions import MessageModel, SubscriptionData
from rmqha.remoting.protocol import remoting_serializable
from rmqha.store.message_store_config import MessageStoreConfig

if TYPE_CHECKING:
    from rmqha.remoting.channel import Channel

log = logging.getLogger("RocketmqBroker")

# Of the subscriptions of all groups, as ConsumerManager counts them.
MAX_CHARACTERS = 4 << 20
MAX_MEMBERS = 1000  # of one subscription; those that have subscribed first are dropped
MAX_FILE_BYTES = 64 << 20
# Within this time after the ports are open, the earlier members pull again. A client pauses for 1 s before it does.
GRACE_MS = 3000
_CHARACTERS_OF_VERSION = 16
_SAVE_AFTER_MS = 1000
# Saving takes at most this share of the time.
_SAVING_SHARE = 0.05


@dataclass
class KeptSubscription:
    """The latest subscription of a group to a topic, and the versions of the members that have reported the same."""

    data: SubscriptionData | None = None
    versions: dict[str, int] = field(default_factory=dict)  # by client id

    def size(self) -> int:
        """Return the number of characters that it counts for."""
        return (size_of(self.data) if self.data is not None else 0) + sum(
            len(client_id) + _CHARACTERS_OF_VERSION for client_id in self.versions)

    def is_of(self, header: PullMessageRequestHeader) -> bool:
        """Return whether this is the subscription of the consumer that has sent this pull."""
        data, version = self.data, header.subVersion
        return (data is not None and version > 0 and version in self.versions.values()
                and header.subscription in (None, "", data.subString)
                and _type_of(header.expressionType) == _type_of(data.expressionType))

    def clients_of(self, version: int) -> list[str]:
        """Return the members with this version."""
        return [client_id for client_id, its_version in self.versions.items() if its_version == version]


@dataclass
class KeptGroup:
    """The subscriptions of a group, by topic."""

    messageModel: MessageModel | None = None
    subscriptions: dict[str, KeptSubscription] = field(default_factory=dict)

    @property
    def message_model(self) -> MessageModel | None:
        """The way in which the group's members share the messages."""
        return self.messageModel

    def find_subscription_data(self, topic: str) -> SubscriptionData | None:
        """Return the subscription to a topic, or None."""
        kept = self.subscriptions.get(topic)
        return kept.data if kept is not None else None

    def client_ids(self) -> set[str]:
        """Return the ids of the members."""
        return {client_id for kept in self.subscriptions.values() for client_id in kept.versions}

    def size(self) -> int:
        """Return the number of characters that it counts for."""
        return sum(kept.size() for kept in self.subscriptions.values())


@dataclass
class _File:
    """The contents of consumerSubscription.json."""

    groups: dict[str, KeptGroup] = field(default_factory=dict)


class ConsumerSubscriptionManager(ConfigManager):
    """The subscriptions by group. Changes hold `_lock`; pulls read without it, since a group is replaced as a whole.

    `save_later(task, delay_ms)` runs a task once after a delay.
    """

    # Differs: a broker that starts serves the pulls of push consumers by their subscriptions from before, if they have
    # not changed; the original refuses them until the next heartbeat of the group, for up to 30 s. The consumers that
    # pull then count as members of their groups at once; in the original each of them has to send a heartbeat first
    def __init__(self, message_store_config: MessageStoreConfig,
                 save_later: Callable[[Callable[[], None], float], None]) -> None:
        self._store_config = message_store_config
        self._save_later = save_later
        self._lock = threading.Lock()
        self._groups: dict[str, KeptGroup] = {}
        self._characters = 0  # guarded by _lock
        # Groups from the file that have sent no heartbeat since the start.
        self._waiting: set[str] = set()
        self._served: set[str] = set()  # of these, the ones that were logged
        # Some time has to pass until all heartbeats have arrived since the start.
        self.is_recent = False
        self._recent_until_ms = self._grace_until_ms = 0  # monotonic
        # By group, the members from the file that have sent neither a pull nor a heartbeat since the start.
        self._missing: dict[str, set[str]] = {}
        # By group and client id, the connections of members that have sent a pull, but no heartbeat yet.
        self._seen: dict[str, dict[str, Channel]] = {}
        # Groups whose members got no list; guarded by _lock.
        self._put_off: set[str] = set()
        self._is_save_due = False  # guarded by _lock
        self._saving_ms = 0.0  # what the last save took
        self._was_full = False  # logged; guarded by _lock
        self._is_ended = False  # guarded by _lock

    def config_file_path(self) -> str:
        """Return the path of consumerSubscription.json."""
        return broker_path_config_helper.get_consumer_subscription_path(self._store_config.storePathRootDir)

    def load(self) -> bool:
        """Read the file. Return True in any case: a broker starts without it, or with a damaged one, as well."""
        path = self.config_file_path()
        try:
            if not os.path.lexists(path):
                return True
            if os.path.getsize(path) > MAX_FILE_BYTES:
                raise ValueError(f"it has more than {MAX_FILE_BYTES} bytes")
            self.decode(mix_all.file2string(path) or "")
        except Exception as error:
            log.warning("ignoring %s: %s; consumers receive nothing until their first heartbeat, as without the file",
                        path, error)
            return True
        log.info("load %s OK, %d groups", path, len(self._groups))
        return True

    def decode(self, json_string: str) -> None:
        """Set the table from JSON. Raises ValueError or a subclass when it is malformed."""
        groups = remoting_serializable.from_json(_File, json_string).groups
        for group in groups.values():
            for topic, kept in group.subscriptions.items():
                if kept.data is None or kept.data.topic != topic or len(kept.versions) > MAX_MEMBERS:
                    raise ValueError(f"the subscription to {topic} is malformed")
        characters = sum(group.size() for group in groups.values())
        if characters > MAX_CHARACTERS:
            raise ValueError(f"the subscriptions have more than {MAX_CHARACTERS} characters")
        self._groups, self._characters, self._waiting = groups, characters, set(groups)
        self._missing = {name: ids for name, group in groups.items() if (ids := group.client_ids())}
        self.begin()

    def begin(self) -> None:
        """Start the time in which groups may come back. Call it again when the ports are about to open."""
        self._recent_until_ms = now_ms() + CHANNEL_EXPIRED_TIMEOUT_MS
        self._grace_until_ms = now_ms() + GRACE_MS
        self.is_recent = bool(self._groups)

    def encode(self, pretty_format: bool = False) -> str:
        """Return the table as JSON."""
        with self._lock:
            groups = dict(self._groups)
        return remoting_serializable.to_json(_File(groups), pretty_format)

    def of_pull(self, header: PullMessageRequestHeader) -> KeptGroup | None:
        """Return the group, if it has sent no heartbeat since the start and this pull's subscription is the kept one.

        None: the pull has to wait for the heartbeat.
        """
        group = header.consumerGroup
        if group not in self._waiting or now_ms() > self._recent_until_ms:
            return None
        kept_group = self._groups.get(group)
        kept = kept_group.subscriptions.get(header.topic) if kept_group is not None else None
        if kept is None or not kept.is_of(header):
            return None
        if group not in self._served:
            self._served.add(group)
            log.info("serving group %s by its subscriptions from before the start, until its first heartbeat", group)
        return kept_group

    def is_same(self, header: PullMessageRequestHeader, subscription: SubscriptionData) -> bool:
        """Return whether a pull's version is known as one of this subscription, which is another member's."""
        group = self._groups.get(header.consumerGroup)
        kept = group.subscriptions.get(header.topic) if group is not None else None
        return (kept is not None and kept.data is not None and _are_same(kept.data, subscription)
                and kept.is_of(header))

    def see(self, header: PullMessageRequestHeader, channel: "Channel") -> None:
        """Note that a member is back: it has sent this pull. Only needed while `is_recent`."""
        name = header.consumerGroup
        group = self._groups.get(name)
        kept = group.subscriptions.get(header.topic) if group is not None else None
        client_ids = kept.clients_of(header.subVersion) if kept is not None else []
        # Several: it could be any of them.
        if len(client_ids) == 1:
            self._seen.setdefault(name, {})[client_ids[0]] = channel
            self._missing.get(name, set()).discard(client_ids[0])

    def members(self, name: str, registered: list[str]) -> list[str]:
        """Return the ids of a group's members: those that have sent a heartbeat, and those that pull.

        The list is empty while some of those from before may be about to come back.
        """
        if not self.is_recent:
            return registered
        if self._missing.get(name):
            if not registered:
                return []
            with self._lock:
                if now_ms() < self._grace_until_ms:
                    self._put_off.add(name)
                    return []
        return [*registered, *(client_id for client_id, _ in self._seen_of(name) if client_id not in registered)]

    def channels(self, name: str) -> "list[Channel]":
        """Return the connections of the members that have sent a pull, but no heartbeat yet."""
        return [channel for _, channel in self._seen_of(name)] if self.is_recent else []

    def _seen_of(self, name: str) -> "list[tuple[str, Channel]]":
        return [one for one in list(self._seen.get(name, {}).items()) if one[1].is_active]

    def end_grace(self) -> set[str]:
        """Return the groups whose members got no list, and now get one."""
        with self._lock:
            self._grace_until_ms = 0
            put_off, self._put_off = self._put_off, set()
        return put_off

    def on_member_left(self, name: str, client_id: str) -> None:
        """Forget a member that has unregistered."""
        self._seen.get(name, {}).pop(client_id, None)
        self._missing.get(name, set()).discard(client_id)

    def on_heartbeat(self, info: ConsumerGroupInfo, reported: Iterable[SubscriptionData], client_id: str) -> None:
        """Take over the subscriptions of a group, after a member has reported its own ones."""
        with self._lock:
            if self._is_ended:
                return
            old = self._groups.get(info.group_name)
            self._waiting.discard(info.group_name)
            self._missing.get(info.group_name, set()).discard(client_id)
            self._seen.get(info.group_name, {}).pop(client_id, None)
            new = _merged(old, info, list(reported), client_id)
            if not self.is_recent:
                _forget_others(new, info)
            if new != old:
                self._put(info.group_name, old, new)

    def _put(self, name: str, old: KeptGroup | None, new: KeptGroup) -> None:
        """Replace a group, or drop it if that would be too much. Under _lock."""
        characters = self._characters - (old.size() if old is not None else 0)
        if characters + new.size() <= MAX_CHARACTERS:
            self._groups[name] = new
            characters += new.size()
        else:
            self._groups.pop(name, None)
            if not self._was_full:
                self._was_full = True
                log.warning("too many subscriptions: those of group %s and of others are not kept for a restart", name)
        self._characters = characters
        self._changed()

    def on_unregistered(self, name: str) -> None:
        """Drop a group whose last member has left."""
        with self._lock:
            if not self._is_ended:
                self._waiting.discard(name)
                self._missing.pop(name, None)
                self._drop((name,))

    def drop_expired(self) -> None:
        """Drop the groups that have not come back in time."""
        if self.is_recent and now_ms() > self._recent_until_ms:
            with self._lock:
                self.is_recent = False
                self._missing, self._seen = {}, {}
                waiting, self._waiting = self._waiting, set()
                self._drop(waiting)
            if waiting:
                log.info("%d groups have sent no heartbeat since the start; their subscriptions are dropped",
                         len(waiting))

    def _drop(self, names: Iterable[str]) -> None:
        dropped = [group for name in names if (group := self._groups.pop(name, None)) is not None]
        if dropped:
            self._characters -= sum(group.size() for group in dropped)
            self._changed()

    def _changed(self) -> None:
        """Have the file written soon: once for many changes. Under _lock."""
        self.note_change()
        if not self._is_save_due:
            self._is_save_due = True
            self._save_later(self._save, max(_SAVE_AFTER_MS, self._saving_ms / _SAVING_SHARE))

    def _save(self) -> None:
        with self._lock:
            self._is_save_due = False
        begin = time.monotonic()
        self.persist_changes()
        self._saving_ms = (time.monotonic() - begin) * 1000

    def shutdown(self) -> None:
        """Save the table, and ignore that the members disconnect from now on. Idempotent."""
        with self._lock:
            was_ended, self._is_ended = self._is_ended, True
        if not was_ended:
            self.persist_changes()


def _merged(old: KeptGroup | None, info: ConsumerGroupInfo, reported: list[SubscriptionData],
            client_id: str) -> KeptGroup:
    """Return the group's present subscriptions, with the versions that are known for them."""
    present = dict(info.subscription_table)
    merged = KeptGroup(info.message_model)
    for topic, data in present.items():
        before = old.subscriptions.get(topic) if old is not None else None
        is_same = before is not None and before.data is not None and _are_same(before.data, data)
        merged.subscriptions[topic] = KeptSubscription(data, dict(before.versions) if before and is_same else {})
    for one in reported:
        kept = merged.subscriptions.get(one.topic)
        if kept is not None and kept.data is not None:
            if _are_same(one, kept.data):
                kept.versions[client_id] = one.subVersion
            else:
                # The version of another expression proves nothing, even if it is also that of this one.
                for other in (client_id, *kept.clients_of(one.subVersion)):
                    kept.versions.pop(other, None)
    for kept in merged.subscriptions.values():
        for client_id in sorted(kept.versions, key=kept.versions.__getitem__)[:-MAX_MEMBERS]:
            del kept.versions[client_id]
    return merged


def _forget_others(group: KeptGroup, info: ConsumerGroupInfo) -> None:
    """Remove the versions of clients that have left the group."""
    for kept in group.subscriptions.values():
        if len(kept.versions) > len(info.channel_info_table):
            members = set(info.get_all_client_id())
            kept.versions = {client_id: version for client_id, version in kept.versions.items() if client_id in members}


def _are_same(one: SubscriptionData, other: SubscriptionData) -> bool:
    return (one.subString == other.subString and one.codeSet == other.codeSet and one.tagsSet == other.tagsSet
            and one.classFilterMode == other.classFilterMode
            and _type_of(one.expressionType) == _type_of(other.expressionType))


def _type_of(expression_type: str | None) -> str | None:
    return subscriptions.TAG if subscriptions.is_tag_type(expression_type) else expression_type
