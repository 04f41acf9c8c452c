"""Selectors for the ways on which each microsecond counts: a socket has bytes to be read, and nothing else happened."""
import math
import select
import selectors

_READ = selectors.EVENT_READ
_Ready = list[tuple[selectors.SelectorKey, int]]


class QuickEpollSelector(selectors.EpollSelector):
    """An EpollSelector that makes little of the commonest outcome."""

    _fd_to_key: dict[int, selectors.SelectorKey]  # the class above's own
    _selector: select.epoll

    def select(self, timeout: float | None = None) -> _Ready:
        """As the class above; a `timeout` (s) that is not above 0 does not wait."""
        descriptors = self._fd_to_key
        ready = self._selector.poll(timeout if timeout is None or timeout > 0 else 0, len(descriptors) or 1)
        if len(ready) == 1 and ready[0][1] == select.EPOLLIN and ready[0][0] in descriptors:
            return [(descriptors[ready[0][0]], _READ)]
        return [(descriptors[fd], _events(event) & descriptors[fd].events) for fd, event in ready if fd in descriptors]


class QuickPollSelector(selectors.PollSelector):
    """A PollSelector that makes little of the commonest outcome."""

    _fd_to_key: dict[int, selectors.SelectorKey]  # the class above's own
    _selector: "select.poll"  # a type for the checker: at run time it is a function

    def select(self, timeout: float | None = None) -> _Ready:
        """As the class above."""
        descriptors = self._fd_to_key
        ready = self._selector.poll(None if timeout is None else max(0, math.ceil(timeout * 1000)))
        if len(ready) == 1 and ready[0][1] == select.POLLIN:  # poll is told of what is registered, and of nothing else
            return [(descriptors[ready[0][0]], _READ)]
        return [(descriptors[fd], _events(event) & descriptors[fd].events) for fd, event in ready if fd in descriptors]


def _events(event: int) -> int:
    """EVENT_READ and EVENT_WRITE of what the system says; an error or a hang-up is both."""
    return (event & ~select.EPOLLIN and selectors.EVENT_WRITE) | (event & ~select.EPOLLOUT and selectors.EVENT_READ)
