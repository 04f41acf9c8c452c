"""Access control for requests that name a commit log offset: only the record at the offset shows which topic is used.

    the processor's thread, when access control is on: record -> its topic -> the account's permission
"""
import threading
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from rmqha.acl import common
from rmqha.acl.common import ACCESS_KEY, AclException, further_queues, topic_need
from rmqha.broker.client.client_channels import ClientChannelInfo
from rmqha.common.message import message_const, message_decoder
from rmqha.common.message.message import MessageExt
from rmqha.common.message.message_layout import MessageDecodeError
from rmqha.remoting.addresses import parse_channel_remote_addr
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.store.results import QueryMessageResult

if TYPE_CHECKING:
    from rmqha.acl.plain_access_validator import PlainAccessValidator
    from rmqha.remoting.channel import Channel
    from rmqha.store.consume_queue_table import ConsumeQueueTable
    from rmqha.store.message_store_config import MessageStoreConfig
    from rmqha.store.reput_message_service import ReputMessageService

# How long to wait for the queue unit of a record that was just appended.
_DISPATCH_WAIT_NS = 3_000_000_000
_LOOK_AGAIN_S = 0.01


class RecordAccess:
    """Checks requests whose topic is known only after their record is read. Does nothing while access control is off.

    A record is accepted only at an offset where its queue says that a record begins. The body of a message may contain
    bytes that look like a record of another topic; its length fields could also cover the messages that follow.
    """

    # Differs: with access control on, reading a record by its offset needs the permission for its topic; in the
    # original each account may read the message at any offset
    def __init__(self, validator: "PlainAccessValidator | None", message_store_config: "MessageStoreConfig",
                 queues: "ConsumeQueueTable", reput: "ReputMessageService") -> None:
        self._validator = validator
        self._store_config = message_store_config
        self._queues = queues
        self._reput = reput
        self.is_on = validator is not None  # access control

    def check_reading(self, channel: "Channel", request: RemotingCommand, message: MessageExt, offset: int) -> None:
        """Check that the requester may read the record at `offset`, which holds `message`. May wait.

        Raises AclException.
        """
        if self._is_limited(channel, request):
            self._check_place(message, offset)
            self._check_topic(channel, request, message)

    def check_reading_bytes(self, channel: "Channel", request: RemotingCommand, record: memoryview,
                            offset: int) -> None:
        """Check the same for the bytes of a record."""
        if self._is_limited(channel, request):
            try:
                message = message_decoder.decode(record, False, False)
            except MessageDecodeError:
                raise AclException(f"No message begins at the offset {offset}") from None
            self._check_place(message, offset)
            self._check_topic(channel, request, message)

    def check_ending(self, channel: "Channel", request: RemotingCommand, message: MessageExt, offset: int) -> None:
        """Check that the requester may send the half message at `offset` to its real topic. May wait.

        Raises AclException.
        """
        if self._is_limited(channel, request):
            self._check_place(message, offset)
            topics = {message.get_property(message_const.PROPERTY_REAL_TOPIC) or message.topic}
            if message.topic not in common.INNER_TOPICS:
                topics.add(message.topic)
            self.check_topics(channel, request, topics, common.PUB)

    def keep_topic(self, channel: "Channel", request: RemotingCommand, result: QueryMessageResult, topic: str) -> None:
        """Remove the records of other topics from the result of a query by key.

        The index stores hashes of topic and key, so a carefully chosen key can match a message of any topic.
        """
        if self._is_limited(channel, request):
            result.keep(lambda record: message_decoder.decode(record, False, False).topic == topic)

    def check_topics(self, channel: "Channel", request: RemotingCommand, topics: Iterable[str],
                     perm: int = common.SUB) -> None:
        """Check that the requester may use all of these topics. Raises AclException."""
        validator = self._validator
        if validator is not None:
            validator.validate_needs(request, parse_channel_remote_addr(channel),
                                     [topic_need(topic, perm) for topic in topics])

    def account_of(self, request: RemotingCommand) -> str | None:
        """Return the account that signed a request; None without access control."""
        return (request.ext_fields or {}).get(ACCESS_KEY) if self.is_on else None

    def may_end(self, producer: ClientChannelInfo, topic: str) -> bool:
        """Return whether a transaction check for a half message of this topic may be sent to a producer: the check
        contains the message."""
        validator = self._validator
        return validator is None or validator.may(producer.access_key, parse_channel_remote_addr(producer.channel),
                                                  [topic_need(topic, common.PUB)])

    def _is_limited(self, channel: "Channel", request: RemotingCommand) -> bool:
        """Return whether the requester's permissions are limited, so that the record has to be checked."""
        validator = self._validator
        return validator is not None and not validator.may_do_all(request, parse_channel_remote_addr(channel))

    def _check_topic(self, channel: "Channel", request: RemotingCommand, message: MessageExt) -> None:
        topic = message.topic
        # A delayed or half message belongs to the topic that it will be delivered to.
        if topic in common.INNER_TOPICS:
            topic = message.get_property(message_const.PROPERTY_REAL_TOPIC) or topic
        try:
            self.check_topics(channel, request, (topic,))
        except AclException:
            if not self._is_readable_elsewhere(channel, request, message):
                raise

    def _is_readable_elsewhere(self, channel: "Channel", request: RemotingCommand, message: MessageExt) -> bool:
        """Return whether the record is also in another queue that the requester may read, such as a light queue."""
        if not self._store_config.enableMultiDispatch:
            return False
        text = message.get_property(message_const.PROPERTY_INNER_MULTI_DISPATCH)
        properties = {message_const.PROPERTY_INNER_MULTI_DISPATCH: text} if text else {}
        for queue in further_queues(message_decoder.message_properties2string(properties)):
            try:
                self.check_topics(channel, request, (queue,))
                return True
            except AclException:
                continue
        return False

    def _check_place(self, message: MessageExt, offset: int) -> None:
        """Check that a unit of the message's queue points to `offset`. Raises AclException."""
        deadline_ns = time.monotonic_ns() + _DISPATCH_WAIT_NS
        while not self._is_in_its_queue(message, offset):
            if not self._wait_for_dispatch(offset, deadline_ns):
                # The unit may have been dispatched between the two checks.
                if self._is_in_its_queue(message, offset):
                    return
                raise AclException(f"No message begins at the offset {offset}")

    def _is_in_its_queue(self, message: MessageExt, offset: int) -> bool:
        queue = self._queues.get_queue(message.topic, message.queue_id)
        unit = queue.get_unit(message.queue_offset) if queue is not None and message.queue_offset >= 0 else None
        return unit is not None and unit[:2] == (offset, message.store_size)

    def _wait_for_dispatch(self, offset: int, deadline_ns: int) -> bool:
        """Wait a moment for the dispatch of `offset`; return False when it is done or takes too long."""
        if self._reput.reput_from_offset > offset or time.monotonic_ns() > deadline_ns:
            return False
        dispatched = threading.Event()
        self._reput.call_when_dispatched(dispatched.set)
        dispatched.wait(_LOOK_AGAIN_S)
        return True

