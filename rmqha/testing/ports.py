"""Free ports for a broker: brokers find each other's by listenPort, so any three will not do."""
import random

from rmqha.remoting.addresses import is_free
from rmqha.testing.errors import EmbeddedError

# Below those that Linux gives to outgoing connections: a broker that is started again has its ports back.
_LOWEST, _HIGHEST = 12_000, 22_900
_TRIES = 1000


def free_broker_port() -> int:
    """A listenPort where nobody listens now, nor on the fast port two below, nor on the HA port above."""
    chooser = random.SystemRandom()  # tests that seed `random` would all have the same ports
    for _ in range(_TRIES):
        port = chooser.randrange(_LOWEST + 2, _HIGHEST)
        if all(map(is_free, (port - 2, port, port + 1))):
            return port
    raise EmbeddedError(f"no ports are free for a broker between {_LOWEST} and {_HIGHEST}")
