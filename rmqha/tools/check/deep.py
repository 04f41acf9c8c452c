"""`check ha --deep`: whether each slave holds the bytes of its master, by their checksums."""
from __future__ import annotations

import re
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from rmqha.tools.check.check_base import Status
from rmqha.tools.ha.broker_admin import ReplicationToolError
from rmqha.tools.ha.judgement import Problem, Rules, name_of
from rmqha.tools.ha.log_match import (
    Difference,
    describe,
    differing_blocks,
    first_difference,
    in_unread_rest,
)
from rmqha.tools.ha.log_sides import LogAdmin, LogSide
from rmqha.tools.ha.views import MasterView, SlaveView
from rmqha.tools.store.output import cell, counted, size_text

_RANGE = re.compile(r"(\d*):(\d*)", re.ASCII)

if TYPE_CHECKING:
    _RangeParam = click.ParamType[tuple[int, int | None]]
else:
    _RangeParam = click.ParamType  # generic from click 8.4 on; 8.1 will do


@dataclass(frozen=True)
class Wanted:
    """Which part of the logs: from `begin` to `end` (None: to their end), or the newest `newest` bytes."""

    begin: int | None = None
    end: int | None = None
    newest: int = 0


class RangeType(_RangeParam):
    """`BEGIN:END`, offsets of the commit log; either may be missing."""

    name = "range"

    def convert(self, value: object, param: click.Parameter | None,
                ctx: click.Context | None) -> tuple[int, int | None]:
        """The offsets of a text."""
        match = _RANGE.fullmatch(str(value))
        if match is None:
            self.fail(f"{value!r} is not BEGIN:END, two offsets of the commit log", param, ctx)
        begin, end = int(match[1] or 0), int(match[2]) if match[2] else None
        if end is not None and end <= begin:
            self.fail(f"{value!r} ends before it begins", param, ctx)
        return begin, end


@dataclass
class Compared:
    """A slave beside its master: the range that was compared, and what was found; `error`: why it was not."""

    name: str
    master: str
    slave: str
    begin: int = 0
    end: int = 0
    compared: int = 0  # bytes
    rests: int = 0  # files that differ behind their blank, where nobody reads
    difference: Difference | None = None
    error: str = ""

    def problem(self) -> Problem | None:
        """None when what was compared is equal."""
        who = f"{self.name}'s slave {cell(self.slave)}"
        if self.difference is not None:
            return Problem(Status.CRITICAL, f"{who}: {self.difference.text()}", "DIFFERS")
        return Problem(Status.UNKNOWN, f"{who} can't be compared: {self.error}") if self.error else None

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        found, record = self.difference, self.difference.record if self.difference is not None else None
        difference = None if found is None else {
            "offset": found.offset, "record": found.place.start, "wrong": found.wrong, "text": found.text(),
            "topic": record.topic if record is not None else None,
            "queueId": record.queue_id if record is not None else None,
            "queueOffset": record.queue_offset if record is not None else None,
            "size": record.size if record is not None else None}
        return {"name": self.name, "master": self.master, "slave": self.slave, "begin": self.begin, "end": self.end,
                "comparedBytes": self.compared, "unreadRestsThatDiffer": self.rests, "difference": difference,
                "error": self.error or None}

    def perfdata(self) -> str:
        """As monitoring reads it."""
        label = re.sub(r"['=\s]", "_", f"{self.name}/{self.slave}")
        return f"'{label} compared'={self.compared}B;;;0"


def compare_slaves(admin: LogAdmin, views: list[MasterView], rules: Rules, wanted: Wanted) -> list[Compared]:
    """Each slave that the name server lists, beside its master."""
    found = []
    for view in views:
        if view.follows is not None and not view.slaves:
            found.append(Compared(name_of(view), view.follows.address, view.address,
                                  error="a slave was asked alone: give the name server (-n), which knows its master"))
            continue
        slaves = [slave for slave in view.slaves if slave.broker_id is not None and not rules.ignores(slave)]
        if not slaves and not view.error:
            found.append(Compared(name_of(view), view.address, "", error="the name server lists none (-n)"))
        found += [_compare(admin, view, slave, wanted) for slave in slaves]
    return found


def _compare(admin: LogAdmin, view: MasterView, slave: SlaveView, wanted: Wanted) -> Compared:
    result = Compared(name_of(view), view.address, slave.address)
    if view.error:
        result.error = view.error
        return result
    try:
        with closing(admin.side(view.address, "master")) as master, closing(admin.side(slave.address, "slave")) as held:
            _compare_logs(master, held, result, wanted)
    except ReplicationToolError as error:
        result.error = error.message
    return result


def _compare_logs(master: LogSide, slave: LogSide, result: Compared, wanted: Wanted) -> None:
    begin, end = max(master.begin, slave.begin), min(master.end, slave.end)
    if master.file_size != slave.file_size:
        result.error = (f"files of {master.file_size} and {slave.file_size} bytes (mappedFileSizeCommitLog) can't hold "
                        "the same log")
        return
    if wanted.end is not None:
        end = min(end, wanted.end)
    begin = max(begin, wanted.begin if wanted.begin is not None else end - wanted.newest)
    if begin >= end and (master.end or slave.end):
        result.error = (f"they have nothing of that range in common: the master holds {master.begin} to {master.end}, "
                        f"the slave {slave.begin} to {slave.end}")
        return
    result.begin, result.end = begin, end
    _find(master, slave, result)


def _find(master: LogSide, slave: LogSide, result: Compared) -> None:
    """The first difference, and how many bytes were compared up to it."""
    def come_to(offset: int) -> None:
        result.compared = offset - result.begin
    done = result.begin  # all before it is decided
    for low, high in differing_blocks(master, slave, result.begin, result.end, come_to):
        while (at := first_difference(master, slave, max(low, done), high)) is not None:
            found = describe(master, slave, at)
            if not in_unread_rest(master, slave, at, found.place):
                result.difference, result.compared = found, at - result.begin
                return
            result.rests += 1
            done = found.place.end


def deep_text(results: list[Compared]) -> str:
    """What the line says when all is equal."""
    total = sum(each.compared for each in results)
    rests = sum(each.rests for each in results)
    return (f"; {counted(len(results), 'slave')} compared by checksums: {size_text(total)} ({total} bytes) are equal"
            + (f", but for the unread rests of {counted(rests, 'file')}" if rests else ""))
