"""The operator's command for changes of this broker's role (onRoleChange): it moves an address, or labels a pod.

    ReplicasManager --becomes_master, becomes_slave--> RoleCallback <--left_ms-- MasterLease
    ReplicasManager_RoleCallback: waits for a change or the end of the lease, then runs COMMAND ROLE BROKER_NAME EPOCH

The command has to know at any time whether clients may be sent to this broker. Two rules make that possible:

- State, not events. The thread compares the role that the command should know with the role of its last run, and runs
  it while they differ. So runs never overlap, changes during a run are merged, and the last one wins.
- The end of the lease is a change of its own: `none`. A master that is cut off from its controllers hears of no other
  master, so its own clock has to end its role. Nothing else happens at that time, so the thread waits for exactly that
  moment. A lease that is renewed afterwards changes the role back to `master`.

A new master waits in `becomes_master` until the command has ended, at most onRoleChangeTimeoutMills. Until then it does
not lead, so it gets no lease and does not register: an address has moved before clients come. ReplicasManager holds its
lock for role changes meanwhile; heartbeats and health pages do not need that lock.

No call is made when the process is killed. The next start begins with `none`, which undoes what was left.
"""
from __future__ import annotations

import logging
import os
import select
import shlex
import signal
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from rmqha.common.broker_config import BrokerConfig
from rmqha.common.lazy_tuples import NamedTuple
from rmqha.common.service_thread import ServiceThread

if TYPE_CHECKING:
    import subprocess

    from rmqha.broker.broker_addresses import BrokerAddresses
    from rmqha.broker.controller.controller_heartbeat import MasterLease

log = logging.getLogger("RocketmqBroker")

MASTER, SLAVE, NONE = "master", "slave", "none"
_NS_PER_MS = 1_000_000
# A master that has given its lease up early, because a connection to a controller has ended, asks for another at once.
# The command is not run if it gets one within this time.
_RENEWAL_MS = 200
# How long to wait when only a call can change anything.
_LONG_MS = 3600 * 1000
# Of the command's output, this much is logged.
_MOST_OUTPUT = 4096
# How often to check whether the command has ended although a process that it started keeps its output open.
_LOOK_MS = 20
_READ = 64 << 10
# After SIGKILL. A process that waits for a disk may take longer.
_END_MS = 1000


class Place(NamedTuple):
    """The role that the command gets: `role` is MASTER, SLAVE or NONE. Addresses are `host:port`; "": not known."""

    role: str
    epoch: int
    master_address: str = ""
    master_ha_address: str = ""


class RoleCallback(ServiceThread):
    """Runs onRoleChange for each change of the role, one run at a time. Without that key it does nothing.

    Differs: an operator's command (onRoleChange) is run when a broker's role or lease changes; 5.1.4 has no such key
    """

    def __init__(self, config: BrokerConfig, addresses: BrokerAddresses, lease: MasterLease,
                 broker_id: Callable[[], int]) -> None:
        super().__init__()
        self.daemon = True
        self._config, self._here, self._lease, self._broker_id = config, addresses, lease, broker_id
        # Read once, because the key is fixed. ValueError: the key was not checked.
        self._command = shlex.split(config.onRoleChange)
        # Guards all below, and announces that `_ended` has changed.
        self._has_ended = threading.Condition(threading.Lock())
        self._place = Place(NONE, 0)
        # The role of the last run that has begun, and of the last one that has ended.
        self._begun: Place | None = None
        self._ended: Place | None = None
        # True while a new master waits for the command.
        self._is_becoming = False
        # When a master's role ends unless its lease is renewed (monotonic clock), and whether it has had a lease.
        self._until_ns = 0
        self._had_lease = False

    def get_service_name(self) -> str:
        return "ReplicasManager_RoleCallback"

    def start(self) -> None:
        """Start the thread, which first runs the command with the role `none`."""
        if self._command:
            super().start()

    def make_stop(self) -> None:
        super().make_stop()
        with self._has_ended:
            self._has_ended.notify_all()  # no change of the role waits any longer

    def shutdown(self, interrupt: bool = False) -> None:
        """Run the command with the role `none`, unless it was the last one, and wait for its end. Idempotent."""
        self.join_time_ms = 2 * (self._config.onRoleChangeTimeoutMills + _END_MS) + 1000
        self.make_stop()
        super().shutdown(interrupt)

    # ---- changes of the role

    def becomes_master(self, epoch: int) -> None:
        """Run the command for the master of `epoch`, this broker, and return when it has ended.

        Returns after onRoleChangeTimeoutMills at the latest, and at once if the command knows this broker as the master
        already.
        """
        if not self._command:
            return
        place = Place(MASTER, epoch, self._here.broker_addr, self._here.ha_server_addr)
        limit_ms = self._config.onRoleChangeTimeoutMills
        with self._has_ended:
            self._place, self._is_becoming, self._had_lease = place, True, False
            is_known = self._begun is not None and self._begun.role == MASTER
        self.wakeup()
        with self._has_ended:
            if not is_known and not self._has_ended.wait_for(lambda: self._ended == place or self.stopped,
                                                            limit_ms / 1000):
                log.warning("onRoleChange has not ended within %d ms; becoming the master nevertheless", limit_ms)
            self._is_becoming = False
            # The first lease should be granted in that time. Otherwise a controller may already replace this broker.
            self._until_ns = time.monotonic_ns() + self._config.controllerHeartBeatTimeoutMills * _NS_PER_MS
        self.wakeup()

    def becomes_slave(self, epoch: int, master_address: str, master_ha_address: str | None) -> None:
        """Run the command for a slave of the master of `epoch`. Does not wait."""
        with self._has_ended:
            self._place = Place(SLAVE, epoch, master_address, master_ha_address or "")
        self.wakeup()

    # ---- the thread

    def run(self) -> None:
        while True:
            is_ending = self.stopped
            wanted, stays_ms = self._wanted(is_ending)
            if wanted != self._ended:
                self._tell(wanted)
            elif is_ending:
                return
            else:
                self.wait_for_running(stays_ms)

    def _wanted(self, is_ending: bool) -> tuple[Place, float]:
        """Return the role that the command should know now, and for how many ms it stays if nothing is called."""
        with self._has_ended:
            place = self._place
            if not is_ending and (place.role != MASTER or self._is_becoming):
                return place, _LONG_MS
            left_ms = 0.0 if is_ending else self._leads_for_ms()
        return (place, left_ms) if left_ms > 0 else (Place(NONE, place.epoch), _LONG_MS)

    def _leads_for_ms(self) -> float:
        """Return for how long this master may still lead without another answer of a controller. Under the lock."""
        if not self._config.controllerLease:
            return _LONG_MS
        left_ms, now_ns = self._lease.left_ms(), time.monotonic_ns()
        if left_ms > 0:
            self._had_lease, self._until_ns = True, now_ns + int(left_ms * _NS_PER_MS)
        elif self._had_lease:
            self._until_ns = min(self._until_ns, now_ns + _RENEWAL_MS * _NS_PER_MS)
        return max(0, self._until_ns - now_ns) / _NS_PER_MS

    def _tell(self, place: Place) -> None:
        with self._has_ended:
            self._begun = place
        self._run_command(place)
        with self._has_ended:
            self._ended = place
            self._has_ended.notify_all()

    # ---- the command

    def _run_command(self, place: Place) -> None:
        """Run the command, and log its output and its end."""
        import subprocess  # few brokers have a command

        words, begin_ns = (place.role, self._config.brokerName, str(place.epoch)), time.monotonic_ns()
        title, limit_ms = " ".join(words), self._config.onRoleChangeTimeoutMills
        try:
            process = subprocess.Popen([*self._command, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                       stderr=subprocess.STDOUT, env=self._environment(place), start_new_session=True)
        except OSError as error:
            log.warning("onRoleChange %s cannot be run: %s", title, error)
            return
        assert process.stdout is not None  # a pipe
        with process.stdout as pipe:
            output, is_in_time = _read_until_end(process, pipe.fileno(), begin_ns + limit_ms * _NS_PER_MS)
            if not is_in_time:
                _kill(process)
        took_ms = (time.monotonic_ns() - begin_ns) // _NS_PER_MS
        for line in output.decode("utf-8", "replace").splitlines():
            log.info("onRoleChange %s: %s", title, "".join(char if char.isprintable() else " " for char in line))
        if not is_in_time:
            log.warning("onRoleChange %s was killed after %d ms (onRoleChangeTimeoutMills)", title, took_ms)
        elif process.returncode:
            log.warning("onRoleChange %s failed with exit code %d after %d ms", title, process.returncode, took_ms)
        else:
            log.info("onRoleChange %s ended with exit code 0 after %d ms", title, took_ms)

    def _environment(self, place: Place) -> dict[str, str]:
        config, here = self._config, self._here
        return {**os.environ,
                "RMQHA_ROLE": place.role, "RMQHA_EPOCH": str(place.epoch), "RMQHA_BROKER_NAME": config.brokerName,
                "RMQHA_BROKER_ID": str(self._broker_id()), "RMQHA_CLUSTER_NAME": config.brokerClusterName,
                "RMQHA_ADDRESS": here.broker_addr, "RMQHA_HA_ADDRESS": here.ha_server_addr,
                "RMQHA_MASTER_ADDRESS": place.master_address, "RMQHA_MASTER_HA_ADDRESS": place.master_ha_address}


def _read_until_end(process: subprocess.Popen[bytes], pipe: int, deadline_ns: int) -> tuple[bytes, bool]:
    """Return the beginning of the output, and whether the process has ended in time.

    A process that the command leaves in the background may keep the pipe open; it is not waited for.
    """
    os.set_blocking(pipe, False)
    poll, output = select.poll(), b""
    poll.register(pipe, select.POLLIN)
    while (left_ms := (deadline_ns - time.monotonic_ns()) / _NS_PER_MS) > 0:
        has_ended = process.poll() is not None
        # After its end, only what is in the pipe already.
        if not poll.poll(0 if has_ended else min(left_ms, _LOOK_MS)):
            if has_ended:
                return output, True
            continue
        piece = os.read(pipe, _READ)
        output += piece[:_MOST_OUTPUT - len(output)]
        if has_ended:
            return output, True
        if not piece:
            return output, _ends_within(process, left_ms)
    return output, process.poll() is not None


def _ends_within(process: subprocess.Popen[bytes], limit_ms: float) -> bool:
    import subprocess

    try:
        process.wait(limit_ms / 1000)
    except subprocess.TimeoutExpired:
        return False
    return True


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the command, and the processes that it has started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except OSError as error:
        # It has just ended, or belongs to another user.
        log.info("onRoleChange: process %d cannot be killed: %s", process.pid, error)
    if not _ends_within(process, _END_MS):
        log.warning("onRoleChange: process %d is still running", process.pid)
