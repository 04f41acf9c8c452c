"""Free ports below the ephemeral range: one for a name server, a block of three for a broker.

A port that nobody listens at yet may have been promised to another process. So runs of tests on one machine take their
ports from parts of the range, and so do the processes of a run.
"""
import os
import random
import socket

_LOWEST, _HIGHEST = 12_000, 32_000  # Linux gives outgoing connections ports from 32768 on
_RUNS = 4  # side by side; more share a part
_VARIABLE = "RMQHA_TEST_PORTS"  # which part this run has, for its processes
_taken: dict[int, None] = {}  # by this test process, the oldest first; given again when there are no others
_range = [_LOWEST, _HIGHEST]  # of this test process
_claim: list[socket.socket] = []  # what others see; it goes with this process


def claim() -> None:
    """Take a part of the range that no other run on this machine has, for this process and what it starts."""
    if _VARIABLE not in os.environ:
        os.environ[_VARIABLE] = str(next(filter(_is_claimed, range(_RUNS)), random.randrange(_RUNS)))
    size = (_HIGHEST - _LOWEST) // _RUNS
    _range[0] = _LOWEST + int(os.environ[_VARIABLE]) * size
    _range[1] = _range[0] + size


def _is_claimed(part: int) -> bool:
    """Whether this process has it now."""
    mark = socket.socket(socket.AF_UNIX)
    try:
        mark.bind(f"\0rmqha-test-ports-{part}")
    except OSError:
        mark.close()
        return False
    _claim.append(mark)
    return True


def own_range() -> tuple[int, int]:
    """What this process takes its ports from, for `use_range` in one that it starts."""
    return _range[0], _range[1]


def use_range(lowest: int, highest: int) -> None:
    """From now on this process takes its ports from here."""
    _range[:] = lowest, highest


def use_part(number: int, count: int) -> None:
    """From now on this process takes its ports from part `number`, from 0 on, of `count` equal parts of its range."""
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
    """A port that is free together with `below` ports under it and `above` ports over it."""
    while True:
        for _ in range(1000):
            port = random.randrange(_range[0] + below, _range[1] - above)
            block = range(port - below, port + above + 1)
            if _taken.keys().isdisjoint(block) and all(map(_is_free, block)):
                _taken.update(dict.fromkeys(block))
                return port
        if not _taken:
            raise AssertionError(f"no free ports from {_range[0]} to {_range[1]}")
        for port in list(_taken)[:(len(_taken) + 1) // 2]:  # whoever was promised these has begun to listen long ago
            del _taken[port]


def free_port() -> int:
    """One free port."""
    return free_block()


def free_ha_port() -> int:
    """A port for somebody who plays a master's HA port; nobody listens below it, where a slave looks for the master."""
    return free_block(below=1)


def free_broker_port() -> int:
    """A broker's listenPort: port - 2 (fast port), port - 1 (spare), port and port + 1 (HA) are free."""
    return free_block(below=2, above=1)
