"""What access control can say only of a record: who may use what lies at a commit log offset that a request names.

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

_DISPATCH_WAIT_NS = 3_000_000_000  # for the queue's unit of a record that was appended just now
_LOOK_AGAIN_S = 0.01


class RecordAccess:
    """Checks requests whose topic is known once their record is read. Does nothing while access control is off.

    A record counts only where its queue says that it begins: the bytes of a message may look like a record of another
    topic, and its lengths then lead over the messages behind it.
    """

    # Differs: all of this; the original gives each account the message at any offset
    def __init__(self, validator: "PlainAccessValidator | None", message_store_config: "MessageStoreConfig",
                 queues: "ConsumeQueueTable", reput: "ReputMessageService") -> None:
        self._validator = validator
        self._store_config = message_store_config
        self._queues = queues
        self._reput = reput
        self.is_on = validator is not None  # access control

    def check_reading(self, channel: "Channel", request: RemotingCommand, message: MessageExt, offset: int) -> None:
        """AclException unless who asks may read the record at `offset`, whose message is `message`. May wait."""
        if self._is_limited(channel, request):
            self._check_place(message, offset)
            self._check_topic(channel, request, message)

    def check_reading_bytes(self, channel: "Channel", request: RemotingCommand, record: memoryview,
                            offset: int) -> None:
        """The same for the bytes of a record."""
        if self._is_limited(channel, request):
            try:
                message = message_decoder.decode(record, False, False)
            except MessageDecodeError:
                raise AclException(f"No message begins at the offset {offset}") from None
            self._check_place(message, offset)
            self._check_topic(channel, request, message)

    def check_ending(self, channel: "Channel", request: RemotingCommand, message: MessageExt, offset: int) -> None:
        """AclException unless who asks may send the half message at `offset` to where it is meant to go. May wait."""
        if self._is_limited(channel, request):
            self._check_place(message, offset)
            topics = {message.get_property(message_const.PROPERTY_REAL_TOPIC) or message.topic}
            if message.topic not in common.INNER_TOPICS:
                topics.add(message.topic)
            self.check_topics(channel, request, topics, common.PUB)

    def keep_topic(self, channel: "Channel", request: RemotingCommand, result: QueryMessageResult, topic: str) -> None:
        """Take other topics' records out of what a query by key has found.

        The index knows hashes of topic and key: who chooses his key with care finds any message.
        """
        if self._is_limited(channel, request):
            result.keep(lambda record: message_decoder.decode(record, False, False).topic == topic)

    def check_topics(self, channel: "Channel", request: RemotingCommand, topics: Iterable[str],
                     perm: int = common.SUB) -> None:
        """AclException unless who asks may use all of these topics."""
        validator = self._validator
        if validator is not None:
            validator.validate_needs(request, parse_channel_remote_addr(channel),
                                     [topic_need(topic, perm) for topic in topics])

    def account_of(self, request: RemotingCommand) -> str | None:
        """The account that has signed a request, None without access control."""
        return (request.ext_fields or {}).get(ACCESS_KEY) if self.is_on else None

    def may_end(self, producer: ClientChannelInfo, topic: str) -> bool:
        """Whether a producer may be asked about, and so see, a half message that is meant for a topic."""
        validator = self._validator
        return validator is None or validator.may(producer.access_key, parse_channel_remote_addr(producer.channel),
                                                  [topic_need(topic, common.PUB)])

    def _is_limited(self, channel: "Channel", request: RemotingCommand) -> bool:
        """Whether what the request names makes a difference."""
        validator = self._validator
        return validator is not None and not validator.may_do_all(request, parse_channel_remote_addr(channel))

    def _check_topic(self, channel: "Channel", request: RemotingCommand, message: MessageExt) -> None:
        topic = message.topic
        if topic in common.INNER_TOPICS:  # what is delayed or half belongs to the topic that it is meant for
            topic = message.get_property(message_const.PROPERTY_REAL_TOPIC) or topic
        try:
            self.check_topics(channel, request, (topic,))
        except AclException:
            if not self._is_readable_elsewhere(channel, request, message):
                raise

    def _is_readable_elsewhere(self, channel: "Channel", request: RemotingCommand, message: MessageExt) -> bool:
        """Whether the record is in a further queue that may be read, as light queues are."""
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
        """AclException unless a unit of the message's queue says that it begins at `offset`."""
        deadline_ns = time.monotonic_ns() + _DISPATCH_WAIT_NS
        while not self._is_in_its_queue(message, offset):
            if not self._wait_for_dispatch(offset, deadline_ns):
                if self._is_in_its_queue(message, offset):  # the dispatch came between the two looks
                    return
                raise AclException(f"No message begins at the offset {offset}")

    def _is_in_its_queue(self, message: MessageExt, offset: int) -> bool:
        queue = self._queues.get_queue(message.topic, message.queue_id)
        unit = queue.get_unit(message.queue_offset) if queue is not None and message.queue_offset >= 0 else None
        return unit is not None and unit[:2] == (offset, message.store_size)

    def _wait_for_dispatch(self, offset: int, deadline_ns: int) -> bool:
        """Wait a moment for the dispatch of what lies at `offset`; False when it is done, or takes too long."""
        if self._reput.reput_from_offset > offset or time.monotonic_ns() > deadline_ns:
            return False
        dispatched = threading.Event()
        self._reput.call_when_dispatched(dispatched.set)
        dispatched.wait(_LOOK_AGAIN_S)
        return True

