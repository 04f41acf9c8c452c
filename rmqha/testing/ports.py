"""Free ports for a broker: brokers find each other's by listenPort, so any three will not do."""
import random

from rmqha.remoting.common.listening import FAST_PORT, HA_PORT, LISTEN_PORT, PortError, listen
from rmqha.testing.errors import EmbeddedError

# Below those that Linux gives to outgoing connections: a broker that is started again has its ports back.
_LOWEST, _HIGHEST = 12_000, 22_900
_TRIES = 1000


def free_broker_port() -> int:
    """A listenPort where nobody listens now, nor on the fast port two below, nor on the HA port above."""
    chooser = random.SystemRandom()  # tests that seed `random` would all have the same ports
    for _ in range(_TRIES):
        port = chooser.randrange(_LOWEST + 2, _HIGHEST)
        if all(_is_free(port + offset, use) for offset, use in ((-2, FAST_PORT), (0, LISTEN_PORT), (1, HA_PORT))):
            return port
    raise EmbeddedError(f"no ports are free for a broker between {_LOWEST} and {_HIGHEST}")


def _is_free(port: int, use: str) -> bool:
    try:
        listen(port, use, 1).close()
    except PortError:
        return False
    return True
