"""A slave's tables: taken over by change beside as a whole."""
from __future__ import annotations

import contextlib
import itertools
import os
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rmqha.broker.broker_controller import BrokerController
from rmqha.broker.broker_outer_api import Told
from rmqha.broker.slave_synchronize import TableVersions
from rmqha.common import data_version
from rmqha.common.data_version import ChangeLog
from rmqha.common.topics import SubscriptionGroupConfig, TopicConfig
from rmqha.remoting.exception import RemotingSendRequestException
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from tests.broker.support import new_controller
from tests.fast_ways.way import FAST, PLAIN, Plant, Way, lowered, replaced

MASTER = "10.0.0.1:10911"
NAMES = tuple("ABCDEF")
TABLES = ("_sync_topic_config", "_sync_consumer_offset", "_sync_subscription_group_config")


class Broker:
    """A broker that is opened and never started: tables, files, and what answers requests."""

    controller: BrokerController

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.open()

    def open(self) -> None:
        """Open it, as at a start."""
        self.controller = new_controller(self._folder)
        assert self.controller.initialize()
        self.topics = self.controller.topic_config_manager
        self.groups = self.controller.subscription_group_manager
        self.offsets = self.controller.consumer_offset_manager

    def restart(self, cleanly: bool) -> None:
        """End it, and open it again; what was not saved by then is lost unless it ends cleanly."""
        if cleanly:
            for manager in (self.topics, self.groups, self.offsets):
                manager.persist()
        self.controller.message_store.shutdown()
        self.open()

    def tables(self) -> dict[str, object]:
        """What slaves take over."""
        return {"topics": dict(self.topics.topic_config_table), "topics' version": self.topics.data_version,
                "groups": dict(self.groups.subscription_group_table), "groups' version": self.groups.data_version,
                "offsets": {key: dict(offsets) for key, offsets in self.offsets.offset_table.items()}}

    def change(self, rng: random.Random) -> Callable[[Broker], None]:
        """One change that an administrator or a consumer makes; to be made to as many brokers as there are."""
        name, number, kind = rng.choice(NAMES), rng.randint(1, 9), rng.random()
        if kind < 0.25:
            return lambda broker: broker.topics.update_topic_config(TopicConfig(name, number, number))
        if kind < 0.32:
            return lambda broker: broker.topics.delete_topic_config(name)
        if kind < 0.55:
            return lambda broker: broker.groups.update_subscription_group_config(
                SubscriptionGroupConfig(name, retryMaxTimes=number))
        if kind < 0.62:
            return lambda broker: broker.groups.delete_subscription_group_config(name)
        if kind < 0.66:
            return lambda broker: broker.offsets.remove_topic(name)
        offset = rng.randint(0, 1000)
        return lambda broker: broker.offsets.commit_offset("10.0.0.9:1", "g" + name, name, number % 3, offset)


class Slave(Broker):
    """A slave that asks its master without a network, whose answers may be lost."""

    def __init__(self, folder: Path, master: Broker, knows: bool, taken: Counter[str]) -> None:
        self._master, self._knows, self._taken = master, knows, taken
        self.lost = ""  # the request, or its answer
        super().__init__(folder)

    def open(self) -> None:
        """Open it; what it knows of its master is forgotten."""
        super().open()
        api = self.controller.broker_outer_api
        ask = api._ask_for_table

        def counted(cls: type, addr: str, code: int, known: str) -> Told[Any]:
            told = ask(cls, addr, code, known)
            self._taken[FAST if told.table is None or told.only_changes else PLAIN] += 1
            return told
        if self._knows:
            api._ask_for_table = counted  # type: ignore[method-assign]
        api._invoke = self._invoke  # type: ignore[method-assign, assignment]
        self.controller.slave_synchronize.master_addr = MASTER

    def _invoke(self, _addr: str, request: RemotingCommand, *_timeout: int) -> RemotingCommand:
        if self.lost == "request":
            raise RemotingSendRequestException(MASTER)
        asked = RemotingCommand.decode(request.encode()[4:])
        master = self._master.controller.remoting_server
        processor, _ = master.default_request_processor  # type: ignore[misc]  # the admin's
        response = processor.process_request(None, asked)  # type: ignore[arg-type]  # nobody asks for the channel
        if self.lost == "answer":
            raise RemotingSendRequestException(MASTER)
        return RemotingCommand.decode(response.encode()[4:])  # type: ignore[union-attr]

    def synchronize(self, what: str, take_lower: bool) -> None:
        """Ask for one table, or all."""
        synchronize = self.controller.slave_synchronize
        synchronize.take_lower_offsets = take_lower
        if not self._knows:
            synchronize._versions.forget()
        for name in TABLES if what == "all" else [what]:
            with contextlib.suppress(RemotingSendRequestException):
                getattr(synchronize, name)(MASTER)


@contextlib.contextmanager
def _three_brokers(taken: Counter[str]) -> Iterator[tuple[Broker, list[Slave]]]:
    with tempfile.TemporaryDirectory() as folder:
        brokers: list[Broker] = []
        try:
            brokers.append(Broker(Path(folder, "master")))
            for knows in (True, False):
                brokers.append(Slave(Path(folder, f"slave-{knows}"), brokers[0], knows, taken))
            yield brokers[0], brokers[1:]  # type: ignore[misc]  # slaves
        finally:
            for broker in brokers:
                broker.controller.message_store.shutdown()


def compare_slaves(rng: random.Random) -> Counter[str]:
    """Two slaves go through the same; one is told changes, the other all each time."""
    taken: Counter[str] = Counter()
    clock = itertools.count(1 << 41)  # two changes are never of one millisecond
    with (lowered(data_version, _now_ms=lambda: next(clock)), lowered(os, fsync=lambda _file: None),
          _three_brokers(taken) as (master, slaves)):
        for _ in range(rng.choice([5, 20, 60])):
            event = rng.random()
            if event < 0.44:
                master.change(rng)(master)
            elif event < 0.56:
                change = master.change(rng)
                for slave in slaves:  # it was a master in between, or consumers were with it
                    change(slave)
            elif event < 0.6:
                master.restart(rng.random() < 0.7)
            elif event < 0.64:
                cleanly = rng.random() < 0.7
                for slave in slaves:
                    slave.restart(cleanly)
            elif event < 0.66:
                for slave in slaves:
                    slave.controller.slave_synchronize.begin_anew()
                    slave.controller.slave_synchronize.master_addr = MASTER
            else:
                what = rng.choice(["all", "all", *TABLES])
                lost, lower = rng.choice(["", "", "", "", "request", "answer"]), rng.random() < 0.1
                for slave in slaves:
                    slave.lost = lost
                    slave.synchronize(what, lower)
                    slave.lost = ""
        for slave in slaves:
            slave.synchronize("all", False)
        theirs, told, whole = master.tables(), slaves[0].tables(), slaves[1].tables()
        for name in told:
            assert told[name] == whole[name], f"{name}: {_difference(told[name], whole[name])}"
            assert name == "offsets" or told[name] == theirs[name], \
                f"{name}, and the master's: {_difference(told[name], theirs[name])}"
        for slave, before in zip(slaves, (told, whole)):
            slave.offsets.persist_changes()  # as each five seconds; all else was saved when it was taken over
            slave.restart(False)
            for name, table in slave.tables().items():
                assert table == before[name], f"{name}, in the file: {_difference(table, before[name])}"
    return taken


def _difference(one: object, other: object) -> str:
    """What two tables have not in common."""
    if not isinstance(one, dict) or not isinstance(other, dict):
        return f"{one}, {other}"
    return str({name: (one.get(name), other.get(name)) for name in one.keys() | other.keys()
                if one.get(name) != other.get(name)})


def _own_state_forgotten(self: TableVersions, table: str, master_addr: str,
                         own: str = "") -> tuple[str, Callable[..., None]]:
    """What has changed here since does not count."""
    return _of(self, table, master_addr, self._known.get(table, ("", "", ""))[2])


def _gone_is_no_change(self: ChangeLog) -> None:
    """An entry that is taken away leaves all marks as they are."""


def one_too_few(self: ChangeLog, mark: str) -> list[str] | None:
    """The change right behind the mark is missed."""
    life, _, number = mark.rpartition(".")
    return _since(self, f"{life}.{int(number) + 1}" if number.isdigit() and mark != self.mark() else mark)


_of, _since = TableVersions.of, ChangeLog.since

WAYS = [
    Way("slave's tables by change", "rmqha/broker/slave_synchronize.py::SlaveSynchronize",
        "the master knows the state that the slave names", "the whole table", compare_slaves,
        (Plant("the slave's own changes do not count", replaced(TableVersions, "of", _own_state_forgotten)),
         Plant("what is gone is not noted", replaced(ChangeLog, "note_all", _gone_is_no_change)),
         Plant("the first change is missed", replaced(ChangeLog, "since", one_too_few))), seeds=12),
]
