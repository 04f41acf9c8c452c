"""Topics and groups that belong to one test: their names contain the test's name, and no other test has them."""
from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from rmqha.testing.cluster_parts import EmbeddedError

if TYPE_CHECKING:
    from rmqha.common.message.message import MessageExt
    from rmqha.testing.cluster_admin import Cluster

_ILLEGAL = re.compile(r"[^a-zA-Z0-9_-]+")
_OF_TEST = 60  # characters of the test's name in a topic
_MOST = 120  # characters; the topic of a group's dead letters is longer by 5, and a topic has at most 127
_GROUP = "group"


def readable_name(test: str) -> str:
    """Return the part of a topic's or group's name that says to which test it belongs."""
    return _ILLEGAL.sub("-", test).strip("-")[:_OF_TEST] or "test"


class IsolatedTopic(str):
    """The name of a topic that only one test uses. It is a str, so clients take it as it is.

    `mq` is its cluster. `group` and `topic` return more names, which are deleted with it.
    """

    __slots__ = ("_groups", "_topics", "mq")

    mq: Cluster
    _groups: set[str]
    _topics: list[IsolatedTopic]

    @classmethod
    def create(cls, mq: Cluster, test: str, queues: int = 4) -> IsolatedTopic:
        """Create a topic for the test with this name."""
        return cls._created(mq, f"{readable_name(test)}-{os.urandom(4).hex()}", queues)

    @classmethod
    def _created(cls, mq: Cluster, name: str, queues: int) -> IsolatedTopic:
        if len(name) > _MOST:
            raise EmbeddedError(f"the name {name} is longer than {_MOST} characters")
        topic = cls(name)
        topic.mq, topic._groups, topic._topics = mq, set(), []
        mq.create_topic(name, queues)
        return topic

    def group(self, name: str = _GROUP) -> str:
        """Return the name of a producer or consumer group that only this test uses; the same one for the same `name`.

        It is deleted with the topic.
        """
        group = f"{self}-{name}"
        if len(group) > _MOST:
            raise EmbeddedError(f"the name {group} is longer than {_MOST} characters")
        self._groups.add(group)
        return group

    def topic(self, name: str, queues: int = 4) -> IsolatedTopic:
        """Create another topic of this test, which is deleted with this one."""
        topic = self._created(self.mq, f"{self}-{name}", queues)
        self._topics.append(topic)
        return topic

    def messages(self) -> list[MessageExt]:
        """Return all messages of the topic, by broker, queue and offset, as a consumer gets them."""
        return self.mq.messages(self)

    def delete(self) -> None:
        """Delete the topic, its other topics and its groups, on all brokers that are running."""
        if not getattr(self.mq, "is_running", True):  # the test has ended the process of its servers
            return
        for topic in (self, *self._topics):
            self.mq.delete_topic(str(topic))
        for group in {group for topic in (self, *self._topics) for group in topic._groups}:
            self.mq.delete_group(group)
