"""Replica sets in an etcd cluster, which any number of controllers share.

    PREFIX/brokers/NAME  the id of the put that wrote it, a new line, the replica set's document; empty: deleted
"""
from __future__ import annotations

import itertools
import logging
import threading
import time
import uuid
from collections.abc import Callable
from typing import TypeVar

from rmqha.common.controller_config import ControllerConfig
from rmqha.controller.etcd_client import (
    EtcdClient,
    EtcdError,
    EtcdRefusedError,
    EtcdSettings,
    KeyValue,
    TxnAnswer,
    created_at,
    parse_endpoints,
    put_of,
    range_of,
    written_at,
)
from rmqha.controller.etcd_leadership import EtcdLeadership, Known, Term
from rmqha.controller.local_store import NotLeaderError, StoreConflictError, StoreFailedError, Versioned
from rmqha.controller.replicas_info_manager import ReplicaSet, ReplicaSetError
from rmqha.remoting.remoting_client import PeerWatch

log = logging.getLogger("RocketmqController")

_NS_PER_S = 1_000_000_000
# How many hanging members can be asked during a lease.
_TIMEOUT_SHARE = 6
# After all members have failed.
_PAUSE_S = 0.02

_Record = TypeVar("_Record", Versioned, Versioned | ValueError)


def encode_record(token: str, replica_set: ReplicaSet | None) -> bytes:
    """Return a key's value. The token distinguishes this put from all others, and has no line break."""
    return token.encode() + b"\n" + (b"" if replica_set is None else replica_set.encode())


def decode_record(value: bytes) -> ReplicaSet | None:
    """Return the replica set in a key's value; None if it was deleted. ReplicaSetError."""
    _token, line_break, document = value.partition(b"\n")
    if not line_break:
        raise ReplicaSetError(f"{value[:80]!r} has no second line, which should hold a replica set")
    return ReplicaSet.decode(document) if document.strip() else None


class EtcdStore:
    """A ControllerStore whose leader reads from its own copy, and writes to etcd before it changes the copy.

    The leader reads everything when its leadership begins, and no other controller writes while it leads. A deleted
    name keeps its key, with an empty document: so no version occurs twice, and a put that a member has delayed does
    nothing.
    """

    def __init__(self, config: ControllerConfig, controller_id: str, address: str,
                 clock: Callable[[], int] = time.monotonic_ns, client: EtcdClient | None = None) -> None:
        """`address`: where others reach this controller. ValueError, OSError: the configuration can't be used."""
        prefix = config.etcdPrefix.rstrip("/")
        if not prefix:
            raise ValueError("etcdPrefix is empty: the controllers' keys would mix with those of others")
        self.on_leader_changed: Callable[[], None] | None = None
        self._client = client or EtcdClient(_settings(config))
        self._prefix = f"{prefix}/brokers/".encode()
        self._lease_ns = config.etcdLeaseSeconds * _NS_PER_S
        self._clock = clock
        # Guards the records of the term.
        self._lock = threading.Lock()
        self._nonce, self._puts = uuid.uuid4().hex, itertools.count(1)
        end = self._prefix[:-1] + bytes([self._prefix[-1] + 1])
        self._leadership = EtcdLeadership(self._client, prefix, controller_id, address, config.etcdLeaseSeconds,
                                          (self._prefix, end), self._parse_all, clock)
        self._leadership.on_changed = self._tell
        self._leader_watch = PeerWatch("ControllerLeaderWatch", self._other_leader, self._leadership.leader_has_gone)

    def start(self) -> None:
        """Join the election. OSError if the cluster refuses this user, or is not an etcd cluster."""
        try:
            self._leadership.start()
        except EtcdRefusedError as error:
            raise OSError(f"etcd refuses this controller: {error}") from error
        self._leader_watch.start()

    def shutdown(self) -> None:
        """Give up the leadership, and close. May be called twice."""
        self._leader_watch.shutdown()
        self._leadership.shutdown()
        self._client.close()

    def _other_leader(self) -> str | None:
        return None if self.leads else self.leader_address

    def _tell(self) -> None:
        if self.on_leader_changed is not None:
            self.on_leader_changed()

    @property
    def leads(self) -> bool:
        """True while this controller leads: false before another one can do anything that rests on time."""
        return self._leadership.current() is not None

    @property
    def leads_since_ns(self) -> int:
        """The time (monotonic) after which no other controller trusts itself to lead; up to a lease in the future."""
        return self._leadership.leads_since_ns

    @property
    def term(self) -> int:
        """The number of this leadership; 0 while it does not lead."""
        term = self._leadership.current()
        return 0 if term is None else term.number

    @property
    def leader_id(self) -> str | None:
        """The id of the controller that leads; None if no leader is known."""
        leader = self._leadership.leader()
        return None if leader is None else leader.id

    @property
    def leader_address(self) -> str | None:
        """The leader's `host:port`; None if no leader is known."""
        leader = self._leadership.leader()
        return None if leader is None else leader.address

    def confirm(self, since_ns: int) -> None:
        """Ask etcd, at most once for all waiting threads. NotLeaderError, StoreFailedError."""
        self._leadership.make_sure(self._term(), since_ns)

    def names(self) -> list[str]:
        """Return all broker names except those with a damaged document. NotLeaderError."""
        term = self._term()
        with self._lock:
            return sorted(name for name, known in term.records.items()
                          if isinstance(known.record, Versioned) and known.record.replica_set is not None)

    def places_taken(self, broker_name: str) -> int:
        """Return the number of other names' keys, including those with an empty document. NotLeaderError."""
        term = self._term()
        with self._lock:
            return len(term.records) - (broker_name in term.records)

    def get(self, broker_name: str) -> Versioned:
        """Return the replica set of a name. NotLeaderError; ReplicaSetError says what is wrong with a damaged
        document.
        """
        term = self._term()
        with self._lock:
            record = term.records[broker_name].record if broker_name in term.records else Versioned(None, 0)
        return self._read_again(term, broker_name) if isinstance(record, ValueError) else record

    def put(self, broker_name: str, version: int, replica_set: ReplicaSet | None,
            term: int | None = None) -> Versioned:
        """Write it if this controller leads, and the stored one still has that version; None deletes it.

        Members that do not answer are asked in turn, for the duration of a lease in all. NotLeaderError,
        StoreConflictError, StoreFailedError.
        """
        now, key = self._term(), self._key(broker_name)
        if term is not None and term != now.number:
            raise NotLeaderError(f"{broker_name} was not changed: another controller may have led since it was read")
        value, sure = encode_record(f"{self._nonce}-{next(self._puts)}", replica_set), True
        give_up_ns = self._clock() + self._lease_ns
        while True:
            asked_ns = self._clock()
            try:
                answer = self._client.transaction(
                    [created_at(self._leadership.leader_key, now.revision), written_at(key, version)],
                    [put_of(key, value)], [range_of(self._leadership.leader_key), range_of(key)])
                return self._written(now, broker_name, (version, value, replica_set), answer, asked_ns,
                                     sure and answer.sure)
            except EtcdError as error:
                sure = sure and error.sure
                if isinstance(error, EtcdRefusedError) or self._clock() > give_up_ns:
                    self._leadership.drop(now, f"it is not known whether {broker_name} was written: {error}")
                    raise StoreFailedError(f"it is not known whether {broker_name} was written: {error}") from error
            time.sleep(_PAUSE_S)

    def _written(self, term: Term, broker_name: str, wanted: tuple[int, bytes, ReplicaSet | None], answer: TxnAnswer,
                 asked_ns: int, sure: bool) -> Versioned:
        """Return the result of a put; unless `sure`, it was already sent before to a member that did not answer."""
        version, value, replica_set = wanted
        if answer.succeeded:
            self._leadership.confirm(term, asked_ns)
            return self._keep(term, broker_name, answer, Versioned(replica_set, answer.revision))
        leader, found = (keys[0] if keys else None for keys in answer.ranges)
        still_leads = leader is not None and leader.create_revision == term.revision
        if not still_leads:
            self._leadership.drop(term, "another one may lead")
        # Written by the request whose answer was lost.
        if found is not None and found.value == value:
            return self._keep(term, broker_name, answer, Versioned(replica_set, found.mod_revision))
        if not still_leads:
            if sure:
                raise NotLeaderError(f"{broker_name} was not changed: another controller leads now")
            raise StoreFailedError(f"it is not known whether {broker_name} was written: another controller leads now")
        self._keep(term, broker_name, answer, Versioned(None, 0) if found is None else _parsed(found))
        raise StoreConflictError(f"{broker_name} has another version than {version}")

    def _keep(self, term: Term, broker_name: str, answer: TxnAnswer, record: _Record) -> _Record:
        """Store an answer's record of a name, unless a later one arrived before it."""
        with self._lock:
            known = term.records.get(broker_name)
            if known is None or known.as_of < answer.revision:
                term.records[broker_name] = Known(answer.revision, record)
        return record

    def _read_again(self, term: Term, broker_name: str) -> Versioned:
        """Read a damaged document again: it may have been repaired by hand."""
        key = self._key(broker_name)
        try:
            answer = self._client.transaction([created_at(self._leadership.leader_key, term.revision)],
                                              [range_of(key)], [range_of(self._leadership.leader_key)])
        except EtcdError as error:
            raise ReplicaSetError(f"{broker_name} can't be read again: {error}") from error
        if not answer.succeeded:
            self._leadership.drop(term, "another one may lead")
            raise NotLeaderError(f"{broker_name} was not read: another controller leads now")
        found = answer.ranges[0]
        record = self._keep(term, broker_name, answer, _parsed(found[0]) if found else Versioned(None, 0))
        if isinstance(record, ValueError):
            raise record
        return record

    def _term(self) -> Term:
        term = self._leadership.current()
        if term is None:
            raise NotLeaderError(f"this controller does not lead; the leader is {self.leader_address or 'not known'}")
        return term

    def _key(self, broker_name: str) -> bytes:
        return self._prefix + broker_name.encode()

    def _parse_all(self, answer: TxnAnswer) -> dict[str, Known]:
        """Return the stored records by broker name, from the last range of a transaction."""
        found: dict[str, Known] = {}
        for key in answer.ranges[-1]:
            try:
                name = key.key.removeprefix(self._prefix).decode()
            except UnicodeDecodeError:
                log.error("key %r is not a broker's name; ignoring it", key.key)
                continue
            found[name] = Known(answer.revision, _parsed(key))
        return found


def _settings(config: ControllerConfig) -> EtcdSettings:
    has_tls = bool(config.etcdCaFile or config.etcdCertFile)
    return EtcdSettings(
        parse_endpoints(config.etcdEndpoints, "https" if has_tls else "http"),
        config.etcdLeaseSeconds / _TIMEOUT_SHARE, config.etcdUser, config.etcdPassword,
        config.etcdCaFile, config.etcdCertFile, config.etcdKeyFile)


def _parsed(key: KeyValue) -> Versioned | ValueError:
    try:
        return Versioned(decode_record(key.value), key.mod_revision)
    except ReplicaSetError as error:
        log.error("the value of etcd's key %r can't be used: %s", key.key, error)
        return error
