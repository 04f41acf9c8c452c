"""A good client in parallel to bad ones, in its own process, which measures how long it waits, and for whom.

    sender threads of the test          bystander process (`python -m tests.fuzz.bystander`)
    inputs -----------> server <------- one connection per server: a request or a send every few ms, with its wait
                          ^------------ /proc: CPU time and run delay of the server's threads, memory, descriptors

A wait is the server's own unless its threads were kept from running. The kernel reports for each thread how long it was
ready to run without a free core (run delay, /proc/<pid>/task/<tid>/schedstat). This is subtracted, and so is the delay
of this process, but not more than the time in which the server did not run. The rest is the time in which it worked or
slept. (Java's threads run in parallel: their whole run delay is subtracted.)
"""
import argparse
import json
import os
import re
import socket
import ssl
import sys
import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.interop.request_code_cases import TOPIC as STOCKED
from tests.support.raw_remoting import GET_BROKER_CLUSTER_INFO, GET_MAX_OFFSET, SignedClient, frame, header
from tests.support.start_as import end_with_parent

# The pause between two requests.
PAUSE_S = 0.004
# The pause if each request has its own connection.
ONCE_S = 0.05
# One of this many requests is a send.
SEND_EVERY = 10
# The interval between samples of the server's run delay.
LOOK_S = 0.05
SAMPLE_S = 1.0
# Longer waits are reported one by one.
NOTED_S = 0.15
ANSWER_S = 300.0
# Threads that serve a request, or hold what those wait for.
ON_THE_WAY = 3
TOPIC = "Bystander"
GET_CONTROLLER_METADATA = 1005
# Doors that do not use the remoting protocol.
OTHER_PROTOCOLS = {"ha", "metrics", "console"}
# The header of the first frame of a replication port; more than an HTTP status needs.
ANSWER_BYTES = 12
SIGTERM = 15


def encrypted(connected: socket.socket) -> socket.socket:
    """Return the client's side of a TLS connection that trusts any server."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context.wrap_socket(connected)


def question(door: str, opaque: int) -> bytes:
    """Return a valid request for a door that uses the remoting protocol."""
    if door.endswith("broker"):
        return frame(header(GET_MAX_OFFSET, opaque, topic=STOCKED, queueId=0))
    return frame(header(GET_CONTROLLER_METADATA if door == "controller" else GET_BROKER_CLUSTER_INFO, opaque))


@dataclass
class Wait:
    """One wait of the bystander, with monotonic times in seconds."""

    server: str
    what: str
    begin: float
    seconds: float
    # The part in which the machine was busy with other work.
    machine: float = 0.0
    failure: str | None = None

    @property
    def own(self) -> float:
        """The part that the server is responsible for."""
        return max(0.0, self.seconds - self.machine)


@dataclass
class Sample:
    """The resources of a server's process at one time."""

    at: float
    anonymous_bytes: int
    threads: int
    descriptors: int
    cpu_s: float


@dataclass
class Told:
    """A bystander's observations of one server."""

    server: str
    questions: int = 0
    longest: Wait | None = None
    waits: list[Wait] = field(default_factory=list)  # those longer than NOTED_S
    samples: list[Sample] = field(default_factory=list)


def run_delays_and_cpu(pid: int) -> tuple[dict[str, float], float]:
    """Return each thread's seconds in which it was ready without a core, and the seconds that all threads ran."""
    cpu, delays = 0, {}
    for task in os.listdir(f"/proc/{pid}/task"):
        with suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended
            with open(f"/proc/{pid}/task/{task}/schedstat", encoding="ascii") as file:
                ran, waited, _slices = file.read().split()
            cpu, delays[task] = cpu + int(ran), int(waited) / 1e9
    return delays, cpu / 1e9


def delay_between(earlier: dict[str, float], later: dict[str, float]) -> float:
    """Return the maximum delay of a request in seconds, if it passed through the most delayed threads."""
    delays = sorted((later[task] - earlier.get(task, 0.0) for task in later), reverse=True)
    return sum(delays[:ON_THE_WAY])


def sample(pid: int) -> Sample:
    """Return the present resources of a process."""
    status = Path(f"/proc/{pid}/status").read_text("ascii")
    links = 0
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # already closed
            links += not os.readlink(descriptor).startswith("/")
    _delays, cpu = run_delays_and_cpu(pid)
    return Sample(time.monotonic(), int(re.search(r"RssAnon:\s*(\d+) kB", status)[1]) * 1024,
                  int(re.search(r"Threads:\s*(\d+)", status)[1]), links, cpu)


class Bystander:
    """A client that sends requests to one server all the time. `stop` ends it, its results are in `told`."""

    def __init__(self, server: str, address: str, pid: int, account: tuple[str, str] | None, tls: bool = False):
        self.told = Told(server)
        self._door, self._tls = server.rpartition(" ")[2], tls and not server.startswith("java ")
        self._address, self._pid, self._account = address, pid, account
        self._is_broker = server.endswith("broker")
        self._stopped = threading.Event()
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._ask, self._sample)]
        self._client: SignedClient | None = None
        # The last result of run_delays_and_cpu.
        self._looked: tuple[dict[str, float], float] = ({}, 0.0)

    def start(self) -> None:
        """Start the thread."""
        self._looked = run_delays_and_cpu(self._pid)
        if self._is_broker:
            self._connected().create_topic(TOPIC, 1)
        for thread in self._threads:
            thread.start()

    def stop(self) -> Told:
        """Stop after the last answer; return the observations, without the machine's part of the waits."""
        self._stopped.set()
        for thread in self._threads:
            thread.join(ANSWER_S)
        self.told.samples.append(sample(self._pid))
        return self.told

    def _connected(self) -> SignedClient:
        if self._client is None:
            self._client = SignedClient(self._address, self._account, "127.0.0.3")
            self._client.socket.settimeout(ANSWER_S)
            if self._tls:
                self._client.socket = encrypted(self._client.socket)
        return self._client

    def _ask_once(self) -> None:
        """Send one request on its own connection: a slave's report, answered by the master's first frame, or a page."""
        host, port = self._address.rsplit(":", 1)
        path = "/healthz" if self._door == "metrics" else "/api/session"
        with socket.create_connection((host, int(port)), ANSWER_S, ("127.0.0.3", 0)) as sock:
            sock.sendall(bytes(8) if self._door == "ha" else f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            answer = b""
            while len(answer) < ANSWER_BYTES:
                data = sock.recv(4096)
                if not data:
                    raise EOFError("the peer closed the connection")
                answer += data
        assert self._door == "ha" or answer[9:12] == b"200", answer

    def _ask(self) -> None:
        number = 0
        while not self._stopped.wait(ONCE_S if self._door in OTHER_PROTOCOLS else PAUSE_S):
            number += 1
            what = "send" if self._is_broker and number % SEND_EVERY == 0 else "question"
            begin, failure, looked, own = time.monotonic(), None, self._looked, own_delay()
            try:
                self._request(what)
            except (OSError, EOFError, AssertionError) as error:
                failure = repr(error)
                self._client = None
            wait = Wait(self.told.server, what, begin, time.monotonic() - begin, failure=failure)
            self.told.questions += 1
            if failure or wait.seconds > NOTED_S or self.told.longest is None or wait.seconds > self.told.longest.own:
                self._note(wait, looked, own)

    def _request(self, what: str) -> None:
        if self._door in OTHER_PROTOCOLS:
            self._ask_once()
            return
        client = self._connected()
        if what == "send":
            answer = client.send_message_once(TOPIC, b"bystander")
        elif self._is_broker:
            answer = client.request(GET_MAX_OFFSET, topic=TOPIC, queueId=0)
        else:
            answer = client.request(GET_CONTROLLER_METADATA if self._door == "controller" else GET_BROKER_CLUSTER_INFO)
        assert answer.code in (0, 10, 11, 12), answer

    def _note(self, wait: Wait, looked: tuple[dict[str, float], float], own_s: float) -> None:
        told = self.told
        with suppress(FileNotFoundError):  # the server is dead
            delays, cpu = run_delays_and_cpu(self._pid)
            ran = 0.0 if told.server.startswith("java") else min(wait.seconds, max(0.0, cpu - looked[1]))
            wait.machine = min(wait.seconds - ran, delay_between(looked[0], delays) + own_delay() - own_s)
        if told.longest is None or wait.own > told.longest.own:
            told.longest = wait
        if wait.own > NOTED_S or wait.failure:
            told.waits.append(wait)

    def _sample(self) -> None:
        next_sample = 0.0
        while not self._stopped.wait(LOOK_S):
            try:
                self._looked = run_delays_and_cpu(self._pid)
                if time.monotonic() >= next_sample:
                    next_sample = time.monotonic() + SAMPLE_S
                    self.told.samples.append(sample(self._pid))
            except (FileNotFoundError, ProcessLookupError):  # dead: the requests show it
                return


def own_delay() -> float:
    """Return the seconds in which this thread was ready without a core."""
    with open("/proc/thread-self/schedstat", encoding="ascii") as file:
        return int(file.read().split()[1]) / 1e9


def as_json(told: list[Told]) -> str:
    """Return observations in the format of `from_json`."""
    return json.dumps([asdict(one) for one in told])


def from_json(text: str) -> list[Told]:
    """Parse the observations of bystanders."""
    return [Told(one["server"], one["questions"], Wait(**one["longest"]) if one["longest"] else None,
                 [Wait(**wait) for wait in one["waits"]], [Sample(**each) for each in one["samples"]])
            for one in json.loads(text)]


def main() -> None:
    """Print `ready`, wait for the end of the standard input, and print the observations."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.bystander", description=__doc__)
    parser.add_argument("servers", nargs="+", help="name=host:port=pid")
    parser.add_argument("--account", nargs=2)
    parser.add_argument("--tls", action="store_true", help="to the servers of rmqha that speak remoting")
    asked = parser.parse_args()
    end_with_parent(SIGTERM)
    account = tuple(asked.account) if asked.account else None
    bystanders = [Bystander(name, address, int(pid), account if name.endswith("broker") else None, asked.tls)
                  for name, address, pid in (one.split("=") for one in asked.servers)]
    for one in bystanders:
        one.start()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.read()
    sys.stdout.write(as_json([one.stop() for one in bystanders]))


if __name__ == "__main__":
    main()
