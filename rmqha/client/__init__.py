"""A small typed client: producers and consumers."""
import logging

# The loggers of the client and of the packages that it is built on.
LOGGER_NAMES = ("RocketmqClient", "RocketmqRemoting", "RocketmqCommon")

# A library logs nothing until the program sets up logging. Errors are raised or passed to a callback in any case.
for _name in LOGGER_NAMES:
    logging.getLogger(_name).addHandler(logging.NullHandler())
