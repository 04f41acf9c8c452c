"""Free ports below the ephemeral range: one for a name server, a block of three for a broker.

A port at which nothing listens yet may have been promised to another process. Therefore runs of tests on one machine
take their ports from separate parts of the range, and so do the processes of a run.
"""
import os
import random
import socket

_LOWEST, _HIGHEST = 12_000, 32_000  # Linux gives outgoing connections ports from 32768 on
_RUNS = 4  # in parallel; further runs share a part
_VARIABLE = "RMQHA_TEST_PORTS"  # the part of this run, for its processes
# Ports that this test process has taken, oldest first; taken again when there are no others.
_taken: dict[int, None] = {}
_range = [_LOWEST, _HIGHEST]  # of this test process
_claim: list[socket.socket] = []  # visible to other runs; released with this process


def claim() -> None:
    """Take a part of the range that no other run on this machine has, for this process and its children."""
    if _VARIABLE not in os.environ:
        os.environ[_VARIABLE] = str(next(filter(_is_claimed, range(_RUNS)), random.randrange(_RUNS)))
    size = (_HIGHEST - _LOWEST) // _RUNS
    _range[0] = _LOWEST + int(os.environ[_VARIABLE]) * size
    _range[1] = _range[0] + size


def _is_claimed(part: int) -> bool:
    """Return whether this process has taken the part now."""
    mark = socket.socket(socket.AF_UNIX)
    try:
        mark.bind(f"\0rmqha-test-ports-{part}")
    except OSError:
        mark.close()
        return False
    _claim.append(mark)
    return True


def own_range() -> tuple[int, int]:
    """Return the range of this process's ports, for `use_range` in a process that it starts."""
    return _range[0], _range[1]


def use_range(lowest: int, highest: int) -> None:
    """Take this process's ports from this range from now on."""
    _range[:] = lowest, highest


def use_part(number: int, count: int) -> None:
    """Take this process's ports from part `number`, counted from 0, of `count` equal parts of its range from now on."""
    size = (_range[1] - _range[0]) // count
    _range[0] += number * size
    _range[1] = _range[0] + size


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("0.0.0.0", port))
        except OSError:
            return False
    return True


def free_block(below: int = 0, above: int = 0) -> int:
    """Return a port that is free together with `below` ports under it and `above` ports over it."""
    while True:
        for _ in range(1000):
            port = random.randrange(_range[0] + below, _range[1] - above)
            block = range(port - below, port + above + 1)
            if _taken.keys().isdisjoint(block) and all(map(_is_free, block)):
                _taken.update(dict.fromkeys(block))
                return port
        if not _taken:
            raise AssertionError(f"no free ports from {_range[0]} to {_range[1]}")
        # The servers that were promised these have begun to listen long ago.
        for port in list(_taken)[:(len(_taken) + 1) // 2]:
            del _taken[port]


def free_port() -> int:
    """Return one free port."""
    return free_block()


def free_ha_port() -> int:
    """Return a port for a test that acts as a master's HA port; nothing listens below it, where a slave looks for
    the master."""
    return free_block(below=1)


def free_broker_port() -> int:
    """Return a broker's listenPort: port - 2 (fast port), port - 1 (spare), port and port + 1 (HA) are free."""
    return free_block(below=2, above=1)
