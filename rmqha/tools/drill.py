"""`rmqha drill failover`: kill a master under load and measure what the failover costs.

The drill starts a name server, a master and its slave on this host, each in its own process, in a temporary folder;
for `auto` and `switch` it starts a controller and three replicas instead of the pair.

    send at a fixed rate --> SIGKILL the master --> promote the slave, restart the master, or leave it to the
    controller (switch: no kill; a planned switch makes another replica the master) --> continue sending
    (promote, auto: restart the old master, which then follows) --> read everything: each acknowledged message must
    be there

Meanwhile `OldClient` sends like a producer of RocketMQ 4.9.
"""
import contextlib
import logging
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import click

from rmqha.client.consumer.listeners import MessageSelector
from rmqha.client.exception import CLIENT_ERRORS
from rmqha.client.producer.default_mq_producer import DefaultMQProducer
from rmqha.client.results import SendStatus
from rmqha.common import mix_all
from rmqha.common.message.message import Message
from rmqha.common.program import examples
from rmqha.common.protocol.cluster_bodies import ReplicasInfo
from rmqha.common.threads import NamedThreadPool
from rmqha.common.topics import AUTO_CREATE_TOPIC_KEY_TOPIC
from rmqha.tools.admin.cluster_admin import ClusterAdmin
from rmqha.tools.drill_old_client import OldClient
from rmqha.tools.errors import one_line
from rmqha.tools.local_cluster.layout import ClusterError, Node, free_port_block, ports_needed
from rmqha.tools.local_cluster.start import LocalCluster, ended_in_order
from rmqha.tools.messages.consume import QueueFeed
from rmqha.tools.messages.positions import EARLIEST, Position
from rmqha.tools.messages.produce import new_consumer, read_queues
from rmqha.tools.replication.switch import promote, switch
from rmqha.tools.terminal import (
    FAILED,
    CannotAnswerError,
    WorkFailedError,
    duration_type,
    emit,
    output_option,
    put,
    put_facts,
)

log = logging.getLogger("RocketmqTools")

T = TypeVar("T")

TOPIC, OLD_TOPIC = "FailoverDrill", "FailoverDrillOfOldClient"
_QUEUES = 4
_NODES = {"broker-a": {"brokerRole": "SYNC_MASTER", "brokerId": 0},
          "broker-a-s": {"brokerRole": "SLAVE", "brokerId": 1}}
_REPLICAS = ("broker-n0", "broker-n1", "broker-n2")
_COMMON = {"brokerClusterName": "Drill", "brokerName": "broker-a", "haSendHeartbeatInterval": 200,
           "registerNameServerPeriod": 10_000}
# With these a slave may become the master, and an acknowledged message is on all replicas that may.
_AUTO_SWITCH = {"enableAutoSwitchHA": "true", "allAckInSyncStateSet": "true"}
# The same where a controller decides which replica is the master.
_BY_CONTROLLER = {"brokerRole": "SLAVE", "brokerId": -1, "enableControllerMode": "true", "allAckInSyncStateSet": "true",
                  "minInSyncReplicas": 2}
_CONTROLLED = ("auto", "switch")
_WAIT_S, _ASK_MS, _SEND_TIMEOUT_MS = 60, 3_000, 1_000
# the producer learns of a new master within this time
_ROUTE_REFRESH_MS = 1_000
_RETRY_PAUSE_S = 0.05
_LATECOMERS_S = 2.0


def write_conf(folder: Path, mode: str) -> Path:
    """Write the brokers' property files for `LocalCluster`, and return their folder."""
    folder.mkdir()
    nodes = dict.fromkeys(_REPLICAS, _BY_CONTROLLER) if mode in _CONTROLLED else _NODES
    for name, own in nodes.items():
        keys: dict[str, object] = {**_COMMON, **own, **(_AUTO_SWITCH if mode == "promote" else {})}
        text = mix_all.properties2string({key: str(value) for key, value in keys.items()})
        (folder / f"{name}.properties").write_text(text, encoding="utf-8")
    return folder


@dataclass
class Sent:
    """The producer's results; times are monotonic seconds."""

    acknowledged: set[str] = field(default_factory=set)
    # stored, but not as safely as configured
    weak: int = 0
    failed: int = 0
    # the last acknowledgement before the kill
    last_before: float = 0.0
    # the first message stored after the kill, however safely
    first_stored: float | None = None
    # the first acknowledgement after the kill
    first_after: float | None = None
    last_after: float = 0.0  # the latest acknowledgement
    longest_pause: float = 0.0  # between two acknowledgements
    last_error: str = ""


class Drill:
    """One run of the drill. Failures are raised as ClusterError, WorkFailedError or CannotAnswerError."""

    def __init__(self, cluster: LocalCluster, mode: str, rate: float, seconds: float, delay_s: float) -> None:
        self._cluster = cluster
        self._mode = mode
        self._rate = rate
        self._seconds = seconds
        self._delay_s = delay_s
        self._namesrv = cluster.name_server.address
        self._master, self._slave = self._first_roles()
        self._producer = DefaultMQProducer("drill", self._namesrv)
        self._producer.poll_name_server_interval = _ROUTE_REFRESH_MS
        self._old_client = OldClient(self._namesrv, OLD_TOPIC)
        self._number = 0
        self.sent = Sent()

    def _first_roles(self) -> tuple[Node, Node]:
        return self._cluster.pairs()[0]

    def run(self) -> dict[str, Any]:
        """Run all steps and return the results."""
        try:
            self._start()
            self._old_client.start()
            self._send_for(self._seconds)
            self._break_while_sending()
            self._send_for(self._seconds)
            rejoined_s = self._come_back() if self._mode in ("promote", "auto") else None
            self._old_client.stop()
            came = self._read()
        finally:
            self._old_client.stop()
            self._producer.shutdown()
        return self._figures(came, rejoined_s)

    def _break_while_sending(self) -> None:
        killed_at = time.monotonic()
        self._cluster.kill(self._master)
        self._act_while_sending(killed_at)

    # ---- starting

    def _start(self) -> None:
        cluster = self._cluster
        cluster.start(cluster.name_server)
        cluster.wait_until(self._name_server_answers, _WAIT_S, "the name server")
        self._start_brokers()
        cluster.wait_until(self._is_safe, _WAIT_S, "the slaves to be in sync")
        self.sent = Sent()

    def _start_brokers(self) -> None:
        self._start_broker(self._master)
        self._make_topic()
        self._start_broker(self._slave)
        self._wait_for_topic(self._slave)

    def _make_topic(self) -> None:
        self._producer.start()
        for topic in (TOPIC, OLD_TOPIC):
            self._producer.admin.create_topic(AUTO_CREATE_TOPIC_KEY_TOPIC, topic, _QUEUES)

    def _wait_for_topic(self, slave: Node) -> None:
        self._cluster.wait_until(lambda: OLD_TOPIC in (self._producer.api.get_all_topic_config(
            slave.address, _ASK_MS).topicConfigTable or ()), _WAIT_S, f"{slave.name} to know the topic")

    def _start_broker(self, broker: Node) -> None:
        self._cluster.start(broker)
        self._cluster.wait_until(lambda: broker.address in self._registered(), _WAIT_S, f"{broker.name} to register")

    def _name_server_answers(self) -> bool:
        try:
            self._registered()
        except CannotAnswerError as error:
            log.info("not yet: %s", error)
            return False
        return True

    def _registered(self) -> set[str]:
        with ClusterAdmin(self._namesrv) as admin:
            return {broker.address for broker in admin.brokers()}

    def _is_safe(self) -> bool:
        """Send a message; return whether both acknowledged it and the slave may be promoted."""
        acknowledged = len(self.sent.acknowledged)
        self._send()
        return len(self.sent.acknowledged) > acknowledged and (
            self._mode == "restart" or self._in_sync(self._master) == len(self._cluster.brokers))

    def _in_sync(self, master: Node) -> int:
        with ClusterAdmin(self._namesrv) as admin:
            return len(admin.runtime_info(master.address).get("haSyncStateSet", "").split(","))

    # ---- sending

    def _send(self) -> None:
        key = str(self._number)
        self._number += 1
        try:
            result = self._producer.send(Message(TOPIC, b"drill", keys=key), _SEND_TIMEOUT_MS)
        except CLIENT_ERRORS as error:
            self.sent.failed += 1
            self.sent.last_error = one_line(error)
            time.sleep(_RETRY_PAUSE_S)
            return
        if result.send_status is SendStatus.SEND_OK:
            self.sent.acknowledged.add(key)
            now = time.monotonic()
            if self.sent.last_after:
                self.sent.longest_pause = max(self.sent.longest_pause, now - self.sent.last_after)
            self.sent.last_after = now
        else:
            self.sent.weak += 1
        if self.sent.last_before and self.sent.first_stored is None:
            self.sent.first_stored = time.monotonic()

    def _send_for(self, seconds: float) -> None:
        begin, count = time.monotonic(), 0
        while (now := time.monotonic()) < begin + seconds:
            if now < begin + count / self._rate:
                time.sleep(begin + count / self._rate - now)
            self._send()
            count += 1
        if self.sent.first_after is None:
            self.sent.last_before = time.monotonic()

    def _act_while_sending(self, killed_at: float) -> None:
        """Send until a message is acknowledged again; `delay_s` after the kill, promote the slave or start the master.
        """
        has_acted, before = False, len(self.sent.acknowledged)
        while len(self.sent.acknowledged) == before:
            now = time.monotonic()
            if not has_acted and now >= killed_at + self._delay_s:
                has_acted = True
                self._act()
            if now > killed_at + self._delay_s + _WAIT_S:
                raise WorkFailedError(f"no message was acknowledged within {_WAIT_S} s after the failover: "
                                      f"{self.sent.last_error}")
            self._send()
            time.sleep(1 / self._rate)
        self.sent.first_after = time.monotonic()

    def _act(self) -> None:
        if self._mode == "restart":
            self._cluster.start(self._master)
            return
        with ClusterAdmin(self._namesrv, _ASK_MS) as admin:
            for line in promote(admin, self._slave.address, None, False):
                log.info("%s", line)

    def _come_back(self) -> float:
        """Start the old master and return the seconds until it is in sync with the new one."""
        begin = time.monotonic()
        self._cluster.start(self._master)
        self._cluster.wait_until(lambda: self._in_sync(self._slave) == len(self._cluster.brokers), _WAIT_S,
                                 "the old master to follow the new one")
        return time.monotonic() - begin

    # ---- counting

    def _read(self) -> Counter[str]:
        """Read all messages and return how often each key occurs."""
        came: Counter[str] = Counter()
        with new_consumer(self._namesrv) as consumer:
            feed = QueueFeed(consumer, MessageSelector.by_tag("*"))
            for queue in read_queues(consumer, TOPIC):
                feed.open(queue, Position(word=EARLIEST).offset_of(consumer, queue))
            for batch in feed.batches(_LATECOMERS_S):
                came.update(message.keys or "" for message in batch.messages)
        return came

    def _figures(self, came: Counter[str], rejoined_s: float | None) -> dict[str, Any]:
        sent = self.sent
        stored, acknowledged = ((each or 0.0) - sent.last_before for each in (sent.first_stored, sent.first_after))
        return {"mode": self._mode, "rate": self._rate, "acknowledged": len(sent.acknowledged),
                "lessSafe": sent.weak, "failed": sent.failed,
                "lost": len(sent.acknowledged - came.keys()), "doubled": sum(times > 1 for times in came.values()),
                "secondsUntilActed": self._delay_s, "secondsUntilStored": round(stored, 3),
                "secondsUntilAcknowledged": round(acknowledged, 3),
                "secondsToRejoin": None if rejoined_s is None else round(rejoined_s, 3),
                "oldClientFailed": self._old_client.failed,
                "oldClientSeconds": round(self._old_client.longest_pause_s, 3)}


class ControlledDrill(Drill):
    """A drill with a controller: it replaces the killed master, or a planned `ha switch` runs while messages are sent.
    """

    def _first_roles(self) -> tuple[Node, Node]:
        # placeholders: the controller assigns the roles
        return self._cluster.brokers[0], self._cluster.brokers[1]

    @property
    def _controller(self) -> Node:
        controller = self._cluster.controller
        # the config files ask for one
        assert controller is not None
        return controller

    def _start_brokers(self) -> None:
        cluster = self._cluster
        cluster.start(self._controller)
        cluster.wait_until(lambda: self._asked(lambda admin: admin.get_controller_meta_data(
            self._controller.address).controllerLeaderAddress) is not None, _WAIT_S, "the controller to lead")
        for broker in cluster.brokers:
            self._start_broker(broker)
        cluster.wait_until(lambda: self._found_master() is not None, _WAIT_S, "a master")
        self._make_topic()
        self._look_who_leads()
        for broker in cluster.brokers:
            self._wait_for_topic(broker)

    def _look_who_leads(self) -> None:
        """Note which replica is the master, and one of the others."""
        self._master = self._found_master() or self._master
        self._slave = next(each for each in self._cluster.brokers if each is not self._master)

    def _found_master(self) -> Node | None:
        info = self._info()
        return next((each for each in self._cluster.brokers if info is not None and each.address == info.masterAddress),
                    None)

    def _info(self) -> ReplicasInfo | None:
        return self._asked(lambda admin: admin.get_in_sync_state_data(
            self._controller.address, [self._master.broker_name]).replicasInfoTable.get(self._master.broker_name))

    def _asked(self, ask: Callable[[ClusterAdmin], T | None]) -> T | None:
        """Return an answer, or None while the server can't give one."""
        try:
            with ClusterAdmin(self._namesrv, _ASK_MS) as admin:
                return ask(admin)
        except CannotAnswerError as error:
            log.info("not yet: %s", error)
            return None

    def _in_sync(self, master: Node) -> int:
        # of whichever replica is the master
        info = self._info()
        return 0 if info is None else len(info.inSyncReplicas)

    def _break_while_sending(self) -> None:
        self._look_who_leads()
        if self._mode == "auto":
            super()._break_while_sending()
        else:
            self._switch_while_sending()

    def _act(self) -> None:
        """Do nothing: the controller elects the new master."""

    def _switch_while_sending(self) -> None:
        done: list[BaseException | None] = []
        self.sent.longest_pause = 0.0
        pool = NamedThreadPool("DrillThread_", 1)
        pool.submit(self._switch, done)
        try:
            deadline = time.monotonic() + _WAIT_S
            while not done and time.monotonic() < deadline:
                self._send_for(1 / self._rate)
        finally:
            pool.shutdown()
        if not done:
            raise WorkFailedError(f"the switch did not finish within {_WAIT_S} s")
        if done[0] is not None:
            raise done[0]
        self.sent.first_stored = self.sent.first_after = self.sent.last_before + self.sent.longest_pause

    def _switch(self, done: list[BaseException | None]) -> None:
        try:
            with ClusterAdmin(self._namesrv, _ASK_MS) as admin:
                switch(admin, self._slave.address, [], _WAIT_S, log.info)
            done.append(None)
        except Exception as error:  # re-raised by the sending thread
            done.append(error)

    def _figures(self, came: Counter[str], rejoined_s: float | None) -> dict[str, Any]:
        return {**super()._figures(came, rejoined_s), "secondsUntilActed": None}


def failover(mode: str, rate: float, seconds: float, delay_s: float, home: Path) -> dict[str, Any]:
    """Run a drill in the folder `home` and return its results. All its processes are stopped afterwards."""
    conf = write_conf(home / "templates", mode)
    with LocalCluster(conf, home, free_port_block(ports_needed(conf))) as cluster:
        kind = ControlledDrill if mode in _CONTROLLED else Drill
        return kind(cluster, mode, rate, seconds, delay_s).run()


@click.group("drill")
def drill_group() -> None:
    """Rehearse failures on a temporary cluster."""


@drill_group.command("failover", short_help="Kill a master under load; count lost and repeated messages.",
               epilog=examples(
    "rmqha drill failover",
    "rmqha drill failover --rate 500 --seconds 20"))
@click.option("--mode", type=click.Choice(["promote", "restart", *_CONTROLLED]), default="promote", show_default=True,
              help="promote: promote the slave; the old master returns as a slave. restart: restart the master. "
                   "auto: a controller makes one of two slaves the master; the old master returns as a slave. "
                   "switch: no kill; `rmqha ha switch` makes a slave the master.")
@click.option("--rate", default=200.0, show_default=True, type=click.FloatRange(1), help="Messages a second.")
@click.option("--seconds", default=3.0, show_default=True, type=duration_type(0.1),
              help="How long to send before the kill, and again after the failover.")
@click.option("--delay", "delay_s", default=1.0, show_default=True, type=duration_type(0),
              help="Seconds between the kill and the promotion or restart: the time an operator needs to react.")
@click.option("--keep", is_flag=True, help="Keep the folder with configs, stores and logs.")
@output_option
def failover_command(mode: str, rate: float, seconds: float, delay_s: float, keep: bool, output: str) -> None:
    """Start a master and a slave on this host, kill the master under load, and report the results.

    Prints these figures. acknowledged: sends that got SEND_OK. lessSafe: sends that were stored, but got another
    status than SEND_OK. failed: sends that ended with an error. lost: acknowledged messages that are missing at the
    end. doubled: messages stored more than once, because the producer retried the send.

    Seconds are counted from the kill. secondsUntilActed: until the promotion or restart (--delay). secondsUntilStored:
    until a message was stored again. secondsUntilAcknowledged: until a send got SEND_OK again. secondsToRejoin is
    counted from the restart of the old master: until it is in sync with the new one.

    The modes auto and switch start a controller and three replicas and ignore --delay. For switch, secondsUntilStored
    and secondsUntilAcknowledged are both the longest pause between two acknowledgements.

    The producer refreshes its routes every second. Beside it, another one behaves like RocketMQ 4.9's, which learns of
    a new master only with the route that it asks for every 30 seconds. oldClientFailed: its sends that failed, after
    three tries each. oldClientSeconds: its longest time without SEND_OK, which may last until the drill's end.

    Exit code 1 if a message was lost.
    """
    home = Path(tempfile.mkdtemp(prefix="rmqha-drill-"))
    try:
        with ended_in_order():
            result = failover(mode, rate, seconds, delay_s, home)
    except ClusterError as error:
        raise WorkFailedError(f"{error}" + ("" if keep else "; use --keep to keep the servers' logs")) from error
    finally:
        if keep:
            put(f"kept: {home}", err=True)
        else:
            with contextlib.suppress(OSError):
                shutil.rmtree(home)
    if output != "table":
        emit(result, output)
    else:
        told = {name: "-" if value is None else f"{value:,}" if isinstance(value, (int, float)) else str(value)
                for name, value in result.items()}
        put_facts({**told, "lost": click.style(told["lost"], fg="red" if result["lost"] else "green")})
    if result["lost"]:
        raise SystemExit(FAILED)
