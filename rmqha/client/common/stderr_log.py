"""What the client logs, on the standard error, for those who do not set up logging themselves."""
import logging
import sys

from rmqha.client import LOGGER_NAMES

LINE_FORMAT = "%(asctime)s %(levelname)-7s %(name)s - %(message)s"


class _StderrHandler(logging.StreamHandler):  # type: ignore[type-arg]  # generic for type checkers only
    """The handler of `log_to_stderr`, known by its class."""


def log_to_stderr(level: int | str = logging.INFO) -> None:
    """Print what the client logs from `level` on; called again it changes the level.

        rmqha.log_to_stderr()             # connections, rebalancing, retries
        rmqha.log_to_stderr("WARNING")    # only what went wrong

    It concerns the loggers of this library alone. A program that sets up logging itself needs none of it:
    `logging.basicConfig(level=logging.INFO)` shows the same. ValueError for a level that does not exist.
    """
    for name in LOGGER_NAMES:
        logger = logging.getLogger(name)
        handler = next((old for old in logger.handlers if isinstance(old, _StderrHandler)), None)
        if handler is None:
            handler = _StderrHandler(sys.stderr)
            handler.setFormatter(logging.Formatter(LINE_FORMAT))
            logger.addHandler(handler)
            logger.propagate = False  # a root handler would print it again
        logger.setLevel(level)
