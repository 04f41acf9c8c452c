"""Limits of this machine without any broker, which the other benchmarks run into.

    python -m tests.bench.machine [--rounds 5] [--folder F] [--json F]

Measures copies of 64 MiB in memory; bytes from one process to another through a loopback socket (1 MiB per write);
round trips of a byte between two processes; `fdatasync` after 4 KiB were appended to a file in `--folder`. All of it is
Python, which leaves the work to the C library and the kernel.
"""
import argparse
import multiprocessing
import os
import socket
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.bench.results import Results, add_json
from tests.bench.startup import say

_BLOCK = 64 << 20
_WRITE = 1 << 20
_STREAM = 1 << 30
_PAGE = 4096


def memory_copy() -> float:
    """Return the MB per second of copies in memory; all pages have been touched before."""
    source, target = memoryview(bytearray(b"x" * _BLOCK)), memoryview(bytearray(b"y" * _BLOCK))
    begin = time.perf_counter()
    for _ in range(8):
        target[:] = source
    return 8 * _BLOCK / 1e6 / (time.perf_counter() - begin)


def _send(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        block = bytes(_WRITE)
        for _ in range(_STREAM // _WRITE):
            connection.sendall(block)


def _echo(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while data := connection.recv(1):
            connection.sendall(data)


def _with_peer(target: Callable[[int], None], work: Callable[[socket.socket], float]) -> float:
    """Return the result of `work` on a connection to a separate process that runs `target`."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        process = multiprocessing.get_context("spawn").Process(target=target, args=(listener.getsockname()[1],))
        process.start()
        connection, _ = listener.accept()
        with connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            value = work(connection)
        process.join()
    return value


def loopback() -> float:
    """Return the MB per second from process to process."""
    def receive(connection: socket.socket) -> float:
        buffer, received = memoryview(bytearray(_WRITE)), 0
        begin = time.perf_counter()
        while count := connection.recv_into(buffer):
            received += count
        return received / 1e6 / (time.perf_counter() - begin)
    return _with_peer(_send, receive)


def round_trip() -> float:
    """Return the median microseconds of 5,000 round trips of a byte."""
    def ask(connection: socket.socket) -> float:
        times = []
        for _ in range(5000):
            begin = time.perf_counter()
            connection.sendall(b"x")
            connection.recv(1)
            times.append(time.perf_counter() - begin)
        return statistics.median(times) * 1e6
    return _with_peer(_echo, ask)


def fdatasync(folder: str | None) -> float:
    """Return the median microseconds of 200 appends of 4 KiB to a file, until they are on disk."""
    times = []
    with tempfile.TemporaryDirectory(prefix="rmqha-bench-", dir=folder) as name:
        with open(Path(name) / "file", "wb", buffering=0) as file:
            for _ in range(200):
                begin = time.perf_counter()
                file.write(bytes(_PAGE))
                os.fdatasync(file.fileno())
                times.append(time.perf_counter() - begin)
    return statistics.median(times) * 1e6


def main() -> None:
    """Run all measurements."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", help="a folder on the disk to measure (default: the system's temporary folder)")
    add_json(parser)
    arguments = parser.parse_args()
    results = Results("machine", arguments)
    for what, unit, measure in (("copy in memory", "MB/s", memory_copy), ("loopback", "MB/s", loopback),
                                ("round trip over loopback", "us", round_trip),
                                ("fdatasync of 4 KiB", "us", lambda: fdatasync(arguments.folder))):
        values = [measure() for _ in range(arguments.rounds)]
        say(f"{what:25} {statistics.median(values):10,.1f} {unit}  (min {min(values):,.1f}, max {max(values):,.1f})")
        results.row("machine", what, unit, values)


if __name__ == "__main__":
    main()
