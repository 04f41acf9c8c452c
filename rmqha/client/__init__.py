"""A small typed client: producers and consumers."""
import logging

# Those of the client and of what it stands on.
LOGGER_NAMES = ("RocketmqClient", "RocketmqRemoting", "RocketmqCommon")

# A library is silent until somebody sets up logging; what goes wrong is raised or given to a callback anyway.
for _name in LOGGER_NAMES:
    logging.getLogger(_name).addHandler(logging.NullHandler())
