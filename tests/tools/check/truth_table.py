"""The truth table: for each broken pair what `ha status`, `check ha` and `doctor` say, made of running brokers.

    python -m tests.tools.check.truth_table [--pairs rmqha-rmqha,java-rmqha,...] [--cases WORD,...] [--write]

A pair is the master's kind and the slave's. It prints the rows; --write puts the columns that were made into
docs/replication.md. All of it takes about 20 minutes. Each cell: states and exit code of `ha status`; word and exit
code of `check ha`; what is worst in `doctor`.
"""
import argparse
import os
import re
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support.ports import free_ha_port, free_port
from tests.support.sources import ROOT
from tests.support.wait import at_least
from tests.tools.check.stage import Row, Stage

PAIRS = ("rmqha-rmqha", "rmqha-java", "java-rmqha", "java-java")
DOCUMENT = ROOT / "docs" / "replication.md"
_BEGIN, _END = "<!-- truth table: begin -->\n", "<!-- truth table: end -->\n"
_HEAD = "| what is so | " + " | ".join(f"{pair.replace('-', ' master, ').replace('java', 'Java')} slave"
                                       for pair in PAIRS) + " |\n|" + "---|" * (len(PAIRS) + 1) + "\n"
Case = Callable[[Stage], Iterator[Row]]
CASES: dict[str, Case] = {}


def case(title: str, only: tuple[str, ...] = PAIRS) -> Callable[[Case], Case]:
    """Name a case; it yields the row, and cleans up behind. `only`: the pairs for which it can be."""
    def add(run: Case) -> Case:
        run.only = only
        CASES[title] = run
        return run
    return add


RMQHA_MASTER = ("rmqha-rmqha", "rmqha-java")


@contextmanager
def healthy(stage: Stage, **properties) -> Iterator:
    """A slave that holds what its master holds."""
    slave = stage.slave(**properties)
    stage.send()
    stage.caught_up(slave)
    stage.listed(0, 1)
    try:
        yield slave
    finally:
        stage.forget(slave)


@case("no slave, ASYNC_MASTER")
def _no_slave(stage: Stage) -> Iterator[Row]:
    stage.listed(0)
    yield stage.row()


@case("healthy, both logs empty")
def _empty(stage: Stage) -> Iterator[Row]:
    slave = stage.slave()
    stage.master.wait_for_slave()
    stage.listed(0, 1)
    at_least(2)  # for the first heartbeats
    yield stage.row()
    stage.forget(slave)


@case("never connected, both logs empty")
def _wrong_address_empty(stage: Stage) -> Iterator[Row]:
    slave = stage.slave(follows=f"127.0.0.1:{free_ha_port()}")
    stage.listed(0, 1)
    assert stage.end_of(stage.master) == 0
    yield stage.row()
    stage.forget(slave)


@case("never connected, both logs empty, `--probe`")
def _wrong_address_empty_probed(stage: Stage) -> Iterator[Row]:
    slave = stage.slave(follows=f"127.0.0.1:{free_ha_port()}")
    stage.listed(0, 1)
    yield stage.row("CRITICAL", ("--probe",))
    stage.forget(slave)


@case("healthy, messages come")
def _flow(stage: Stage) -> Iterator[Row]:
    with healthy(stage), stage.load():
        yield stage.row("OK")


@case("healthy, at rest")
def _rest(stage: Stage) -> Iterator[Row]:
    with healthy(stage):
        yield stage.row()


@case("healthy, at rest, `--probe`")
def _probed(stage: Stage) -> Iterator[Row]:
    with healthy(stage):
        yield stage.row("OK", ("--probe",))


@case("never connected: nobody listens at its haMasterAddress")
def _wrong_address(stage: Stage) -> Iterator[Row]:
    stage.send()
    slave = stage.slave(follows=f"127.0.0.1:{free_ha_port()}")
    stage.listed(0, 1)
    yield stage.row("CRITICAL")
    stage.forget(slave)


@case("never connected: its haMasterAddress gives no answer")
def _silent_address(stage: Stage) -> Iterator[Row]:
    with stage.proxy() as proxy:
        proxy.mode = "mute"
        stage.send()
        slave = stage.slave(follows=f"127.0.0.1:{proxy.port}")
        stage.listed(0, 1)
        yield stage.row("CRITICAL")
        stage.forget(slave)


@case("killed: its connections end, the name server takes it out")
def _killed(stage: Stage) -> Iterator[Row]:
    with healthy(stage) as slave:
        slave.kill()
        stage.listed(0)
        yield stage.row("CRITICAL")


@case("killed with its host: still listed")
def _still_listed(stage: Stage) -> Iterator[Row]:
    with healthy(stage) as slave:
        stage.registered_as(slave, 1)
        slave.kill()
        yield stage.row("UNREACHABLE")


@case("stopped by SIGTERM: the name server forgets it")
def _stopped(stage: Stage) -> Iterator[Row]:
    with healthy(stage) as slave:
        slave.stop()
        stage.listed(0)
        yield stage.row("CRITICAL")


@case("frozen (SIGSTOP)")
def _frozen(stage: Stage) -> Iterator[Row]:
    with healthy(stage) as slave, stage.frozen(slave):
        yield stage.row("CRITICAL")


@case("refused: its log ends beyond the master's")
def _refused(stage: Stage) -> Iterator[Row]:
    slave = stage.broker(stage.slave_kind, "other", namesrv=None, brokerRole="ASYNC_MASTER")
    stage.send()
    stage.send(40, 20_000, slave)
    slave.stop()
    _becomes_slave(stage, slave)
    yield stage.row("CRITICAL")
    stage.forget(slave)
    stage.restart_master()  # it remembers for a minute whom it has refused


def _becomes_slave(stage: Stage, node) -> None:
    node.properties.update(brokerRole="SLAVE", brokerId=1, haMasterAddress=stage.master.ha_address,
                           namesrvAddr=stage.namesrv.address)
    node.become(node.kind).start()
    stage.listed(0, 1)


@case("refused: none of haAllowedPeers", RMQHA_MASTER)
def _not_allowed(stage: Stage) -> Iterator[Row]:
    stage.send()
    stage.restart_master(haAllowedPeers="10.9.9.9")
    slave = stage.slave()
    stage.listed(0, 1)
    yield stage.row("CRITICAL")
    stage.forget(slave)
    stage.restart_master(haAllowedPeers=None)


@case("diverged: the first records are others")
def _diverged(stage: Stage) -> Iterator[Row]:
    slave = stage.broker(stage.slave_kind, "other", namesrv=None, brokerRole="ASYNC_MASTER")
    first = stage.first_sizes()
    for size in first[:2]:
        stage.send(1, size, slave, b"x")
    slave.stop()
    _becomes_slave(stage, slave)
    yield stage.row("CRITICAL")
    stage.forget(slave)
    stage.restart_master()


@case("a bit of its log changes on its disk; `haScrubPromise=1000`", ("rmqha-rmqha",))
def _bad_bit(stage: Stage) -> Iterator[Row]:
    stage.send()
    with healthy(stage, haScrubPromise=1000) as slave:
        stage.flip_bit(slave)
        yield stage.row("CRITICAL")


@case("a bit of the log changes on its master's disk, before it comes", ("rmqha-rmqha", "java-rmqha"))
def _bad_bit_of_master(stage: Stage) -> Iterator[Row]:
    stage.send(2)
    stage.flip_bit(stage.master)
    slave = stage.slave()
    stage.listed(0, 1)
    yield stage.row("DIVERGED")
    stage.forget(slave)
    stage.flip_bit(stage.master)
    stage.restart_master()


@case("behind, and catching up through a proxy; `--warn 64KiB`")
def _behind(stage: Stage) -> Iterator[Row]:
    stage.send(60, 50_000)
    with stage.proxy() as proxy:
        proxy.mode = "slow"
        slave = stage.slave(follows=f"127.0.0.1:{proxy.port}")
        stage.listed(0, 1)
        yield stage.row("WARNING", ("--warn", "64KiB", "--crit", "1GiB"))
        proxy.mode = "pass"
        stage.forget(slave)


@case("master killed: its connections end, the name server takes it out")
def _master_killed(stage: Stage) -> Iterator[Row]:
    with healthy(stage):
        stage.master.kill()
        stage.listed(1)
        yield stage.row("CRITICAL")
        stage.master.start()
        stage.listed(0, 1)


@case("master stopped by SIGTERM: the name server forgets it")
def _master_stopped(stage: Stage) -> Iterator[Row]:
    with healthy(stage):
        stage.master.stop()
        stage.listed(1)
        yield stage.row("CRITICAL")
        stage.master.start()
        stage.listed(0, 1)


@case("master frozen (SIGSTOP)")
def _master_frozen(stage: Stage) -> Iterator[Row]:
    with healthy(stage), stage.frozen(stage.master):
        yield stage.row("CRITICAL")


@case("one of two slaves killed")
def _half(stage: Stage) -> Iterator[Row]:
    with healthy(stage):
        other = stage.slave(2)
        stage.caught_up(other)
        stage.listed(0, 1, 2)
        other.kill()
        stage.listed(0, 1)
        with stage.load():
            yield stage.row("CRITICAL")
        stage.forget(other)


@case("one of two slaves stopped by SIGTERM, `--min-slaves 2`")
def _half_forgotten(stage: Stage) -> Iterator[Row]:
    with healthy(stage), stage.load():
        yield stage.row("CRITICAL", ("--min-slaves", "2"))


@case("name server dead")
def _no_name_server(stage: Stage) -> Iterator[Row]:
    stage.asked = f"127.0.0.1:{free_port()}"
    yield stage.row("UNKNOWN")
    stage.asked = stage.namesrv.address


@case("name server frozen (SIGSTOP)")
def _frozen_name_server(stage: Stage) -> Iterator[Row]:
    with stage.frozen(stage.namesrv):
        yield stage.row("UNKNOWN")


@case("one of two name servers dead")
def _one_name_server(stage: Stage) -> Iterator[Row]:
    with healthy(stage), stage.load():
        stage.asked = f"{stage.namesrv.address};127.0.0.1:{free_port()}"
        yield stage.row("WARNING")
        stage.asked = stage.namesrv.address


@case("one of two name servers is stale: it knows no slave")
def _stale_name_server(stage: Stage) -> Iterator[Row]:
    with healthy(stage), stage.load(), stage.second_name_server() as second:
        stage.registered_as(stage.master, 0, second)
        stage.asked = f"{stage.namesrv.address};{second.address}"
        yield stage.row("WARNING")
        stage.asked = stage.namesrv.address


@case("connected, but not registered at the name server")
def _not_registered(stage: Stage) -> Iterator[Row]:
    stage.send()
    slave = stage.slave(namesrvAddr=None)
    stage.caught_up(slave)
    yield stage.row("CRITICAL")
    slave.kill()


@case("link passes to the master only, messages come")
def _one_way_to_master(stage: Stage) -> Iterator[Row]:
    yield from _one_way(stage, "stall")


@case("link passes to the slave only, messages come")
def _one_way_to_slave(stage: Stage) -> Iterator[Row]:
    yield from _one_way(stage, "deaf")


@case("link passes to the slave only, at rest")
def _one_way_at_rest(stage: Stage) -> Iterator[Row]:
    yield from _one_way(stage, "deaf", False)


def _one_way(stage: Stage, mode: str, load: bool = True) -> Iterator[Row]:
    with stage.proxy() as proxy, healthy(stage, follows=f"127.0.0.1:{proxy.port}"):
        proxy.mode = mode
        if load:
            with stage.load():
                yield stage.row("CRITICAL")
        else:
            yield stage.row("CRITICAL")
        proxy.mode = "pass"


@case("a receiver beside a healthy slave, messages come")
def _receiver(stage: Stage) -> Iterator[Row]:
    with healthy(stage), stage.receiver(), stage.load():
        yield stage.row("WARNING" if stage.master_tells else "OK")


@case("a receiver, and no slave")
def _receiver_alone(stage: Stage) -> Iterator[Row]:
    stage.send()
    stage.listed(0)
    with stage.receiver():
        yield stage.row("CRITICAL")


@case("a receiver, and the slave follows nobody")
def _receiver_instead(stage: Stage) -> Iterator[Row]:
    stage.send()
    slave = stage.slave(follows=f"127.0.0.1:{free_ha_port()}")
    stage.listed(0, 1)
    with stage.receiver():
        yield stage.row("CRITICAL")
    stage.forget(slave)


@case("SYNC_MASTER without slaves")
def _sync_master(stage: Stage) -> Iterator[Row]:
    stage.restart_master(brokerRole="SYNC_MASTER")
    yield stage.row("CRITICAL")
    stage.restart_master(brokerRole="ASYNC_MASTER")


@case("registered, and replicates from another master")
def _other_master(stage: Stage) -> Iterator[Row]:
    stage.send()
    other = stage.broker(stage.master_kind, "other", brokerName="broker-b", namesrv=None, brokerRole="ASYNC_MASTER")
    stage.send(2, to=other)
    slave = stage.slave(follows=other.ha_address)
    stage.listed(0, 1)
    yield stage.row("OTHER_MASTER")
    stage.forget(slave)
    other.kill()


@case("two slaves of one id, messages come")
def _one_id(stage: Stage) -> Iterator[Row]:
    with healthy(stage):
        other = stage.slave(1)
        stage.caught_up(other)
        with stage.load():
            yield stage.row("CRITICAL")
        stage.forget(other)


@case("listed as a slave, and is a master")
def _no_slave_role(stage: Stage) -> Iterator[Row]:
    stage.send()
    other = stage.broker(stage.slave_kind, "other", brokerRole="ASYNC_MASTER", brokerName="broker-b")
    stage.registered_as(other, 1)
    yield stage.row("CRITICAL")
    other.properties["brokerId"] = 1
    stage.forget(other)


def make(pair: str, folder: Path, wanted: tuple[str, ...] = (), show: Callable[[str, Row], None] | None = None
         ) -> dict[str, Row]:
    """The rows of one pair; of all cases, or of those whose title has one of `wanted`."""
    rows: dict[str, Row] = {}
    stage = Stage(folder, *pair.split("-"))
    try:
        for title, run in CASES.items():
            if pair in run.only and (not wanted or any(word in title for word in wanted)):
                steps = run(stage)
                rows[title] = next(steps)
                if show is not None:
                    show(title, rows[title])
                with suppress(StopIteration):
                    next(steps)
    finally:
        stage.close()
    return rows


def read_table(text: str) -> dict[str, list[str]]:
    """Title -> the cells of the pairs, of the table in the document."""
    table = text.partition(_BEGIN)[2].partition(_END)[0]
    lines = [re.split(r"(?<!\\) \| ", line.strip().removeprefix("| ").removesuffix(" |"))
             for line in table.splitlines()[2:]]
    return {cells[0]: cells[1:] for cells in lines}


def render(cells: dict[str, list[str]]) -> str:
    """The table, as it stands in the document."""
    return _HEAD + "".join(f"| {title} | {' | '.join(row)} |\n" for title, row in cells.items())


def write(made: dict[str, dict[str, Row]]) -> None:
    """Put the columns of `made` (by pair) into the document, and keep the others."""
    text = DOCUMENT.read_text("utf-8")
    old = read_table(text)
    cells = {title: list(old.get(title, ["-"] * len(PAIRS))) for title in CASES}
    for pair, rows in made.items():
        for title, row in rows.items():
            cells[title][PAIRS.index(pair)] = row.cell()
    before, _begin, rest = text.partition(_BEGIN)
    DOCUMENT.write_text(before + _BEGIN + render(cells) + _END + rest.partition(_END)[2], "utf-8")


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", default=",".join(PAIRS))
    parser.add_argument("--cases", default="")
    parser.add_argument("--write", action="store_true")
    chosen = parser.parse_args()
    os.environ.pop("NAMESRV_ADDR", None)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    words = tuple(word for word in chosen.cases.split(",") if word)
    made = {}
    for pair in chosen.pairs.split(","):
        with tempfile.TemporaryDirectory() as folder:
            made[pair] = make(pair, Path(folder), words, lambda title, row, pair=pair: print(
                f"{pair} | {title} | {row.cell()}", flush=True))
    if chosen.write:
        write(made)


if __name__ == "__main__":
    main()
