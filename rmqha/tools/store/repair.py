"""`store repair`: the records of a stopped slave that are damaged, taken from its master.

    compare --> the master's copies, each checked --> keep the old bytes --> write --> queues and index, if they need it
"""
from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import click

from rmqha.common.filesystem import fsync_path, open_regular
from rmqha.common.message.message_layout import BLANK, BLANK_MAGIC_CODE
from rmqha.common.util_all import current_time_millis, offset_to_file_name, time_millis_to_human_string
from rmqha.store import store_path_config_helper as paths
from rmqha.tools.dialect.unit_types import duration_type
from rmqha.tools.ha.log_match import copy_of
from rmqha.tools.store import broker_lock, rebuild
from rmqha.tools.store.errors import StoreToolError
from rmqha.tools.store.options import commitlog_option, delay_levels_option, index_shape, index_shape_options
from rmqha.tools.store.output import counted, emit, output_option, progress, put
from rmqha.tools.store.repair_plan import Damaged, Plan, Planner, path_at, runs_of
from rmqha.tools.store.store_reader import StoreReader
from rmqha.tools.store.verify import Verification

if TYPE_CHECKING:
    from rmqha.tools.ha.log_sides import LogSide

_BATCH = 64 << 20  # bytes that are fetched before they are written
_SHOWN = 20
_SET_UP_AGAIN = "no master has them any more: set the slave up again, with an empty store"


@dataclass
class Repaired:
    """What was found and done. `clean`: by `store verify` behind it; None: not applied, or not begun."""

    plan: Plan
    kept: list[str] = field(default_factory=list)
    written: int = 0  # records
    rebuilt: list[str] = field(default_factory=list)
    flaws: list[str] = field(default_factory=list)
    clean: bool | None = None

    @property
    def exit_code(self) -> int:
        """1 while something is wrong with the store."""
        plan = self.plan
        return int(bool(plan.problems or plan.beyond or self.flaws or (plan.damaged and not self.clean)))


class Repair:
    """One repair of the store at `store.root`, while the caller keeps brokers out."""

    def __init__(self, store: StoreReader, master: LogSide, delay_levels: str) -> None:
        self._store = store
        self._master = master
        self._delay_levels = delay_levels

    def plan(self, come_to: Callable[[int], None]) -> Repaired:
        """Compare only."""
        return Repaired(Planner(self._store.log, self._master, come_to).run())

    def apply(self, come_to: Callable[[int], None]) -> Repaired:
        """Compare, and write what is the master's."""
        result = self.plan(come_to)
        if result.plan.problems:
            return result
        for batch in _batches(result.plan.damaged):
            self._write([(each, self._fetched(each)) for each in batch], result)
        self._settle_queues(result)
        return result

    def _fetched(self, damaged: Damaged) -> bytes:
        """The master's bytes, once more checked: it may be a store in which much is wrong."""
        data = self._master.read(damaged.offset, damaged.size)
        if damaged.topic:
            reason = copy_of(data, damaged.offset).reason
        else:
            reason = "" if BLANK.unpack(data)[1] == BLANK_MAGIC_CODE else "it is not the blank that ends a file"
        if reason:
            raise StoreToolError(f"{self._master.name} gives other bytes at {damaged.offset} than before: {reason}. "
                                 "Run it again")
        return data

    def _write(self, batch: list[tuple[Damaged, bytes]], result: Repaired) -> None:
        log = self._store.log
        for begin, end in runs_of([each for each, _data in batch]):
            result.kept.append(self._keep(begin, log.read(begin, end - begin)))
        fsync_path(paths.get_diverged_folder(self._store.root))
        files: dict[str, int] = {}
        try:
            for damaged, data in batch:
                path, position = path_at(log, damaged.offset)
                if path not in files:
                    files[path] = open_regular(path, os.O_WRONLY)
                    if os.fstat(files[path]).st_size < log.file_size:
                        os.ftruncate(files[path], log.file_size)
                _write_at(files[path], data, position)
                result.written += 1
            for fd in files.values():
                os.fsync(fd)
        finally:
            for fd in files.values():
                os.close(fd)

    def _keep(self, offset: int, data: bytes) -> str:
        """Write what is replaced to a file that is named after its offset; on the disk at the end."""
        folder = paths.get_diverged_folder(self._store.root)
        os.makedirs(folder, exist_ok=True)
        path = os.path.join(folder,
                            f"{offset_to_file_name(offset)}.{time_millis_to_human_string(current_time_millis())}")
        with open(path, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        return path

    def _settle_queues(self, result: Repaired) -> None:
        """Units and keys may be missing, of records that could not be dispatched as they were."""
        only_bodies = all(each.what == ("body",) for each in result.plan.damaged)
        if only_bodies and not result.plan.beyond:
            result.clean = not self._flaws()
            if result.clean:
                return
        try:
            built = rebuild.write_all(self._reopened(), self._store.root, True, True, lambda _position: None,
                                      delay_levels=self._delay_levels)
            result.rebuilt, result.flaws = built.written, self._flaws()
        except StoreToolError as error:
            result.flaws = [error.message]
        result.clean = not result.flaws

    def _flaws(self) -> list[str]:
        found = Verification(self._reopened(), limit=_SHOWN, delay_levels=self._delay_levels).run()
        return [flaw.text() for flaw in found.flaws]

    def _reopened(self) -> StoreReader:
        """The store with the files as they are now; the lock that is held is this process's."""
        store = StoreReader(self._store.root, self._store.commit_log_paths, self._store.index_shape,
                            self._store.file_size)
        store.live, store.crashed = False, self._store.crashed
        store.log = store.log_now()
        return store


def _batches(damaged: list[Damaged]) -> Iterator[list[Damaged]]:
    batch: list[Damaged] = []
    size = 0
    for each in damaged:
        if batch and size + each.size > _BATCH:
            yield batch
            batch, size = [], 0
        batch.append(each)
        size += each.size
    if batch:
        yield batch


def _write_at(fd: int, data: bytes, position: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(fd, view, position)
        view, position = view[written:], position + written


def _print(result: Repaired, master: str, applied: bool) -> None:
    plan = result.plan
    for each in plan.damaged[:_SHOWN]:
        put(f"DIFFERENT {each.text()}")
    if len(plan.damaged) > _SHOWN:
        put(f"... and {len(plan.damaged) - _SHOWN} more; -o json shows all")
    for problem in plan.problems:
        put(f"PROBLEM {problem}")
    for flaw in plan.beyond:
        put(f"LOST {flaw}")
    if plan.rests:
        put(f"note the unread rests of {counted(plan.rests, 'file')} differ")
    for path in result.kept[:_SHOWN]:
        put(f"{path}: what was there before")
    if len(result.kept) > _SHOWN:
        put(f"... and {len(result.kept) - _SHOWN} more in the same folder")
    for line in result.rebuilt:
        put(line)
    for flaw in result.flaws:
        put(f"FLAW {flaw}")
    put(f"compared {plan.begin} to {plan.end}, {max(plan.end - plan.begin, 0)} bytes, with {master}: "
        f"{_verdict(result, applied)}")


def _verdict(result: Repaired, applied: bool) -> str:
    plan = result.plan
    what = counted(len(plan.damaged), "record") + (" differs" if len(plan.damaged) == 1 else " differ")
    if plan.problems:
        return f"{what}; nothing is written, for the problems above"
    if plan.beyond:
        what += f"; flaws before offset {plan.begin}, where the master's log begins: {_SET_UP_AGAIN}"
    if not applied:
        return f"{what}; --apply takes the master's" if plan.damaged else what
    clean = "the store is clean" if result.clean else "the store is not clean, see store verify"
    return f"{what}; {result.written} taken from the master; {clean}"


@click.command("repair")
@click.argument("root", type=click.Path(exists=True, file_okay=False))
@click.option("--master", required=True, metavar="HOST:PORT", help="The running master's listenPort.")
@click.option("--apply", "apply_", is_flag=True, help="Write the master's records; without it they are only shown.")
@click.option("--timeout", "timeout_s", default=10.0, show_default=True, type=duration_type(0.1, 600),
              help="Seconds to wait for each of the master's answers.")
@commitlog_option
@delay_levels_option
@index_shape_options
@output_option
def repair_command(root: str, master: str, apply_: bool, timeout_s: float, commitlog: tuple[str, ...],
                   delay_levels: str, index_slots: int | None, index_entries: int | None, output: str) -> None:
    """Compare the log of the stopped slave at ROOT with its master's, and show the records that differ. With --apply
    the master's take their place, and consume queues and index are built again if they need it. Exit code 0 when the
    logs are equal, or the store is repaired and clean; 1 when not.

    What is replaced is kept in ROOT/diverged. A record of which the master's own copy is damaged is not taken: then
    nothing is written. A running broker of rmqha is asked for checksums, one of RocketMQ is read through its HA port,
    without acknowledging anything.
    """
    from rmqha.tools.ha.log_sides import LogAdmin  # heavy: the other commands ask nobody

    lock = paths.get_lock_file(root)
    if broker_lock.is_held(lock):
        raise StoreToolError(f"{lock} is held: a broker runs on this store. Stop it; check ha --deep compares a "
                             "running slave")
    store = StoreReader(root, commitlog, index_shape(index_slots, index_entries))
    with LogAdmin(timeout_ms=timeout_s * 1000) as admin, broker_lock.held(lock), \
            closing(admin.side(master, "master")) as side, \
            progress("repair", store.log.files_end - store.log.min_offset) as shown:
        def come_to(offset: int) -> None:
            shown(offset - store.log.min_offset)
        repair = Repair(store, side, delay_levels)
        result = repair.apply(come_to) if apply_ else repair.plan(come_to)
    if output != "table":
        emit(_report(root, side.name, apply_, result), output)
    else:
        _print(result, side.name, apply_)
    if result.exit_code:
        raise SystemExit(result.exit_code)


def _report(root: str, master: str, applied: bool, result: Repaired) -> dict[str, Any]:
    """For programs."""
    plan = result.plan
    return {"root": root, "master": master, "applied": applied, "begin": plan.begin, "end": plan.end,
            "damaged": [asdict(each) for each in plan.damaged], "problems": plan.problems, "lost": plan.beyond,
            "unreadRestsThatDiffer": plan.rests, "kept": result.kept, "written": result.written,
            "rebuilt": result.rebuilt, "flaws": result.flaws, "clean": result.clean}
