"""Which of the controllers that share an etcd cluster leads.

    PREFIX/leader  who leads, with the leader's lease: it goes when nobody keeps the lease alive
    PREFIX/term    how the last leadership began or ended; it stays

    ControllerElectionService:  look -> nobody? make both keys, in one transaction -> tell -> watch -> look ...
    ControllerKeepAliveService: ask most members whether the leader's key is still the own one, keep its lease alive

A leadership is the revision at which its key was made. Each change that the leader makes compares it within the same
transaction, so whoever is not the leader any more changes nothing, whatever clocks and leases do.

What is answered without a transaction (`leads`) rests on time: a leader may lead for its lease's seconds, less a tenth
for clocks that do not go at the same pace, from when the last question left after which most members said that the key
is its own. Nobody else has led before that question, and who leads next knows for how long the one before may go on
(`leads_since_ns`), unless that one has said that it ended. So what leases are good for is only that another one may
lead: it does not matter when etcd ends them, which it may do too early or too late while its own leader changes.
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
_OWN_SHARE, _OTHERS_SHARE = 0.9, 1.1  # of a lease: what its leader uses, and what the next one takes it to use
_KEEP_ALIVE_SHARE = 6  # questions in a lease
_WATCH_SHARE = 3  # looks in a lease, if nothing happens
_PAUSE_MS = 100  # after a failure
_LOGGED_EACH = 50  # failures in a row
_FREE = b'{"state": "free"}'


@dataclass(frozen=True)
class Leader:
    """What the leader's key says; `nonce` tells processes apart that have the same id."""

    id: str
    address: str
    nonce: str

    def encode(self) -> bytes:
        """The key's value: UTF-8 JSON."""
        return json.dumps({"id": self.id, "address": self.address, "nonce": self.nonce}, ensure_ascii=False).encode()

    @classmethod
    def decode(cls, data: bytes) -> Leader | None:
        """None when it is none: somebody leads, and nobody can say who."""
        try:
            document = parse_json(data, "the leader's key")
            found = cls(document["id"], document["address"], document["nonce"])
        except (ValueError, KeyError, TypeError):
            return None
        return found if all(isinstance(text, str) for text in (found.id, found.address, found.nonce)) else None


@dataclass(frozen=True)
class Known:
    """What was stored for a name at a revision of the cluster; an error says why it is no replica set."""

    as_of: int
    record: Versioned | ValueError


@dataclass(frozen=True, eq=False)
class Term:
    """One leadership of this controller. `records`, by broker name, is what was read with its beginning, and written
    since; guarded by the store."""

    revision: int
    lease_id: int
    since_ns: int
    records: dict[str, Known] = field(default_factory=dict)
    number: int = field(default_factory=new_term)


def held(seconds: int) -> bytes:
    """The value of PREFIX/term while somebody leads whose lease has so many seconds."""
    return json.dumps({"state": "held", "seconds": seconds}).encode()


def held_seconds(value: bytes, unknown: int) -> int:
    """For how many seconds the leader before may go on after its key has gone; 0: it has ended by itself."""
    try:
        document = parse_json(value, "the term's key")
        if document["state"] == "free":
            return 0
        seconds = document["seconds"]
        return seconds if isinstance(seconds, int) and 0 < seconds < 1 << 31 else unknown
    except (ValueError, KeyError, TypeError):
        return unknown


class EtcdLeadership:
    """This controller's part in who leads. Any thread may ask."""

    def __init__(self, client: EtcdClient, prefix: str, controller_id: str, address: str, lease_seconds: int,
                 records: tuple[bytes, bytes],
                 parse: Callable[[TxnAnswer], dict[str, Known]],
                 clock: Callable[[], int] = time.monotonic_ns) -> None:
        """`records`: from which key to which what the leader decides is stored; `parse` reads it in the last range."""
        self._client = client
        self._leader_key, self._term_key = f"{prefix}/leader".encode(), f"{prefix}/term".encode()
        self._me = Leader(controller_id, address, uuid.uuid4().hex)
        self._seconds = lease_seconds
        self._records, self._parse = records, parse
        self._clock = clock
        self._lock = threading.Lock()  # guards the changes of those below
        self._term: Term | None = None
        self._until_ns = 0  # until when the term may be used without asking
        self._confirmed_ns = LONG_AGO  # when most members were last asked, and said that it goes on
        self._asking = threading.Lock()  # one question at a time: who waits for it may need none of his own
        self._unanswered: tuple[int, EtcdError] | None = None  # when they were last asked in vain; under _asking
        self._last_term: Term | None = None  # of this process: the present one, too
        self._seen: Leader | None = None
        self._seen_ns = 0
        self._gone: str | None = None  # the nonce of a leader that has ended
        self._told: Term | None = None  # what `on_changed` was called for last; ControllerElectionService's
        self._failures = 0  # in a row; ControllerElectionService's
        self._failures_to_keep = 0  # in a row; ControllerKeepAliveService's
        self.on_changed: Callable[[], None] | None = None
        self._keep_alive = ControllerKeepAliveService(self, lease_seconds * 1000 / _KEEP_ALIVE_SHARE)
        self._election = ControllerElectionService(self)

    @property
    def leader_key(self) -> bytes:
        """The key that a change has to compare with `Term.revision`."""
        return self._leader_key

    def start(self) -> None:
        """Take part. EtcdRefusedError: the cluster won't have us; one that does not answer may come later."""
        try:
            self._look()
        except EtcdRefusedError:
            raise
        except EtcdError as error:
            log.warning("etcd does not answer yet: %s", error)
        self._keep_alive.start()
        self._election.start()

    def shutdown(self) -> None:
        """Give the leadership back, so that another one may lead at once, and tell. Idempotent."""
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
        """Whether the leader before can't believe any more that it leads."""
        return self._clock() >= term.since_ns

    # ---- asked by any thread

    def current(self) -> Term | None:
        """The term in which this controller leads now, as far as it can know."""
        term = self._term
        return term if term is not None and self._clock() < self._until_ns else None

    @property
    def leads_since_ns(self) -> int:
        """From when on nobody else leads: it may lie ahead, while the leader before may still believe that it leads."""
        term = self._term
        return 0 if term is None else term.since_ns

    def leader(self) -> Leader | None:
        """Who leads, when that was seen within a lease; None when nobody is known to."""
        if self.current() is not None:
            return self._me
        seen, seen_ns = self._seen, self._seen_ns
        if seen is None or seen.nonce == self._me.nonce or self._clock() > seen_ns + self._seconds * _NS_PER_S:
            return None
        return seen

    def confirm(self, term: Term, asked_ns: int) -> None:
        """Most members have said, asked at `asked_ns` (of the clock), that this term goes on."""
        with self._lock:
            if self._term is term:
                self._until_ns = max(self._until_ns, asked_ns + int(self._seconds * _OWN_SHARE * _NS_PER_S))
                self._confirmed_ns = max(self._confirmed_ns, asked_ns)

    def make_sure(self, term: Term, since_ns: int) -> None:
        """Ask most members whether this term goes on, unless they were asked since that moment (of the clock).

        NotLeaderError; StoreFailedError when they do not answer.
        """
        with self._asking:
            if self._term is term and self._confirmed_ns < since_ns:
                asked_ns = self._clock()
                try:
                    if self._unanswered is not None and self._unanswered[0] >= since_ns:
                        raise self._unanswered[1]
                    if not self._ask(term):
                        self.drop(term, "its key has gone")
                except EtcdError as error:
                    self._unanswered = asked_ns, error
                    raise StoreFailedError(f"etcd does not say who leads: {error}") from error
            if self._term is not term:
                raise NotLeaderError("another controller leads by now")

    def _ask(self, term: Term) -> bool:
        """Whether most members say that this term goes on."""
        asked_ns = self._clock()
        answer = self._client.transaction([created_at(self._leader_key, term.revision)],
                                          [range_of(self._leader_key)], [range_of(self._leader_key)])
        if answer.succeeded:
            self.confirm(term, asked_ns)
        return answer.succeeded

    def drop(self, term: Term, why: str) -> None:
        """This term is over: it was taken away, or what was written in it is not known. Another one may begin."""
        with self._lock:
            if self._term is not term:
                return
            self._term = None
        log.warning("controller %s does not lead any more: %s", self._me.id, why)
        self.wake_election()

    def wake_election(self) -> None:
        """Let ControllerElectionService look now."""
        self._election.wakeup()
        self._client.interrupt()

    def leader_has_gone(self, address: str) -> None:
        """Nobody listens any more where the leader did: its lease need not be waited for.

        To take a leadership away is safe at any time, whether its leader lives or not.
        """
        seen = self._seen
        if seen is not None and seen.address == address and seen.nonce != self._me.nonce:
            log.info("controller %s, which led, has ended", seen.id)
            self._gone = seen.nonce
            self.wake_election()

    # ---- ControllerElectionService

    def take_part(self) -> None:
        """One round: see who leads, lead if nobody does, tell of what has changed, and wait until something may have.

        An exception of who is told ends the round after the telling.
        """
        try:
            watch_from = self._step()
            self._failures = 0
        except EtcdError as error:
            self._failures += 1
            if self._failures % _LOGGED_EACH == 1:
                log.warning("no controller can be elected: etcd does not answer: %s", error)
            watch_from = -1
        self.tell()
        if watch_from < 0:
            self._election.wait_for_running(_PAUSE_MS)
        elif watch_from and not self._election.stopped:
            if not self._client.wait_for_change(self._leader_key, watch_from, self._seconds / _WATCH_SHARE):
                self._election.wait_for_running(_PAUSE_MS)  # it may have failed at once

    def tell(self) -> None:
        """Call `on_changed` if this controller has begun, ceased, or begun anew to lead since it was called last."""
        term = self.current()
        if term is not self._told:
            self._told = term
            if term is not None:
                log.info("controller %s leads, at revision %d", self._me.id, term.revision)
            if self.on_changed is not None:
                self.on_changed()

    def is_told(self) -> bool:
        """Whether all that has changed was told."""
        return self._told is self.current()

    def _step(self) -> int:
        """The revision after which a change of the leader's key is news; 0: look again at once."""
        key, revision = self._look()
        term = self._term
        if key is None:
            if term is not None:
                self.drop(term, "its key has gone")
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
            # it may be this one's own, when a member did not answer: the next look takes that away
            self._revoke(lease_id)
            return
        term = Term(answer.revision, lease_id, self._since_ns(_first(answer.ranges[0])), self._parse(answer))
        with self._lock:
            self._term = self._last_term = term
            self._confirmed_ns = asked_ns
            self._until_ns = asked_ns + int(self._seconds * _OWN_SHARE * _NS_PER_S)
        self._keep_alive.wakeup()

    def _since_ns(self, before: KeyValue | None) -> int:
        """From when on only this controller leads, given how the leadership before began or ended."""
        last, now = self._last_term, self._clock()
        if before is None:
            return LONG_AGO  # nobody has led before who could have granted a lease
        if last is not None and before.mod_revision == last.revision:
            return last.since_ns  # nobody else has led meanwhile
        return now + int(held_seconds(before.value, self._seconds) * _OTHERS_SHARE * _NS_PER_S)

    def _take_away(self, key: KeyValue) -> None:
        """Delete a leader's key: it has ended, or it is this one, whose term is over or has begun without a word."""
        self._client.transaction([created_at(self._leader_key, key.create_revision)], [deletion_of(self._leader_key)],
                                 [range_of(self._leader_key)])

    def _revoke(self, lease_id: int) -> None:
        try:
            self._client.revoke_lease(lease_id)
        except EtcdError as error:
            log.debug("lease %d ends by itself: %s", lease_id, error)

    # ---- ControllerKeepAliveService

    def keep(self) -> bool:
        """One round: ask whether the term goes on, and keep the lease alive; False when nobody has answered."""
        term = self._term
        if term is None:
            return True
        try:
            goes_on = self._ask(term)
            if goes_on:
                # only behind an answer: one that is heard and hears nothing would keep its lease and not lead
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
    """Asks for the leadership's next seconds; nothing else waits on its thread."""

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
    """Sees who leads, and leads if nobody does; who is told of it may take its time here."""

    def __init__(self, leadership: EtcdLeadership) -> None:
        super().__init__()
        self.daemon = True
        self._leadership = leadership

    def run(self) -> None:
        while not self.stopped:
            self._leadership.take_part()
