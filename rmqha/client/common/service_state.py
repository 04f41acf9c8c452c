"""How far a producer, a consumer or the instance below them has come."""
from enum import Enum


class ServiceState(Enum):
    """Made, running, shut down, or broken at its start."""

    CREATE_JUST = "CREATE_JUST"
    RUNNING = "RUNNING"
    SHUTDOWN_ALREADY = "SHUTDOWN_ALREADY"
    START_FAILED = "START_FAILED"
