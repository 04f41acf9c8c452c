"""How many maps and descriptors a process may have."""
import logging
import resource

log = logging.getLogger("RocketmqCommon")

MAX_MAP_COUNT_FILE = "/proc/sys/vm/max_map_count"
_DEFAULT_MAX_MAP_COUNT = 65_530
_SHARE = 2  # one of so many maps and descriptors is for the files of consume queues: a map costs one of each
_LEAST = 64


def max_mapped_files(descriptors: int | None = None) -> int:
    """Half of what this process may have, of maps or descriptors (`descriptors`: of those), whichever are fewer."""
    if descriptors is None:
        descriptors, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if descriptors == resource.RLIM_INFINITY:
        descriptors = max_map_count()
    return max(min(max_map_count(), descriptors) // _SHARE, _LEAST)


def max_map_count() -> int:
    """How many maps the system lets a process have."""
    try:
        with open(MAX_MAP_COUNT_FILE, encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError) as error:
        log.info("%s can't be read: %s", MAX_MAP_COUNT_FILE, error)
        return _DEFAULT_MAX_MAP_COUNT
