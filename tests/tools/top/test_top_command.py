"""`rmqha top` on a running cluster: one look for scripts, and the terminal application by its keys."""
import asyncio
import json
import sys

import pytest
from click.testing import CliRunner

from rmqha.common.filesystem import how_to_install
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.rmqha_command import rmqha
from rmqha.tools.view.questions import Questions, ViewPoller
from rmqha.tools.view.snapshot import Collector, History
from tests.support.wait import wait_until


def test_once_prints_a_table_for_people(cluster, run):
    result = run("top", "-n", cluster.namesrv, "--once", "-i", 1)
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    titles = ["broker", "id", "address", "role", "in/s", "out/s", "log/s", "log", "disk", "state", "lag", "lag time"]
    assert lines[0].split() == " ".join(titles).split()
    assert cluster.master.address in result.output and "TRANSFER" in result.output


def test_once_prints_json_for_programs(cluster, run):
    told = json.loads(run("top", "-n", cluster.namesrv, "--once", "-i", 1, "-o", "json").output)
    assert {broker["address"] for broker in told["brokers"]} == {cluster.master.address, cluster.slave.address}
    assert told["replication"][0]["slaves"][0]["lag_bytes"] == 0
    assert told["in_msgs_per_s"] == 0.0


def test_once_needs_no_extra(cluster, run, monkeypatch):
    monkeypatch.setitem(sys.modules, "textual", None)
    assert run("top", "-n", cluster.namesrv, "--once", "-i", 1).exit_code == 0


def test_without_the_extra_it_says_what_to_install(run, monkeypatch):
    for name in [name for name in sys.modules if name.startswith(("textual", "rmqha.tools.top.top_app"))]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("textual", "textual.app"):
        monkeypatch.setitem(sys.modules, name, None)
    result = run("top", "-n", "127.0.0.1:1")
    assert result.exit_code == 2
    assert "`rmqha top` needs the extra `tui`" in result.output and how_to_install("tui") in result.output


@pytest.mark.parametrize(("arguments", "wanted"), [
    ((), "no name server: give it with -n host:port, or in NAMESRV_ADDR"),
    (("-n", "127.0.0.1:1", "-o", "json"), "-o json goes with --once"),
    (("-n", "127.0.0.1:1", "--once"), "name server 127.0.0.1:1 can't be reached"),
    (("-n", "nonsense", "--once"), "'nonsense' is no host:port"),
    (("-n", "127.0.0.1:1", "--once", "-i", "0.1"), "Invalid value for '-i'"),
])
def test_bad_input_gets_one_clear_error(arguments, wanted):
    result = CliRunner().invoke(rmqha, ["top", *arguments], env={"NAMESRV_ADDR": ""})
    assert result.exit_code == 2 and wanted in " ".join(result.output.split()), result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)


@pytest.fixture
def app(cluster):
    """The application, with a cluster that is looked at once a second."""
    pytest.importorskip("textual", reason="the extra `tui` is not installed")
    from rmqha.tools.top.top_app import TopApp
    admin = DefaultMQAdminExt(cluster.namesrv)
    with Collector(cluster.namesrv, 3_000) as collector:
        poller = ViewPoller(collector, History(), 1.0)
        poller.start()
        try:
            assert poller.wait_for_picture(600) is not None
            yield TopApp(poller, Questions(admin), cluster.namesrv)
        finally:
            poller.shutdown()
            admin.shutdown()


async def until(pilot, come, what):
    """Wait, and let the application run meanwhile."""
    for _ in range(600):
        await pilot.pause(0.05)
        if come():
            return
    raise AssertionError(f"not within 30 s: {what}")


def title(app) -> str:
    return str(app.query_one("#title").render())


def column(app, number: int) -> list[str]:
    from textual.widgets import DataTable
    table = app.query_one(DataTable)
    return [str(table.get_row_at(row)[number]) for row in range(table.row_count)]


def piloted(app, steps) -> None:
    async def run() -> None:
        async with app.run_test(size=(160, 30)) as pilot:
            await until(pilot, lambda: app.query_one("DataTable").row_count, "the brokers")
            await steps(pilot)
    asyncio.run(run())


def test_keys_lead_from_brokers_to_topics_to_queues_and_back(app, cluster):
    async def steps(pilot):
        assert column(app, 2) == [cluster.master.address, cluster.slave.address]
        await pilot.press("enter")
        await until(pilot, lambda: "T" in column(app, 0), "the broker's topics")
        assert title(app).startswith(f"topics of {cluster.master.address}")
        await pilot.press("enter")  # users' topics stand first
        await until(pilot, lambda: title(app).startswith("queues of topic T"), "the topic's queues")
        assert column(app, 0)[0] == "broker-a" and column(app, 3)[0] == column(app, 4)[0] != "0"
        await pilot.press("escape", "escape")
        await until(pilot, lambda: title(app).startswith("brokers"), "the brokers again")
    piloted(app, steps)


def test_rows_are_sorted_and_filtered_by_keys(app, cluster):
    async def steps(pilot):
        await pilot.press("t")
        await until(pilot, lambda: len(column(app, 0)) > 5, "all topics")
        everything = column(app, 0)
        await pilot.press("s")
        await until(pilot, lambda: column(app, 0) == sorted(everything), "sorted by name")
        await pilot.press("r")
        await until(pilot, lambda: column(app, 0) == sorted(everything, reverse=True), "the other way round")
        await pilot.press("slash", *"schedule_t")
        await until(pilot, lambda: column(app, 0) == ["SCHEDULE_TOPIC_XXXX"], "the filter")
        assert "1 of" in title(app)
        await pilot.press("enter", "escape")
        await until(pilot, lambda: len(column(app, 0)) == len(everything), "no filter")
    piloted(app, steps)


def test_groups_open_their_clients_and_an_unknown_one_has_none(app, cluster):
    async def steps(pilot):
        await pilot.press("g")
        await until(pilot, lambda: title(app).startswith("groups"), "the groups")
        await pilot.press("enter", "c")  # there may be no row: then nothing happens
        app._places.append(type(app.place)("clients", "nobody"))
        await until(pilot, lambda: "nobody is connected" in title(app), "an answer")
    piloted(app, steps)


def test_pause_holds_the_picture_and_q_ends(app, cluster):
    async def steps(pilot):
        await pilot.press("p")
        assert "PAUSED" in str(app.query_one("#head").render())
        still = app._poller.latest
        await pilot.pause(1.5)
        assert app._poller.latest is still
        await pilot.press("p")
        await until(pilot, lambda: app._poller.latest is not still, "it goes on")
        await pilot.press("q")
        wait_until(lambda: app._exit, what="the end")
    piloted(app, steps)
