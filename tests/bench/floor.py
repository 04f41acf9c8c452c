"""The limit of client and machine with one thread: sends to rmqha, the real broker, and a server that only answers.

    python -m tests.bench.floor [--count 5000] [--rounds 9]

That server answers each send immediately, always with the same bytes except for the number of the request, from a
thread that waits in `recv` for its one client. It stores nothing, so its ratio is that of a broker that takes no time
at all. Rounds alternate; ratios are medians of the rounds' own.
"""
import argparse
import os
import re
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
from contextlib import ExitStack
from pathlib import Path

from rmqha.remoting.addresses import is_free
from tests.bench import KINDS, OTHER
from tests.bench.send import Cluster, rate, say
from tests.support import ports, real_rocketmq
from tests.support.java_driver import JavaDriver, Timing, Workload
from tests.support.wait import wait_until

_LENGTHS = struct.Struct(">ii")  # of the frame without this field, and of its header
_CODE, _OPAQUE = re.compile(rb'"code":(\d+)'), re.compile(rb'"opaque":(\d+)')
_GET_ROUTE = b"105"
_ROUTE = b"""{"brokerDatas":[{"brokerAddrs":{0:"127.0.0.1:%d"},"brokerName":"floor","cluster":"floor"}],
"filterServerTable":{},"queueDatas":[{"brokerName":"floor","perm":6,"readQueueNums":8,"topicSysFlag":0,
"writeQueueNums":8}]}"""
_ANSWER = (b'{"code":0,"extFields":{"msgId":"7F00000100002A9F0000000000000000","queueId":"0","queueOffset":"0",'
           b'"version":"0"},"flag":1,"language":"JAVA","opaque":%s,"serializeTypeCurrentRPC":"JSON","version":399}')


def _serve(connection: socket.socket, port: int) -> None:
    """Answer the requests of one client, as name server and broker in one."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    received = b""
    while data := connection.recv(1 << 16):
        received += data
        while len(received) >= _LENGTHS.size:
            length, header_length = _LENGTHS.unpack_from(received)
            if len(received) < 4 + length:
                break
            header, received = received[_LENGTHS.size:_LENGTHS.size + header_length], received[4 + length:]
            body = _ROUTE % port if _CODE.search(header)[1] == _GET_ROUTE else b""
            answer = _ANSWER % _OPAQUE.search(header)[1]
            connection.sendall(_LENGTHS.pack(4 + len(answer) + len(body), len(answer)) + answer + body)


class Floor:
    """A process that answers, and the client that sends to it; used like a Cluster."""

    def __init__(self, driver: JavaDriver, stack: ExitStack) -> None:
        self.driver, self.sent, port = driver, 0, ports.free_port()
        process = subprocess.Popen([sys.executable, "-m", "tests.bench.floor", "--serve", str(port)])
        stack.callback(process.wait)
        stack.callback(process.kill)
        self.address = f"127.0.0.1:{port}"
        wait_until(lambda: not is_free(port), 10_000, "the server that only answers")

    def send(self, count: int, size: int, threads: int) -> Timing:
        """Send messages, as a Cluster does."""
        self.sent += count
        return self.driver.produce_timed(self.address, Workload("bench", count, [size], first=self.sent), threads)


def _listen(port: int) -> None:
    with socket.create_server(("127.0.0.1", port)) as listener:
        while True:
            threading.Thread(target=_serve, args=(listener.accept()[0], port), daemon=True).start()


def main() -> None:
    """Run the benchmark, or be the server."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        _listen(arguments.serve)
    os.environ.setdefault("RMQHA_JAVA_OPTIONS", real_rocketmq.FULL_SPEED)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rmqha-bench-")))
        driver = JavaDriver(folder / "driver")
        driver.start()
        stack.callback(driver.shutdown)
        senders = {kind: Cluster(kind, "ASYNC_MASTER", folder / kind, driver, stack) for kind in KINDS}
        senders["floor"] = Floor(driver, stack)
        seen: dict[str, list[float]] = {kind: [] for kind in senders}
        for sender in senders.values():
            sender.send(4000, 1024, 16)
            sender.send(arguments.count, 1024, 1)
        order = list(senders)
        for _ in range(arguments.rounds):
            order = order[1:] + order[:1]
            for kind in order:
                seen[kind].append(rate(senders[kind].send(arguments.count, 1024, 1)))
        for kind, rates in seen.items():
            ratio = statistics.median(ours / real for ours, real in zip(rates, seen[OTHER], strict=True))
            say(f"{kind:6} {statistics.median(rates):9,.0f} msg/s  (min {min(rates):,.0f}, max {max(rates):,.0f})  "
                f"{kind} / {OTHER}: {ratio:.2f}")


if __name__ == "__main__":
    main()
