"""What each name server is told of the topics: everything, or what has changed since it was told last."""
from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import NamedTuple

from rmqha.common.data_version import ChangeLog
from rmqha.common.protocol.table_bodies import TopicConfigSerializeWrapper

Topics = Callable[[Iterable[str] | None], TopicConfigSerializeWrapper]


class Part(NamedTuple):
    """What one name server is told."""

    wrapper: TopicConfigSerializeWrapper
    since: str = ""  # the state that these topics complete, "": they are all, or one alone
    now: str = ""  # the state after that
    alone: str = ""  # the topic that an administrator has made or changed, "": they are not registered for one


class Registration:
    """One registration with all name servers: `part` for each of them. For any thread.

    `topics` gives the topics of these names as they are registered, all for None. `alone` is the topic that an
    administrator has made or changed: a name server of the original gets no other one then.
    """

    def __init__(self, changes: ChangeLog, topics: Topics, alone: str | None = None) -> None:
        self._now = changes.mark()  # first: what changes from here on is told with the next one
        self._changes = changes
        self._topics = topics
        self._alone = alone

    def part(self, told: str) -> Part:
        """For a name server that has the state `told`, "" for one of which that is not known."""
        changed = self._changes.since(told)
        if changed is None and self._alone is not None:
            # what the original does; one of ours has the state before, or says that it lacks it
            told = self._changes.before(self._alone)
            changed = [self._alone, *(self._changes.since(told) or ())]
        return self.everything() if changed is None else Part(self._topics(changed), told, self._now,
                                                              self._alone or "")

    def everything(self, as_another_version: bool = False) -> Part:
        """For a name server that lacks the state before.

        `as_another_version` for one of the original that has taken some topics in the place of all: it takes others
        of another version only. With the next registration it gets the right one.
        """
        wrapper = self._topics(None)
        if as_another_version and wrapper.dataVersion is not None:
            wrapper.dataVersion.counter -= 1  # it is a copy
        return Part(wrapper, "", self._now, self._alone or "")


class ToldStates:
    """Which state of the topics each name server of ours has said that it has, by its address. For any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._states: dict[str, str] = {}

    def of(self, namesrv_addr: str) -> str:
        """The state, "" when none is known."""
        with self._lock:
            return self._states.get(namesrv_addr, "")

    def note(self, namesrv_addr: str, state: str) -> None:
        """It has this state now; "": it tells none."""
        with self._lock:
            if state:
                self._states[namesrv_addr] = state
            else:
                self._states.pop(namesrv_addr, None)
