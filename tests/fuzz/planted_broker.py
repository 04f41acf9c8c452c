"""A broker with a planted fault, which must be found: `python -m tests.fuzz.planted_broker FAULT -c FILE`."""
import socket
import sys
import threading
import time

from rmqha.broker import broker_startup
from rmqha.remoting.remoting_abstract import RemotingAbstract

SLEEP_S = 3.0
COMMAS = 300  # of a body, below which the planted decoder shows no harm
LEAKED = 1 << 20  # bytes a request
_kept: list[object] = []


def _before_each_request(do) -> None:
    """Let `do(command)` run on the thread that reads, before a request is served."""
    original = RemotingAbstract.process_request_command

    def planted(self, channel, command):
        do(command)
        original(self, channel, command)
    RemotingAbstract.process_request_command = planted


def _sleep_at_an_odd_number(command) -> None:
    if "1000000" in (command.ext_fields or {}).values():
        time.sleep(SLEEP_S)


def _read_in_quadratic_time(command) -> None:
    commas = bytes(command.body or b"").count(b",")
    end = time.thread_time() + min(0.9, (commas / COMMAS) ** 2 / 1000)
    while time.thread_time() < end:
        pass


def _leave_a_thread(_command) -> None:
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()


FAULTS = {
    "none": lambda _command: None,
    "sleep": _sleep_at_an_odd_number,
    "quadratic": _read_in_quadratic_time,
    "leak": lambda _command: _kept.append(b"x" * LEAKED),
    "threads": _leave_a_thread,
    "descriptors": lambda _command: _kept.append(socket.socket()),
}

if __name__ == "__main__":
    _before_each_request(FAULTS[sys.argv.pop(1)])
    sys.exit(broker_startup.main())
