"""The subscriptions of push consumers, kept over a restart of the broker in consumerSubscription.json.

    heartbeats --on_heartbeat--> [groups] --within about a second--> consumerSubscription.json
    a start    <----load-------- the file; `of_pull` then serves a group's pulls until its first heartbeat

A pull names a version of the consumer's subscription, but not the subscription, which the broker has from heartbeats.
A client sends a heartbeat every 30 s, and repeats a refused pull after 3 s. So without this table the consumers of a
restarted broker receive nothing for up to half a minute, although they reconnect at once.

A pull that is served by an older subscription than the consumer's own skips messages that it wants, and they are lost
to it. The version proves that this is not so: a client takes it from its clock when it subscribes, so that a changed
subscription has another one. The table therefore has, with each subscription, the versions that heartbeats reported
together with exactly this expression (the members of a group have subscribed at different times), and a pull with any
other version is refused until the heartbeat. Go's client sends version 0 with each pull, which proves nothing.
"""
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable

from rmqha.broker import broker_path_config_helper
from rmqha.broker.client.client_channels import ConsumerGroupInfo, now_ms
from rmqha.broker.client.consumer_manager import CHANNEL_EXPIRED_TIMEOUT_MS, size_of
from rmqha.common import mix_all, subscriptions
from rmqha.common.config_manager import ConfigManager
from rmqha.common.lazy_dataclasses import dataclass, field
from rmqha.common.protocol.client_headers import PullMessageRequestHeader
from rmqha.common.subscriptions import ConsumeType, MessageModel, SubscriptionData
from rmqha.remoting.protocol import remoting_serializable
from rmqha.store.message_store_config import MessageStoreConfig

log = logging.getLogger("RocketmqBroker")

# Of the subscriptions of all groups, as ConsumerManager counts them.
MAX_CHARACTERS = 4 << 20
MAX_VERSIONS = 1000  # of one subscription; the oldest are dropped
MAX_FILE_BYTES = 64 << 20
_CHARACTERS_OF_VERSION = 16
_SAVE_AFTER_MS = 1000
# Saving takes at most this share of the time.
_SAVING_SHARE = 0.05


@dataclass
class KeptSubscription:
    """The latest subscription of a group to a topic, and the versions under which members have reported the same."""

    data: SubscriptionData | None = None
    versions: set[int] = field(default_factory=set)

    def size(self) -> int:
        """Return the number of characters that it counts for."""
        return size_of(self.data) + _CHARACTERS_OF_VERSION * len(self.versions) if self.data is not None else 0


@dataclass
class KeptGroup:
    """The subscriptions of a group of push consumers, by topic."""

    messageModel: MessageModel | None = None
    subscriptions: dict[str, KeptSubscription] = field(default_factory=dict)

    @property
    def message_model(self) -> MessageModel | None:
        """How the group's members share the messages."""
        return self.messageModel

    def find_subscription_data(self, topic: str) -> SubscriptionData | None:
        """Return the subscription to a topic, or None."""
        kept = self.subscriptions.get(topic)
        return kept.data if kept is not None else None

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
    # not changed; the original refuses them until the next heartbeat of the group, for up to 30 s
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
        self._waits_until_ms = 0  # monotonic
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
                if kept.data is None or kept.data.topic != topic or len(kept.versions) > MAX_VERSIONS:
                    raise ValueError(f"the subscription to {topic} is malformed")
        characters = sum(group.size() for group in groups.values())
        if characters > MAX_CHARACTERS:
            raise ValueError(f"the subscriptions have more than {MAX_CHARACTERS} characters")
        self._groups, self._characters, self._waiting = groups, characters, set(groups)
        self.begin()

    def begin(self) -> None:
        """Start the time in which groups may come back. Call it again when the ports are about to open."""
        self._waits_until_ms = now_ms() + CHANNEL_EXPIRED_TIMEOUT_MS

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
        if group not in self._waiting or now_ms() > self._waits_until_ms:
            return None
        kept_group = self._groups.get(group)
        kept = kept_group.subscriptions.get(header.topic) if kept_group is not None else None
        if kept is None or kept.data is None or not self._is_of(kept, header):
            return None
        if group not in self._served:
            self._served.add(group)
            log.info("serving group %s by its subscriptions from before the start, until its first heartbeat", group)
        return kept_group

    def is_same(self, header: PullMessageRequestHeader, subscription: SubscriptionData) -> bool:
        """Return whether a pull's version is known as one of this subscription, which is another member's."""
        group = self._groups.get(header.consumerGroup)
        kept = group.subscriptions.get(header.topic) if group is not None else None
        return kept is not None and kept.data is not None and _are_same(kept.data, subscription) \
            and self._is_of(kept, header)

    @staticmethod
    def _is_of(kept: KeptSubscription, header: PullMessageRequestHeader) -> bool:
        data, version = kept.data, header.subVersion
        return (data is not None and version > 0 and version in kept.versions
                and header.subscription in (None, "", data.subString)
                and _type_of(header.expressionType) == _type_of(data.expressionType))

    def on_heartbeat(self, info: ConsumerGroupInfo, reported: Iterable[SubscriptionData]) -> None:
        """Take over the subscriptions of a group, after a member has reported its own ones."""
        if info.consume_type is not ConsumeType.CONSUME_PASSIVELY:  # others send their subscription with each pull
            self.on_unregistered(info.group_name)
            return
        with self._lock:
            if self._is_ended:
                return
            old = self._groups.get(info.group_name)
            self._waiting.discard(info.group_name)
            new = _merged(old, info, list(reported))
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
                self._drop((name,))

    def drop_expired(self) -> None:
        """Drop the groups that have not come back in time."""
        if self._waiting and now_ms() > self._waits_until_ms:
            with self._lock:
                waiting, self._waiting = self._waiting, set()
                self._drop(waiting)
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


def _merged(old: KeptGroup | None, info: ConsumerGroupInfo, reported: list[SubscriptionData]) -> KeptGroup:
    """Return the group's present subscriptions, with the versions that are known for them."""
    present = dict(info.subscription_table)
    merged = KeptGroup(info.message_model)
    for topic, data in present.items():
        kept = old.subscriptions.get(topic) if old is not None else None
        if kept is not None and kept.data is not None and _are_same(kept.data, data):
            versions = {*kept.versions, data.subVersion}
        else:
            versions = {data.subVersion}
        merged.subscriptions[topic] = KeptSubscription(data, versions)
    for one in reported:
        kept = merged.subscriptions.get(one.topic)
        if kept is not None and kept.data is not None:
            if _are_same(one, kept.data):
                kept.versions.add(one.subVersion)
            else:
                # The same version for another expression: it proves nothing.
                kept.versions.discard(one.subVersion)
    for kept in merged.subscriptions.values():
        if len(kept.versions) > MAX_VERSIONS:
            kept.versions = set(sorted(kept.versions)[-MAX_VERSIONS:])
    return merged


def _are_same(one: SubscriptionData, other: SubscriptionData) -> bool:
    return (one.subString == other.subString and one.codeSet == other.codeSet and one.tagsSet == other.tagsSet
            and one.classFilterMode == other.classFilterMode
            and _type_of(one.expressionType) == _type_of(other.expressionType))


def _type_of(expression_type: str | None) -> str | None:
    return subscriptions.TAG if subscriptions.is_tag_type(expression_type) else expression_type
