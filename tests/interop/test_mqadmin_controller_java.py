"""mqadmin's controller commands: the tools of 5.1.4 and rmqha, each on controllers and brokers of both."""
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from rmqha.tools.command.sub_commands import SUB_COMMANDS_OF_5
from rmqha.tools.rmqha_command import rmqha
from tests.support import real_rocketmq
from tests.support.mqadmin import JavaMqadmin, rmqha_tool
from tests.support.nodes import BrokerNode, ControllerNode, NamesrvNode, broker_keys, sync_state
from tests.support.wait import wait_until

pytestmark = pytest.mark.java

CLUSTER, NAME = "InteropCluster", "broker-a"
_WAIT_MS = 90_000

Tool = Callable[..., str]


class Stage:
    """A name server, a controller and two brokers of one kind."""

    def __init__(self, kind: str, folder: Path, nodes: list) -> None:
        self.namesrv = NamesrvNode("rmqha", folder / "namesrv")
        self.controller = ControllerNode("java" if kind == "java5" else kind, folder / "controller")
        self.brokers = [BrokerNode(kind, folder / name, self.namesrv.address, name, name == "one", **broker_keys(
            folder / name / "store", [self.controller.address], minInSyncReplicas=1)) for name in ("one", "two")]
        for node in (self.namesrv, self.controller):
            nodes.append(node)
            node.start()
        wait_until(self.controller.leader, _WAIT_MS, "a leader")
        for number, broker in enumerate(self.brokers, 1):
            nodes.append(broker)
            broker.start()
            wait_until(lambda number=number: self.in_sync() == number, _WAIT_MS, f"{number} brokers in sync")
        wait_until(lambda: rmqha_tool(["clusterList", "-n", self.namesrv.address]).count(CLUSTER) == 2, _WAIT_MS,
                   "two brokers in the list")

    def in_sync(self) -> int:
        """Return the size of the sync-state set."""
        state = sync_state([self.controller.address], NAME)
        return len(state["inSyncReplicas"]) if state else 0


@pytest.fixture(scope="module", params=["java5", "rmqha"])
def stage(request: pytest.FixtureRequest, module_nodes: list, tmp_path_factory: pytest.TempPathFactory) -> Stage:
    """Return a stage of each kind in turn."""
    return new_stage(request.param, module_nodes, tmp_path_factory)


@pytest.fixture(params=["java5", "rmqha"])
def expendable(request: pytest.FixtureRequest, nodes: list, tmp_path_factory: pytest.TempPathFactory) -> Stage:
    """Return a stage for a test that removes a replica."""
    return new_stage(request.param, nodes, tmp_path_factory)


def new_stage(kind: str, nodes: list, tmp_path_factory: pytest.TempPathFactory) -> Stage:
    """Start a stage; skip the test if 5.1.4 is not available."""
    if shutil.which("mvn") is None and not real_rocketmq.has_jars_of(real_rocketmq.VERSION_5):
        pytest.skip(f"not installed: mvn, to fetch {real_rocketmq.VERSION_5}")
    return Stage(kind, tmp_path_factory.mktemp(kind), nodes)


@pytest.fixture(scope="module")
def java_tool(tmp_path_factory: pytest.TempPathFactory) -> Tool:
    """Return a function that runs 5.1.4's mqadmin, with one JVM per command."""
    return JavaMqadmin(tmp_path_factory.mktemp("tools"), real_rocketmq.VERSION_5).output


def ours(*args: str) -> str:
    """Return the output of rmqha's mqadmin."""
    return rmqha_tool(list(args))


def settings(text: str) -> list[str]:
    """Return the lines of settings, sorted: Java's are in the order of its hash table."""
    return sorted(text.splitlines())


def test_help_of_each_command_is_the_originals(java_tool: Tool):
    for command in SUB_COMMANDS_OF_5:
        original = java_tool("help", command.command_name)
        explained = ours("help", command.command_name)
        assert explained.splitlines()[:-1] == original.splitlines(), command.command_name


def test_both_tools_show_the_same(stage: Stage, java_tool: Tool):
    controller, namesrv = stage.controller.address, stage.namesrv.address
    for args in (("getControllerMetaData", "-a", controller),
                 ("getSyncStateSet", "-a", controller, "-b", NAME),
                 ("getSyncStateSet", "-a", controller, "-c", CLUSTER, "-n", namesrv),
                 ("getBrokerEpoch", "-b", NAME, "-n", namesrv),
                 ("getBrokerEpoch", "-c", CLUSTER, "-n", namesrv)):
        original, printed = java_tool(*args), ours(*args)
        # Java's brokers are in the order of its hash table.
        if args[0] == "getBrokerEpoch":
            original, printed = ("\n".join(sorted(text.split("\n#clusterName"))) for text in (original, printed))
        assert printed == original and NAME in original or args[0] == "getControllerMetaData" and printed == original
    original, printed = (settings(tool("getControllerConfig", "-a", controller)) for tool in (java_tool, ours))
    assert printed == original and any("controllerDLegerPeers" in line for line in printed)


def test_both_tools_change_a_setting(stage: Stage, java_tool: Tool):
    args = ("updateControllerConfig", "-a", stage.controller.address, "-k", "scanNotActiveBrokerInterval", "-v")
    for tool, value in ((java_tool, "4000"), (ours, "6000")):
        assert tool(*args, value) == (f"update controller config success![{stage.controller.address}]\n"
                                      f"scanNotActiveBrokerInterval : {value}\n")
        assert re.search(rf"scanNotActiveBrokerInterval *= *{value}\n", ours(
            "getControllerConfig", "-a", stage.controller.address))


def test_rmqha_commands_work_with_both_kinds(stage: Stage):
    def run(*args: str) -> str:
        result = CliRunner().invoke(rmqha, list(args))
        assert result.exit_code == 0, result.output
        return result.output
    namesrv, controller = stage.namesrv.address, stage.controller.address
    before = sync_state([controller], NAME)
    shown = json.loads(run("ha", "status", "-n", namesrv, "-o", "json"))[0]["failover"]
    assert (shown["leader"], shown["master"], shown["master_epoch"], shown["sync_state_set_epoch"]) == (
        controller, before["masterAddress"], before["masterEpoch"], before["syncStateSetEpoch"])
    assert [(each["may_lead"], each["why_not"], each["epoch"]) for each in shown["replicas"]] == [
        (True, "", before["masterEpoch"])] * 2
    assert run("check", "controller", "-a", controller, "-n", namesrv).startswith(f"CONTROLLER OK - {controller} leads")
    slave = next(each.address for each in stage.brokers if each.address != before["masterAddress"])
    said = run("ha", "switch", slave)
    assert f"{slave} is the master of epoch {before['masterEpoch'] + 1}" in said
    assert ("does not support handover" in said) == (stage.controller.kind == "java")
    wait_until(lambda: stage.in_sync() == 2, _WAIT_MS, "both in sync again")


def elected(tool: Tool, controller: str) -> tuple[dict, dict, str] | None:
    """Elect the other replica; return the previous state, that replica, and the output. Return None if, on a busy host,
    the replica is not in the set, or the answer is missing."""
    before = sync_state([controller], NAME)
    others = [each for each in before["inSyncReplicas"] if each["brokerId"] != before["masterBrokerId"]]
    if not others:
        return None
    printed = tool("electMaster", "-a", controller, "-b", str(others[0]["brokerId"]), "-bn", NAME, "-c", CLUSTER)
    return (before, others[0], printed) if printed else None


def test_both_tools_elect_a_master_and_remove_a_replica(expendable: Stage, java_tool: Tool):
    controller = expendable.controller.address
    for tool in (java_tool, ours):
        before, other, printed = wait_until(lambda tool=tool: elected(tool, controller), _WAIT_MS, "an elected master")
        head, _, members = printed.partition("#SyncStateSetEpoch")
        assert head == (f"\n#ClusterName\t{CLUSTER}\n#BrokerName\t{NAME}\n#BrokerMasterAddr\t{other['brokerAddress']}"
                        f"\n#MasterEpoch\t{before['masterEpoch'] + 1}\n")
        if tool is ours:
            assert sorted(re.findall(r"#Broker\t(\d+)\t(\S+)", members)) == sorted(
                (str(each["brokerId"]), each["brokerAddress"])
                for each in (*before["inSyncReplicas"], *before["notInSyncReplicas"]))
        wait_until(lambda: expendable.in_sync() == 2, _WAIT_MS, "both in sync again")
    state = sync_state([controller], NAME)
    slave = next(broker for broker in expendable.brokers if broker.address != state["masterAddress"])
    slave_id = next(each["brokerId"] for each in state["inSyncReplicas"] if each["brokerAddress"] == slave.address)
    args = ("cleanBrokerMetadata", "-a", controller, "-bn", NAME, "-c", CLUSTER, "-b")
    assert "success" not in ours(*args, str(slave_id))  # it is alive
    slave.kill()
    wait_until(lambda: expendable.in_sync() == 1, _WAIT_MS, "the set without it")
    tool = java_tool if expendable.controller.kind == "rmqha" else ours
    wait_until(lambda: "success" in tool(*args, str(slave_id)), _WAIT_MS, "the replica is removed")
    told = [json.loads(line) for line in ours("getSyncStateSet", "-a", controller, "-b", NAME, "--json").splitlines()]
    assert [each["brokerId"] for each in told if "brokerId" in each] == [state["masterBrokerId"]]
