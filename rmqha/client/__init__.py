"""A small typed client: producers and consumers."""
import logging

from rmqha.common.constant import logger_name

# Those of the client and of what it stands on.
LOGGER_NAMES = (logger_name.CLIENT_LOGGER_NAME, "RocketmqRemoting", logger_name.COMMON_LOGGER_NAME)

# A library is silent until somebody sets up logging; what goes wrong is raised or given to a callback anyway.
for _name in LOGGER_NAMES:
    logging.getLogger(_name).addHandler(logging.NullHandler())
