"""`rmqha up --auto-failover`, and commands that show, check and switch such a cluster of real processes."""
import json

import pytest

from rmqha.client.producer.default_mq_producer import DefaultMQProducer
from rmqha.common.message.message import Message
from rmqha.tools.local_cluster.layout import load
from rmqha.tools.local_cluster.processes import find
from tests.support.load import send_until_stored
from tests.support.tiers import in_all
from tests.support.wait import wait_until
from tests.tools.local_cluster.support import nodes, rmqha

NAMES = ["namesrv", "controller", "broker-a", "broker-a-s"]


@pytest.fixture
def home(tmp_path):
    """A home folder whose clusters are stopped in any case."""
    yield tmp_path
    for described in tmp_path.rglob("cluster.json"):
        for node in load(described.parent).nodes:
            if (process := find(node)) is not None:
                process.kill()


def roles(home, code=0):
    return {name: (node["role"], node["state"]) for name, node in nodes(home, code=code).items()}


def send(address):
    """Send some messages; each is acknowledged in the end."""
    with DefaultMQProducer("group", address) as producer:
        for _ in range(5):
            send_until_stored(producer, Message("T", b"x"))


def status(home, address):
    return json.loads(rmqha(home, "ha", "status", "-n", address, "-o", "json").stdout)[0]


def test_controller_replaces_a_master_and_the_tools_show_it(home):
    printed = rmqha(home, "up", "--wait", "--print-env", "--masters", 1, "--slaves", 1, "--auto-failover").stdout
    address = printed.splitlines()[0].removeprefix("export NAMESRV_ADDR=")
    first = nodes(home)
    assert list(first) == NAMES and roles(home) == {
        "namesrv": ("NAME SERVER", "running"), "controller": ("CONTROLLER", "running"),
        "broker-a": ("MASTER", "running"), "broker-a-s": ("SLAVE", "running")}
    master, slave, controller = (first[name]["address"] for name in ("broker-a", "broker-a-s", "controller"))
    send(address)
    told = status(home, address)
    failover = told["failover"]
    assert (failover["leader"], failover["master"], failover["master_epoch"]) == (controller, master, 1)
    assert [(each["address"], each["in_sync"], each["may_lead"]) for each in failover["replicas"]] == [
        (master, True, True), (slave, True, True)]
    assert told["status"] == "OK" and told["problems"] == []
    assert rmqha(home, "check", "ha", "-n", address).stdout.startswith("HA OK")
    good = rmqha(home, "check", "controller", "-a", controller, "-n", address).stdout
    assert good.startswith(f"CONTROLLER OK - {controller} leads") and "'broker-a in sync'=2;;;0" in good
    assert "0 errors, 0 warnings" in rmqha(home, "doctor", "-n", address).stdout

    switched = json.loads(rmqha(home, "ha", "switch", "broker-a-s", "-o", "json").stdout)
    assert switched["new_master"] == slave and 0 < switched["seconds"] < 10
    send(address)
    for args in (("promote", "-b", master, "-n", address), ("follow", "-b", master, "--master", slave)):
        assert f"`rmqha ha switch {master}`" in rmqha(home, "ha", *args, code=2).stderr
    logged = rmqha(home, "logs", "controller").stdout
    assert "broker-a" in logged
    assert "is already the master" in rmqha(home, "ha", "switch", slave).stdout

    # A producer that starts now might not find a master yet.
    with DefaultMQProducer("group", address) as producer:
        send_until_stored(producer, Message("T", b"x"))
        for node in load(home / "rmqha" / "default").replicas:
            if node.name == "broker-a-s":
                find(node).kill()
        for _ in range(5):
            send_until_stored(producer, Message("T", b"x"))
    assert roles(home, code=1)["broker-a"] == ("MASTER", "running") and roles(home, code=1)["broker-a-s"][1] == "ended"
    refused = rmqha(home, "ha", "switch", slave, "--timeout", 0, code=2).stderr  # nothing answers there
    assert "can't be reached" in refused
    wait_until(lambda: "no other replica may become the master" in rmqha(
        home, "check", "controller", "-a", controller, "-b", "broker-a", code=1).stdout, 60_000, "a warning")
    rmqha(home, "up", "--wait")
    assert roles(home)["broker-a-s"] == ("SLAVE", "running")
    text = rmqha(home, "down").stdout
    assert text.splitlines() == [f"{name} stopped" for name in ("controller", "broker-a", "broker-a-s", "namesrv")]
    rmqha(home, "up", "--wait")  # with the roles that the controller has assigned
    assert status(home, address)["failover"]["master_epoch"] >= 3
    rmqha(home, "down", "--purge")


@in_all
def test_name_without_a_master_is_critical(home):
    rmqha(home, "up", "--wait", "--masters", 1, "--slaves", 0, "--auto-failover")
    layout = load(home / "rmqha" / "default")
    find(layout.controllers[0]).kill()
    address = layout.namesrv.address
    wait_until(lambda: find(layout.controllers[0]) is None, 60_000, "it is gone")
    said = rmqha(home, "check", "controller", "-a", layout.controllers[0].address, "-n", address, code=2).stdout
    assert said.startswith("CONTROLLER CRITICAL - no controller answers")
    assert "no controller answers" in rmqha(home, "check", "ha", "-n", address, code=2).stdout
    assert "UNREACHABLE" in rmqha(home, "ha", "status", "-n", address).stdout
    assert "no controller answers" in rmqha(home, "doctor", "-n", address, code=1).stdout
    assert "no controller leads" in rmqha(home, "ha", "switch", "broker-a", code=2).stderr
