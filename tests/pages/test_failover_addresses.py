"""docs/how-to/failover-with-haproxy.md and failover-with-a-floating-address.md as their operator follows them."""
import re

import pytest

from tests.pages.guided import MASTER, NAMESRV, NAMESRV_ADDR, SLAVE, THIRD, TOPIC, Guided, State, settings
from tests.pages.walk import Differs
from tests.support.programs import not_installed
from tests.support.tiers import in_all
from tests.support.wait import wait_until

pytestmark = [in_all, pytest.mark.timeout(1200)]

SHARED = "10.0.0.100"
REPLICAS = (MASTER, SLAVE, THIRD)
# A replica that the controller has heard from, and that is in sync.
IN_SYNC = r"\n +{} +\d +yes +yes "
FILE = "/etc/rocketmq/broker-a.properties"
# The columns of clusterList that a moment decides.
RATES = Differs(r"V4_9_8 +\d+\.\d\d\(\d+,\d+ms\) +\d+\.\d\d\(\d+,\d+ms\) +\d+ +\d+\.\d\d +[\d.]+", "V4_9_8 <rates>")
RUN = Differs(r"^\d{4}-.*(?= - onRoleChange)|(?<=broker-a )\d+(?= ended)|\d+(?= ms$)", "<varies>")


def needs(*programs: str) -> pytest.MarkDecorator:
    reason = not_installed(*programs)
    return pytest.mark.skipif(reason is not None, reason=str(reason))


class Replicas(State):
    """Three replicas under a controller, as the pages assume them."""

    def start(self) -> None:
        """Start all servers; the first replica is the master."""
        self.name_server()
        self.controller()
        for at in REPLICAS:
            self.has_file(at, FILE, settings(
                brokerId=-1, brokerRole="SLAVE", enableControllerMode="true", controllerAddr=f"{NAMESRV}:9878",
                allAckInSyncStateSet="true", minInSyncReplicas=2, brokerIP1=at, brokerIP2=at))
            self.broker(at, FILE)
            self.walk.until(NAMESRV, f"NAMESRV_ADDR={NAMESRV_ADDR} bin/rmqha ha status", r"master: id \d")
        self.walk.until(NAMESRV, f"NAMESRV_ADDR={NAMESRV_ADDR} bin/rmqha check ha", "OK")

    def restart_all(self, heading: str, lines: str) -> None:
        """Run step 2 of both pages: the slaves, then the master."""
        walk = self.walk
        for at in REPLICAS:
            walk.sets(at, FILE, lines)
        restart = walk.block(heading, "bash")
        for at in (SLAVE, THIRD, MASTER):
            if at == MASTER:
                walk.types(heading, NAMESRV, again={"bin/rmqha ha switch": ""})
            walk.types_at(at, restart, again={"bin/rmqha ha status": IN_SYNC.format(f"{at}:10911")})

    def master_is(self, at: str) -> None:
        """Wait until the broker of a host is the master."""
        self.walk.until(NAMESRV, "bin/rmqha ha status", rf"master: id \d at {re.escape(at)}:10911")

    def sends(self, at: str) -> None:
        """Wait until a message is acknowledged."""
        self.walk.until(at, f"bin/rmqha produce -t {TOPIC} -m again && echo acknowledged", "acknowledged")

    def loses_the_host_of(self, at: str) -> None:
        """Pull the plug of a host, wait until messages are acknowledged, and plug it in again."""
        with self.walk.hosts[at].unplugged():
            self.walk.until(NAMESRV, "bin/rmqha ha status", r"master: id \d at (?!%s:)" % re.escape(at))
            self.sends(NAMESRV)
        self.walk.until(NAMESRV, "bin/rmqha check ha", "OK")


@needs("haproxy", "curl")
def test_failover_with_haproxy(walk_of):
    walk = walk_of("failover-with-haproxy", NAMESRV, *REPLICAS, SHARED)
    replicas = Replicas(walk)
    replicas.start()
    export = walk.block("What you need", "bash")
    for address in (NAMESRV, *REPLICAS, SHARED):
        walk.types_at(address, export)
    walk.types("1. Start HAProxy", SHARED)
    heading = "2. Restart the replicas, the master last"
    replicas.restart_all(heading, walk.edits(heading, MASTER, FILE))
    replicas.master_is(SLAVE)
    walk.types("3. Check it", NAMESRV, again={"bin/mqadmin clusterList": f"{SHARED}:10911"}, differs=[RATES])
    replicas.sends(NAMESRV)
    walk.types("4. Rehearse it", NAMESRV, again={"bin/rmqha ha switch": ""})
    replicas.master_is(MASTER)
    replicas.sends(NAMESRV)
    replicas.loses_the_host_of(MASTER)
    walk.done()


@needs("arping", "keepalived", "curl")
def test_failover_with_a_floating_address(walk_of):
    walk = walk_of("failover-with-a-floating-address", NAMESRV, *REPLICAS)
    replicas = Replicas(walk)
    replicas.start()
    export = walk.block("What you need", "bash")
    for address in (NAMESRV, *REPLICAS):
        walk.types_at(address, export)
    for block in (walk.block("1. Install the script", "bash"), walk.block("1. Install the script", "bash")):
        for address in REPLICAS:
            walk.types_at(address, block)
    heading = "2. Restart the replicas, the master last"
    replicas.restart_all(heading, walk.edits(heading, MASTER, FILE))
    replicas.master_is(SLAVE)
    walk.types("3. Check it", SLAVE, differs=[RATES, RUN])
    assert has_address(walk) == {SLAVE}
    replicas.sends(NAMESRV)
    walk.types("4. Rehearse it", NAMESRV, again={"bin/rmqha ha switch": ""})
    wait_until(lambda: has_address(walk) == {MASTER})
    replicas.loses_the_host_of(MASTER)
    wait_until(lambda: MASTER not in has_address(walk) and len(has_address(walk)) == 1)
    with_keepalived(walk, replicas)
    assert "kubectl" in walk.block("On Kubernetes", "indented").text
    walk.done()


def with_keepalived(walk: Guided, replicas: Replicas) -> None:
    """Run the other half of the page."""
    heading = "With keepalived"
    install, lines = walk.block(heading, "bash"), walk.block(heading, "properties").text
    # As its reader, who has not set up the other way.
    for at in REPLICAS:
        file = walk.hosts[at].path(FILE)
        file.write_text("".join(line for line in file.read_text().splitlines(keepends=True)
                                if not line.startswith("onRoleChange")))
        walk.sets(at, FILE, lines)
        replicas.stop(at)
    assert not has_address(walk)
    for at in REPLICAS:
        walk.types_at(at, install)
        replicas.broker(at, FILE)
    walk.until(NAMESRV, "bin/rmqha check ha", "OK")
    wait_until(lambda: len(has_address(walk)) == 1)
    [at] = has_address(walk)
    assert SHARED in walk.types(heading, at)
    replicas.master_is(at)
    replicas.sends(NAMESRV)
    replicas.loses_the_host_of(at)
    wait_until(lambda: at not in has_address(walk) and len(has_address(walk)) == 1)


def has_address(walk: Guided) -> set[str]:
    """Return the replicas whose hosts have the floating address."""
    return {at for at in REPLICAS if walk.tool(at, f"ip -o address show to {SHARED}").strip()}
