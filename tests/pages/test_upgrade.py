"""docs/how-to/upgrade.md from 0.1.0 to this version and back: two masters, two slaves and two name servers are replaced
one after the other, by the page's commands, while clients of both versions send and consume.

    RMQHA_TELL=1 .venv/bin/python -m pytest -s tests/pages/test_upgrade.py      # prints the figures
"""
import json
import os
import re
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import IO

import pytest

from tests.pages.guided import GROUP, LAPTOP, LIMIT_MS, STORE, TOPIC, Guided, settings
from tests.pages.shell import environment
from tests.pages.walk import Block
from tests.support.nodes import write_properties
from tests.support.sources import ROOT
from tests.support.start_as import killed_with_parent
from tests.support.tiers import in_all
from tests.support.wait import wait_until

pytestmark = [in_all, pytest.mark.timeout(900)]

NAMESRVS = ("10.0.0.1", "10.0.0.5")
NAMESRV_ADDR = ";".join(f"{address}:9876" for address in NAMESRVS)
NAMESRV_FILE = "/etc/rocketmq/namesrv.properties"
# Host -> broker name, id, role.
MASTERS = {"10.0.0.2": ("broker-a", 0, "ASYNC_MASTER"), "10.0.0.6": ("broker-b", 0, "SYNC_MASTER")}
SLAVES = {"10.0.0.3": ("broker-a", 1, "SLAVE"), "10.0.0.7": ("broker-b", 1, "SLAVE")}
BROKERS = {**MASTERS, **SLAVES}
BROKERS_IN_ORDER = ("10.0.0.2", "10.0.0.3", "10.0.0.6", "10.0.0.7")
"""As clusterList prints them: by broker name and id."""
REGISTER_MS = 10_000
"""Instead of 30 s; brokers accept no shorter time."""
MORE = 20
"""Messages that each client sends, and has acknowledged, between two replacements."""
OFFSETS = re.compile(r'(\d+)"?:(\d+)')


def file_of(at: str) -> str:
    """Return the file of a broker, as the page names it."""
    name, broker_id, _ = BROKERS[at]
    return f"/etc/rocketmq/{name}{'-s' if broker_id else ''}.properties"


class Trees:
    """Checkouts of the version before, of this version, and one that the tools' `git pull` turns into the other."""

    def __init__(self, before: Path, commit: str) -> None:
        """Turn `before`, a copy of this checkout, into one of `commit`, with a newer version to pull."""
        self.before, self.after = before, before.with_name("after")
        self._home = before.with_name("home-of-git")
        self._home.mkdir()
        if subprocess.run(["git", "-C", before, "cat-file", "-e", f"{commit}^{{commit}}"], check=False,
                          capture_output=True, timeout=600).returncode:
            pytest.skip(f"this checkout's history does not reach back to {commit}")
        self.run(before, "git add -A && git -c user.name=reader -c user.email=reader@example.org commit -q "
                 "--allow-empty -m newer && git clone -q --bare . ../newer.git && git -C ../newer.git update-ref "
                 "refs/heads/main $(git rev-parse HEAD)")
        self.run(before, f"git checkout -q -B main {commit} && git remote set-url origin ../newer.git && git fetch -q "
                 "&& git branch -q -u origin/main && rm -r .venv && rm -f rmqha/native/*.so && bin/ensure-venv")
        subprocess.run(["cp", "-a", before, self.after], check=True, timeout=600)

    def run(self, tree: Path, line: str) -> str:
        """Run a line in a tree, at this host: it reaches a package index."""
        done = subprocess.run(["bash", "-c", line], cwd=tree, env=environment(self._home), text=True,
                              capture_output=True, timeout=600, check=False, stdin=subprocess.DEVNULL)
        assert done.returncode == 0, f"{line}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout


class Client:
    """tests/pages/upgrade_load.py at a host, with the client of the version in `tree`."""

    def __init__(self, walk: Guided, tree: Path, name: str) -> None:
        self._log = tree.with_name(f"{name}.log")
        with open(self._log, "wb") as log:
            self._process = self._started(walk, tree, name, log)

    @staticmethod
    def _started(walk: Guided, tree: Path, name: str, log: IO[bytes]) -> subprocess.Popen:
        return subprocess.Popen(
            killed_with_parent([*walk.hosts[LAPTOP].inside(), f"NAMESRV_ADDR={NAMESRV_ADDR}", f"PYTHONPATH={tree}",
                                str(tree / ".venv/bin/python"), str(ROOT / "tests/pages/upgrade_load.py"), name, TOPIC,
                                GROUP]),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)

    def ask(self, command: str) -> dict:
        """Return the answer to a command."""
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, f"the client has ended:\n{self._log.read_text('utf-8')[-2000:]}"
        return json.loads(answer)

    def close(self) -> None:
        """End the client cleanly."""
        self._process.stdin.close()
        assert self._process.wait(240) == 0
        self._process.stdout.close()

    def kill(self) -> None:
        """End it in any case."""
        self._process.kill()
        self._process.wait(240)


class Upgrade:
    """The cluster, and an operator who replaces its servers."""

    def __init__(self, walk: Guided, trees: Trees) -> None:
        self.walk, self.trees = walk, trees
        self.clients: list[Client] = []
        self.acknowledged: dict[str, tuple[str, int, int]] = {}
        self._offsets: dict[str, dict[str, int]] = {}
        self.facts: list[str] = []

    # the cluster

    def starts(self) -> None:
        """Start all servers from the version before, and create the topic and the group."""
        for at in NAMESRVS:
            write_properties(self.walk.hosts[at].path(NAMESRV_FILE), {"listenPort": 9876})
            self.walk.starts(at, ["bin/mqnamesrv", "-c", NAMESRV_FILE])
        for at, (name, broker_id, role) in BROKERS.items():
            write_properties(self.walk.hosts[at].path(file_of(at)), settings(
                brokerName=name, brokerId=broker_id, brokerRole=role, namesrvAddr=NAMESRV_ADDR,
                registerNameServerPeriod=REGISTER_MS))
            self.walk.starts(at, ["bin/mqbroker", "-c", file_of(at)])
        for line in (f"updateTopic -t {TOPIC} -r 2 -w 2", f"updateSubGroup -g {GROUP}"):
            self.walk.tool(next(iter(MASTERS)), f"bin/mqadmin {line} -c DefaultCluster")

    def clients_begin(self, name: str) -> None:
        """Start a client of each version."""
        self.clients = [Client(self.walk, self.trees.before, f"{name}-older"),
                        Client(self.walk, self.trees.after, f"{name}-newer")]
        self.clients_continue()

    def clients_continue(self) -> None:
        """Wait until each client has had more messages acknowledged, and the group has consumed more."""
        def counts():
            return [client.ask("count") for client in self.clients]
        then = counts()

        def have_more() -> bool:
            now = counts()
            return (all(one["acknowledged"] >= before["acknowledged"] + MORE for before, one in zip(then, now))
                    and sum(one["consumed"] for one in now) >= sum(before["consumed"] for before in then) + MORE)
        wait_until(have_more, LIMIT_MS, f"{MORE} more messages of each client, after {then}")

    def clients_end(self, name: str) -> None:
        """Let the clients stop, and check that nothing is lost."""
        acknowledged = [client.ask("stop") for client in self.clients]
        for one in acknowledged:
            self.acknowledged.update({body: tuple(place) for body, place in one.items()})
        consumed: Counter[str] = Counter()

        def all_are_consumed() -> bool:
            consumed.clear()
            for client in self.clients:
                consumed.update(client.ask("consumed")["consumed"])
            return all(one.keys() <= consumed.keys() for one in acknowledged)
        wait_until(all_are_consumed, LIMIT_MS, "each acknowledged message is consumed")
        again = sum(count - 1 for count in consumed.values())
        for which, client, one in zip(("older", "newer"), self.clients, acknowledged):
            said = client.ask("consumed")
            self.facts.append(f"{name}, {which} client: {len(one)} acknowledged, refused {said['refused']}, longest "
                              f"pause of a sender {said['longest_s']} s")
            client.close()
        self.facts.append(f"{name}: {len(consumed)} different messages consumed, {again} deliveries again")

    # the page

    def types(self, at: str, block: Block, **reads: str) -> None:
        """Type a block at a host; `reads`: texts of the page, and those of this host in their place."""
        if at in BROKERS:
            name = Path(file_of(at)).name
            reads = {"broker-a-s.properties": name, "broker-a.properties": name, **reads}
        self.walk.reads = reads
        self.walk.types_at(at, block)

    def installs(self, at: str, block: Block, version: str) -> None:
        """Type the commands that install a version, and start a server."""
        tree = self.trees.before if version == "before" else self.trees.after
        self.types(at, block, **{"git pull": f"mount --bind {tree} . && cd $PWD"})

    def sends_elsewhere(self, at: str, block: Block) -> None:
        """Type the commands that send producers elsewhere, until nothing arrives and the slave has everything."""
        wipe, see, check = block.commands()
        name = BROKERS[at][0]
        # A name server that is too busy to answer, or that has lost the broker in between, needs the first one again.
        self.walk.until(LAPTOP, f"{wipe.replace('broker-a', name)} && {see}",
                        rf"(?s:{''.join(rf'(?=.*{each}:9876. OK)' for each in NAMESRVS)}"
                        rf".*{name} +0 +{at}:10911 +\S+ +0\.00\()")
        self.walk.until(LAPTOP, check.replace("broker-a", name), "HA OK")

    def is_in_order(self, line: str) -> None:
        """Wait as the page says, and until the clients have continued."""
        self.walk.until(LAPTOP, line, "HA OK")
        self.clients_continue()

    def offsets_are_kept(self, at: str) -> None:
        """Compare the group's offsets in a stopped broker's file with those of its last stop."""
        text = self.walk.hosts[at].path(f"{STORE}/config/consumerOffset.json").read_text("utf-8")
        (table,) = re.findall(rf'"{TOPIC}@{GROUP}":{{([^}}]*)}}', re.sub(r"\s", "", text))
        now = {queue: int(offset) for queue, offset in OFFSETS.findall(table)}
        before = self._offsets.get(at, dict.fromkeys(now, 0))
        assert now.keys() == before.keys() == {"0", "1"}, (before, now)
        assert all(now[queue] >= before[queue] for queue in now), f"{at}: offsets went from {before} back to {now}"
        self._offsets[at] = now

    def slaves_have_everything(self) -> None:
        """Compare the logs of each slave and its master, byte by byte."""
        for slave, master in zip(SLAVES, MASTERS):
            ours, theirs = (self.walk.hosts[at].path(f"{STORE}/commitlog") for at in (slave, master))
            wait_until(lambda: log_in(ours) == log_in(theirs), LIMIT_MS, f"the log of {slave} is {master}'s")

    def log_is_whole(self, name: str) -> None:
        """Check that each acknowledged message is at its queue offset, and each sender's messages are in order."""
        self.walk.tool(LAPTOP, f"NAMESRV_ADDR='{NAMESRV_ADDR}' bin/rmqha export -t {TOPIC} --force ~/exported.jsonl")
        lines = self.walk.hosts[LAPTOP].path("/operator/exported.jsonl").read_text("utf-8").splitlines()[1:-1]
        log = {(one["broker"], one["queue"], one["offset"]): one["body"] for one in map(json.loads, lines)}
        wrong = {body: (place, log.get(place)) for body, place in self.acknowledged.items() if log.get(place) != body}
        assert not wrong, f"{len(wrong)} of {len(self.acknowledged)} acknowledged messages are not at their place: " \
                          f"{dict(list(wrong.items())[:3])}"
        last: dict[tuple[str, str, int], int] = {}
        for body, (broker, queue, offset) in self.acknowledged.items():
            sender = (body.rpartition("-")[0], broker, queue)
            assert offset > last.get(sender, -1), f"{body} is before the previous message of its sender"
            last[sender] = offset
        self.facts.append(f"{name}: {len(self.acknowledged)} acknowledged messages at their offsets, "
                          f"{len(log) - len(self.acknowledged)} more in the log")


def test_upgrade(walk_of, tmp_path):
    began = time.monotonic()
    addresses = [*NAMESRVS, *BROKERS, LAPTOP]
    walk = walk_of("upgrade", *addresses, own_clone=tmp_path / "before")
    commit = re.search(r"^git checkout (\w+)$", (ROOT / "docs/how-to/upgrade.md").read_text("utf-8"), re.MULTILINE)[1]
    trees = Trees(tmp_path / "before", commit)
    upgrade = Upgrade(walk, trees)
    upgrade.starts()
    get_tools, check_all = (walk.block("1. Upgrade the tools", "bash") for _ in range(2))
    stop_new, stop_old, get_slave, check = (walk.block("2. Upgrade the slaves", "bash") for _ in range(4))
    wipe, get_master = (walk.block("3. Upgrade the masters", "bash") for _ in range(2))
    get_namesrv, see_brokers = (walk.block("4. Upgrade the name servers", "bash") for _ in range(2))
    undo = walk.block("How to undo it", "bash")
    walk.done()
    for line in get_tools.commands():
        trees.run(trees.after, line)
    commit_of = trees.run(trees.after, "git rev-parse HEAD")
    said = trees.run(trees.after, "bin/rmqha --version")
    assert said.startswith(f"rmqha, version {version_of(trees.after)}\ncommit: {commit_of}"), said
    try:
        upgrade.walk.until(LAPTOP, f"mount --bind {trees.after} . && cd $PWD && echo mounted", "mounted")
        upgrade.types(LAPTOP, check_all)
        for direction, version, stop in (("upgrade", "after", stop_old), ("undo", "before", stop_new)):
            upgrade.clients_begin(direction)
            replace_all(upgrade, version, stop, (get_slave, check, wipe, get_master, get_namesrv, see_brokers))
            upgrade.clients_end(direction)
            upgrade.log_is_whole(direction)
            upgrade.slaves_have_everything()
            walk.until(LAPTOP, f"bin/mqadmin consumerProgress -g {GROUP}", r"Diff Total: +0\b")
    finally:
        for client in upgrade.clients:
            client.kill()
    for line in undo.commands() + get_tools.commands()[1:]:
        trees.run(trees.after, line)
    assert trees.run(trees.after, "bin/rmqha --version") == "rmqha, version 0.1.0\n"
    if os.environ.get("RMQHA_TELL"):
        print("", *upgrade.facts, f"{time.monotonic() - began:.1f} s", sep="\n")


def log_in(folder: Path) -> dict[str, bytes]:
    """Return the files of a commit log, without the space that is reserved at the end of each."""
    contents = {file.name: file.read_bytes().rstrip(b"\0") for file in sorted(folder.iterdir()) if file.is_file()}
    return {name: content for name, content in contents.items() if content}


def replace_all(upgrade: Upgrade, version: str, stop: Block, blocks: tuple[Block, ...]) -> None:
    """Go through steps 2 to 4 of the page."""
    get_slave, check, wipe, get_master, get_namesrv, see_brokers = blocks
    (in_order,) = check.commands()
    for at in SLAVES:
        upgrade.types(at, stop)
        upgrade.installs(at, get_slave, version)
        upgrade.is_in_order(in_order)
    for at in MASTERS:
        if version == "after" and BROKERS[at][2] == "ASYNC_MASTER":
            # Both ways of the page: the other master, and both on the way back, are stopped while producers send.
            upgrade.sends_elsewhere(at, wipe)
        upgrade.types(at, stop)
        upgrade.offsets_are_kept(at)
        upgrade.installs(at, get_master, version)
        upgrade.is_in_order(in_order)
    for at in NAMESRVS:
        upgrade.types(at, stop, broker="namesrv")
        upgrade.installs(at, get_namesrv, version)
        brokers, last = (line.replace("10.0.0.1", at) for line in see_brokers.commands())
        upgrade.walk.until(LAPTOP, brokers, "(?s:.*)".join(f"{each}:10911" for each in BROKERS_IN_ORDER))
        upgrade.is_in_order(last)


def version_of(tree: Path) -> str:
    """Return the version of a checkout."""
    return re.search(r'^__version__ = "(.*)"', (tree / "rmqha/__init__.py").read_text("utf-8"), re.MULTILINE)[1]
