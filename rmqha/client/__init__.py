"""A small typed client: producers and consumers."""
import logging

# A library is silent until somebody sets up logging; what goes wrong is raised or given to a callback anyway.
logging.getLogger("RocketmqClient").addHandler(logging.NullHandler())
