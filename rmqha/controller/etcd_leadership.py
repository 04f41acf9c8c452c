"""Leader election among controllers that share an etcd cluster.

    PREFIX/leader  the leader, under the leader's lease: etcd deletes it when the lease is not kept alive
    PREFIX/term    how the last leadership began or ended; it stays

    ControllerElectionService:  read -> no leader? create both keys, in one transaction -> notify -> watch -> read ...
    ControllerKeepAliveService: ask a majority whether the leader's key is still its own, keep its lease alive

Term. A leadership is identified by the revision at which its key was created. Each write of the leader compares that
revision in the same transaction, so a former leader can't change anything, whatever clocks and leases do.

Lease. Answers without a transaction (`leads`, and the leases that it grants to masters) rest on time. Two leaders at
once would be fatal there: both could grant leases to different masters. So a leader trusts itself only for the duration
of its lease, less a tenth for clocks of different speed, counted from when it sent the last request to which a majority
answered that the key is its own. It counts from the request, not from the answer: the key was still its own when the
request left, but may have been lost by the time the answer arrives. The next leader reads in PREFIX/term how long the
previous one may trust itself, and adds a tenth. Until that time has passed it leads, but `leads_since_ns` lies in the
future: it does not assume that earlier grants are over. If the previous leader ended in order, it wrote that into
PREFIX/term, and the next one need not wait.

So etcd's expiry of the lease only permits the next election. It does not matter when etcd expires it, which may be too
early or too late while etcd elects its own leader: too early, and the old leader still stops by its own clock before
the new one relies on that; too late, and only the election is delayed.
"""
from __future__ import annotations

import json
import logging
import threading
import time
import uuid
from collections.abc import Callable

from rmqha.common.lazy_dataclasses import dataclass, field
from rmqha.common.service_thread import ServiceThread
from rmqha.common.texts import parse_json
from rmqha.common.util_all import LONG_AGO
from rmqha.controller.etcd_client import (
    EtcdClient,
    EtcdError,
    EtcdRefusedError,
    KeyValue,
    TxnAnswer,
    created_at,
    deletion_of,
    put_of,
    range_of,
)
from rmqha.controller.local_store import NotLeaderError, StoreFailedError, Versioned, new_term

log = logging.getLogger("RocketmqController")

_NS_PER_S = 1_000_000_000
# Of a lease: the part that its leader uses, and the part that the next one assumes it to use.
_OWN_SHARE, _OTHERS_SHARE = 0.9, 1.1
# Requests per lease.
_KEEP_ALIVE_SHARE = 6
# Reads per lease, if nothing happens.
_WATCH_SHARE = 3
# After a failure.
_PAUSE_MS = 100
# Failures in a row.
_LOGGED_EACH = 50
_FREE = b'{"state": "free"}'


@dataclass(frozen=True)
class Leader:
    """The content of the leader's key; `nonce` distinguishes processes that have the same id."""

    id: str
    address: str
    nonce: str

    def encode(self) -> bytes:
        """Return the key's value: UTF-8 JSON."""
        return json.dumps({"id": self.id, "address": self.address, "nonce": self.nonce}, ensure_ascii=False).encode()

    @classmethod
    def decode(cls, data: bytes) -> Leader | None:
        """Return the leader in a key's value; None if the value is invalid: then there is a leader, but an unknown
        one.
        """
        try:
            document = parse_json(data, "the leader's key")
            found = cls(document["id"], document["address"], document["nonce"])
        except (ValueError, KeyError, TypeError):
            return None
        return found if all(isinstance(text, str) for text in (found.id, found.address, found.nonce)) else None


@dataclass(frozen=True)
class Known:
    """The value stored for a name at a revision of the cluster; an error says why it is not a replica set."""

    as_of: int
    record: Versioned | ValueError


@dataclass(frozen=True, eq=False)
class Term:
    """One leadership of this controller.

    `records` has, for each broker name, the value that was read when the leadership began, or the one that was written
    since. The store's lock guards it.
    """

    revision: int
    lease_id: int
    since_ns: int
    records: dict[str, Known] = field(default_factory=dict)
    number: int = field(default_factory=new_term)


def held(seconds: int) -> bytes:
    """Return the value of PREFIX/term during a leadership whose lease has this many seconds."""
    return json.dumps({"state": "held", "seconds": seconds}).encode()


def held_seconds(value: bytes, unknown: int) -> int:
    """Return for how many seconds the previous leader may trust itself after its key is gone; 0: it ended in order."""
    try:
        document = parse_json(value, "the term's key")
        if document["state"] == "free":
            return 0
        seconds = document["seconds"]
        return seconds if isinstance(seconds, int) and 0 < seconds < 1 << 31 else unknown
    except (ValueError, KeyError, TypeError):
        return unknown


class EtcdLeadership:
    """This controller's part in the election. Any thread may call it."""

    def __init__(self, client: EtcdClient, prefix: str, controller_id: str, address: str, lease_seconds: int,
                 records: tuple[bytes, bytes],
                 parse: Callable[[TxnAnswer], dict[str, Known]],
                 clock: Callable[[], int] = time.monotonic_ns) -> None:
        """`records`: the range of keys that stores the leader's decisions; `parse` reads it in the last range."""
        self._client = client
        self._leader_key, self._term_key = f"{prefix}/leader".encode(), f"{prefix}/term".encode()
        self._me = Leader(controller_id, address, uuid.uuid4().hex)
        self._seconds = lease_seconds
        self._records, self._parse = records, parse
        self._clock = clock
        # Guards changes of those below.
        self._lock = threading.Lock()
        self._term: Term | None = None
        # Until when the term may be used without asking.
        self._until_ns = 0
        # When a majority was last asked and confirmed the term.
        self._confirmed_ns = LONG_AGO
        # One request at a time: a thread that waited for it may not need its own.
        self._asking = threading.Lock()
        # When the members were last asked without an answer; under _asking.
        self._unanswered: tuple[int, EtcdError] | None = None
        # The last one of this process, which may be the present one.
        self._last_term: Term | None = None
        self._seen: Leader | None = None
        self._seen_ns = 0
        # The nonce of a leader that has ended.
        self._gone: str | None = None
        # The term of the last call of `on_changed`; used by ControllerElectionService.
        self._told: Term | None = None
        # In a row; used by ControllerElectionService.
        self._failures = 0
        # In a row; used by ControllerKeepAliveService.
        self._failures_to_keep = 0
        self.on_changed: Callable[[], None] | None = None
        self._keep_alive = ControllerKeepAliveService(self, lease_seconds * 1000 / _KEEP_ALIVE_SHARE)
        self._election = ControllerElectionService(self)

    @property
    def leader_key(self) -> bytes:
        """The key that a change must compare with `Term.revision`."""
        return self._leader_key

    def start(self) -> None:
        """Join the election. EtcdRefusedError if the cluster refuses us; one that does not answer may come up later."""
        try:
            self._look()
        except EtcdRefusedError:
            raise
        except EtcdError as error:
            log.warning("etcd does not answer yet: %s", error)
        self._keep_alive.start()
        self._election.start()

    def shutdown(self) -> None:
        """Give up the leadership, so that another controller can lead at once, and notify. Idempotent."""
        self._election.make_stop()
        self._client.interrupt()
        self._election.shutdown()
        self._keep_alive.shutdown()
        with self._lock:
            term, self._term = self._term, None
            self._last_term = self._seen = None
        if term is not None:
            self._resign(term)
        self.tell()

    def _resign(self, term: Term) -> None:
        changes = [deletion_of(self._leader_key)]
        if self._leads_alone(term):
            changes.append(put_of(self._term_key, _FREE))
        try:
            self._client.transaction([created_at(self._leader_key, term.revision)], changes)
            self._client.revoke_lease(term.lease_id)
        except EtcdError as error:
            log.warning("the leadership ends with its lease, in %d s: %s", self._seconds, error)

    def _leads_alone(self, term: Term) -> bool:
        """Return whether the previous leader can no longer trust itself."""
        return self._clock() >= term.since_ns

    # ---- asked by any thread

    def current(self) -> Term | None:
        """Return the term in which this controller leads now, as far as it can know."""
        term = self._term
        return term if term is not None and self._clock() < self._until_ns else None

    @property
    def leads_since_ns(self) -> int:
        """The time after which no other controller leads: in the future while the previous leader may trust itself."""
        term = self._term
        return 0 if term is None else term.since_ns

    def leader(self) -> Leader | None:
        """Return the leader, if it was seen within the time of a lease; None if no leader is known."""
        if self.current() is not None:
            return self._me
        seen, seen_ns = self._seen, self._seen_ns
        if seen is None or seen.nonce == self._me.nonce or self._clock() > seen_ns + self._seconds * _NS_PER_S:
            return None
        return seen

    def confirm(self, term: Term, asked_ns: int) -> None:
        """Note that a majority, asked at `asked_ns` (of the clock), confirmed this term."""
        with self._lock:
            if self._term is term:
                self._until_ns = max(self._until_ns, asked_ns + int(self._seconds * _OWN_SHARE * _NS_PER_S))
                self._confirmed_ns = max(self._confirmed_ns, asked_ns)

    def make_sure(self, term: Term, since_ns: int) -> None:
        """Ask a majority whether this term continues, unless it was asked since that moment (of the clock).

        NotLeaderError; StoreFailedError if it does not answer.
        """
        with self._asking:
            if self._term is term and self._confirmed_ns < since_ns:
                asked_ns = self._clock()
                try:
                    if self._unanswered is not None and self._unanswered[0] >= since_ns:
                        raise self._unanswered[1]
                    if not self._ask(term):
                        self.drop(term, "its key is gone")
                except EtcdError as error:
                    self._unanswered = asked_ns, error
                    raise StoreFailedError(f"etcd does not name the leader: {error}") from error
            if self._term is not term:
                raise NotLeaderError("another controller leads now")

    def _ask(self, term: Term) -> bool:
        """Return whether a majority confirms this term."""
        asked_ns = self._clock()
        answer = self._client.transaction([created_at(self._leader_key, term.revision)],
                                          [range_of(self._leader_key)], [range_of(self._leader_key)])
        if answer.succeeded:
            self.confirm(term, asked_ns)
        return answer.succeeded

    def drop(self, term: Term, why: str) -> None:
        """End this term: its key was deleted, or the outcome of a write is not known. Another one may begin."""
        with self._lock:
            if self._term is not term:
                return
            self._term = None
        log.warning("controller %s no longer leads: %s", self._me.id, why)
        self.wake_election()

    def wake_election(self) -> None:
        """Make ControllerElectionService check now."""
        self._election.wakeup()
        self._client.interrupt()

    def leader_has_gone(self, address: str) -> None:
        """Note that nothing listens any more at the leader's address: its lease need not run out first.

        It is safe to end a leadership at any time, whether its leader is alive or not.
        """
        seen = self._seen
        if seen is not None and seen.address == address and seen.nonce != self._me.nonce:
            log.info("controller %s, the leader, has ended", seen.id)
            self._gone = seen.nonce
            self.wake_election()

    # ---- ControllerElectionService

    def take_part(self) -> None:
        """Run one round: read the leader, lead if none exists, notify of changes, and wait for the next change.

        An exception of a notified listener ends the round after the notification.
        """
        try:
            watch_from = self._step()
            self._failures = 0
        except EtcdError as error:
            self._failures += 1
            if self._failures % _LOGGED_EACH == 1:
                log.warning("can't elect a controller: etcd does not answer: %s", error)
            watch_from = -1
        self.tell()
        if watch_from < 0:
            self._election.wait_for_running(_PAUSE_MS)
        elif watch_from and not self._election.stopped:
            if not self._client.wait_for_change(self._leader_key, watch_from, self._seconds / _WATCH_SHARE):
                # It may have failed at once.
                self._election.wait_for_running(_PAUSE_MS)

    def tell(self) -> None:
        """Call `on_changed` if this controller has begun, ceased, or begun again to lead since the last call."""
        term = self.current()
        if term is not self._told:
            self._told = term
            if term is not None:
                log.info("controller %s leads, at revision %d", self._me.id, term.revision)
            if self.on_changed is not None:
                self.on_changed()

    def is_told(self) -> bool:
        """Return whether all changes were notified."""
        return self._told is self.current()

    def _step(self) -> int:
        """Return the revision after which a change of the leader's key is new; 0: check again at once."""
        key, revision = self._look()
        term = self._term
        if key is None:
            if term is not None:
                self.drop(term, "its key is gone")
            self._campaign()
            return 0 if self._term is None else self._term.revision
        is_own = self._seen is not None and self._seen.nonce == self._me.nonce
        has_gone = self._seen is not None and self._seen.nonce == self._gone
        if has_gone or is_own and (term is None or term.revision != key.create_revision):
            self._take_away(key)
            return 0
        if not is_own and term is not None:
            self.drop(term, f"{key.value[:200]!r} leads")
        return revision

    def _look(self) -> tuple[KeyValue | None, int]:
        asked_ns = self._clock()
        answer = self._client.transaction([created_at(self._leader_key, 0)], [range_of(self._leader_key)],
                                          [range_of(self._leader_key)])
        key = _first(answer.ranges[0])
        self._seen, self._seen_ns = None if key is None else Leader.decode(key.value), asked_ns
        return key, answer.revision

    def _campaign(self) -> None:
        lease_id, asked_ns = self._client.grant_lease(self._seconds), self._clock()
        answer = self._client.transaction(
            [created_at(self._leader_key, 0)],
            [range_of(self._term_key), put_of(self._term_key, held(self._seconds)),
             put_of(self._leader_key, self._me.encode(), lease_id), range_of(*self._records)],
            [range_of(self._leader_key)])
        if not answer.succeeded:
            # The key may be this controller's own, if a member did not answer: the next check takes it away.
            self._revoke(lease_id)
            return
        term = Term(answer.revision, lease_id, self._since_ns(_first(answer.ranges[0])), self._parse(answer))
        with self._lock:
            self._term = self._last_term = term
            self._confirmed_ns = asked_ns
            self._until_ns = asked_ns + int(self._seconds * _OWN_SHARE * _NS_PER_S)
        self._keep_alive.wakeup()

    def _since_ns(self, before: KeyValue | None) -> int:
        """Return the time after which only this controller leads, given how the previous leadership began or ended."""
        last, now = self._last_term, self._clock()
        if before is None:
            # No controller has led before and could have granted a lease.
            return LONG_AGO
        if last is not None and before.mod_revision == last.revision:
            # No other controller has led meanwhile.
            return last.since_ns
        return now + int(held_seconds(before.value, self._seconds) * _OTHERS_SHARE * _NS_PER_S)

    def _take_away(self, key: KeyValue) -> None:
        """Delete a leader's key: the leader has ended, or the key is this controller's own, without a term that it
        knows of.
        """
        self._client.transaction([created_at(self._leader_key, key.create_revision)], [deletion_of(self._leader_key)],
                                 [range_of(self._leader_key)])

    def _revoke(self, lease_id: int) -> None:
        try:
            self._client.revoke_lease(lease_id)
        except EtcdError as error:
            log.debug("lease %d will expire: %s", lease_id, error)

    # ---- ControllerKeepAliveService

    def keep(self) -> bool:
        """Run one round: ask whether the term continues, and keep the lease alive; False if no member answered."""
        term = self._term
        if term is None:
            return True
        try:
            goes_on = self._ask(term)
            if goes_on:
                # Only after an answer: a controller whose requests arrive but whose answers are lost would keep the
                # lease without leading.
                self._client.keep_alive(term.lease_id)
        except EtcdError as error:
            self._failures_to_keep += 1
            if self._failures_to_keep % _LOGGED_EACH == 1:
                log.warning("controller %s can't keep its leadership alive: %s", self._me.id, error)
            return False
        self._failures_to_keep = 0
        if not goes_on:
            self.drop(term, "its lease has ended")
        return True


def _first(keys: tuple[KeyValue, ...]) -> KeyValue | None:
    return keys[0] if keys else None


class ControllerKeepAliveService(ServiceThread):
    """Extends the leadership; nothing else waits on its thread."""

    def __init__(self, leadership: EtcdLeadership, interval_ms: float) -> None:
        super().__init__()
        self.daemon = True
        self._leadership, self._interval_ms = leadership, interval_ms

    def run(self) -> None:
        while not self.stopped:
            answered = self._leadership.keep()
            if not self._leadership.is_told():
                self._leadership.wake_election()
            self.wait_for_running(self._interval_ms if answered else _PAUSE_MS)


class ControllerElectionService(ServiceThread):
    """Watches the leader, and leads if none exists; listeners may take their time on its thread."""

    def __init__(self, leadership: EtcdLeadership) -> None:
        super().__init__()
        self.daemon = True
        self._leadership = leadership

    def run(self) -> None:
        while not self.stopped:
            self._leadership.take_part()
