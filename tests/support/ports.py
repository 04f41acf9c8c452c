"""Free ports below the ephemeral range: one for a name server, a block of three for a broker."""
import random
import socket

_LOWEST, _HIGHEST = 23_000, 32_000  # Linux gives outgoing connections ports from 32768 on
_taken: set[int] = set()  # by this test process; a port is not given twice
_range = [_LOWEST, _HIGHEST]  # of this test process


def use_range(lowest: int, highest: int) -> None:
    """From now on this process takes its ports from here: for processes that run side by side."""
    _range[:] = lowest, highest


def use_part(number: int, count: int) -> None:
    """From now on this process takes its ports from part `number`, from 0 on, of `count` equal parts of the range."""
    size = (_HIGHEST - _LOWEST) // count
    use_range(_LOWEST + number * size, _LOWEST + (number + 1) * size)


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
    for _ in range(1000):
        port = random.randrange(_range[0] + below, _range[1] - above)
        block = set(range(port - below, port + above + 1))
        if not block & _taken and all(map(_is_free, block)):
            _taken.update(block)
            return port
    raise AssertionError("no free port block found")


def free_port() -> int:
    """One free port."""
    return free_block()


def free_ha_port() -> int:
    """A port for somebody who plays a master's HA port; nobody listens below it, where a slave looks for the master."""
    return free_block(below=1)


def free_broker_port() -> int:
    """A broker's listenPort: port - 2 (fast port), port - 1 (spare), port and port + 1 (HA) are free."""
    return free_block(below=2, above=1)
