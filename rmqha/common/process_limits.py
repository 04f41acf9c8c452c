"""How many maps and descriptors a process may have."""
import errno
import logging
import resource

log = logging.getLogger("RocketmqCommon")

MAX_MAP_COUNT_FILE = "/proc/sys/vm/max_map_count"
_DEFAULT_MAX_MAP_COUNT = 65_530
_SHARE = 2  # one of so many maps and descriptors is for the files of consume queues: a map costs one of each
_LEAST = 64
_SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EINTR)


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


def is_shortage(error: BaseException | None) -> bool:
    """Whether the system lacked descriptors, maps or memory at the moment, and may have them later."""
    return isinstance(error, OSError) and error.errno in _SHORTAGES


def how_to_raise(error: OSError) -> str:
    """What is lacking, and what raises it: the end of a log line, empty when nothing is known."""
    if error.errno == errno.EMFILE:
        limit, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        return f". This process may have {limit} files open: raise `ulimit -n` (LimitNOFILE= of systemd) and restart it"
    if error.errno == errno.ENFILE:
        return ". The system has as many files open as it may: raise `sysctl fs.file-max`"
    if error.errno == errno.ENOMEM:
        return ". The system lacks memory, or this process maps: give it memory, or raise `sysctl vm.max_map_count`"
    return ""
