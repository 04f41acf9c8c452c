"""A broker with a planted fault that must be found: `python -m tests.fuzz.planted_broker FAULT -c FILE`."""
import socket
import sys
import threading
import time

from rmqha.broker import broker_startup
from rmqha.common.metrics import Pages
from rmqha.remoting.protocol.fastjson import FrozenObject
from rmqha.remoting.remoting_abstract import RemotingAbstract
from rmqha.store.ha.ha_connection import HAConnection
from tests.support.wait import at_least

SLEEP_S = 3.0
# With fewer commas in a body the planted decoder is harmless.
COMMAS = 300
LEAKED = 1 << 20  # bytes per request
_kept: list[object] = []


def _before_each_request(do) -> None:
    """Run `do(command)` on the reading thread before each request is served."""
    original = RemotingAbstract.process_request_command

    def planted(self, channel, command):
        do(command)
        original(self, channel, command)
    RemotingAbstract.process_request_command = planted


def _sleep_at_an_odd_number(command) -> None:
    if "1000000" in (command.ext_fields or {}).values():
        at_least(SLEEP_S)


def _read_in_quadratic_time(command) -> None:
    commas = bytes(command.body or b"").count(b",")
    end = time.thread_time() + min(0.9, (commas / COMMAS) ** 2 / 1000)
    while time.thread_time() < end:
        pass


def _leave_a_thread(_command) -> None:
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()


def _hash_all_levels() -> None:
    """Make an object's hash from the texts of its whole contents, at each level again."""
    FrozenObject.__hash__ = lambda self: hash(frozenset(map(repr, self.items())))


def _sleep_where_slaves_are_heard() -> None:
    original = HAConnection.hear

    def planted(self):
        at_least(SLEEP_S)
        return original(self)
    HAConnection.hear = planted


def _sleep_where_pages_are_made() -> None:
    original = Pages.page

    def planted(self, path):
        at_least(SLEEP_S)
        return original(self, path)
    Pages.page = planted


FAULTS_AT_THE_START = {"hash": _hash_all_levels, "ha": _sleep_where_slaves_are_heard,
                       "metrics": _sleep_where_pages_are_made}
FAULTS = {
    "none": lambda _command: None,
    "sleep": _sleep_at_an_odd_number,
    "quadratic": _read_in_quadratic_time,
    "leak": lambda _command: _kept.append(b"x" * LEAKED),
    "threads": _leave_a_thread,
    "descriptors": lambda _command: _kept.append(socket.socket()),
}

if __name__ == "__main__":
    fault = sys.argv.pop(1)
    if fault in FAULTS_AT_THE_START:
        FAULTS_AT_THE_START[fault]()
    else:
        _before_each_request(FAULTS[fault])
    sys.exit(broker_startup.main())
