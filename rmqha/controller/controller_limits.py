"""How much a controller takes: of a name, of one broker name, of one connection, of all."""
from rmqha.common.texts import too_long
from rmqha.remoting.exception import RemotingCommandException

MAX_BROKER_NAMES = 10_000  # those that were forgotten take a place, too
MAX_REPLICAS = 1000  # of one broker name; each is a part of all its documents
MAX_BROKERS_HEARD = 10_000
MAX_BROKERS_OF_CHANNEL = 1000  # that one connection tells of; a broker tells of itself


class ControllerLimitError(RemotingCommandException):
    """More than a controller takes; nothing was changed."""


# Differs: 5.1.4's controller takes any number of brokers and names of any length from whoever comes
def check_names(*names: str | None) -> None:
    """ControllerLimitError when one is too long."""
    problem = too_long(*names)
    if problem is not None:
        raise ControllerLimitError(problem)
