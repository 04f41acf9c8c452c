"""The handler of GET_MESSAGE_HEADS. Its work is in `browsing`, which is loaded with the first request."""
from typing import TYPE_CHECKING

from rmqha.broker.processor.admin_handlers import AdminHandlers, Handler, system_error
from rmqha.common.java import string_of
from rmqha.common.protocol import request_code, response_code
from rmqha.remoting.protocol.remoting_command import RemotingCommand

if TYPE_CHECKING:
    from rmqha.broker.topic_config_manager import TopicConfigManager
    from rmqha.remoting.channel import Channel
    from rmqha.store.commit_log import CommitLog
    from rmqha.store.consume_queue_table import ConsumeQueueTable


class AdminBrowseHandlers(AdminHandlers):
    """The handler for browsing. Master and slaves serve it."""

    def __init__(self, topics: "TopicConfigManager", queue_table: "ConsumeQueueTable",
                 commit_log: "CommitLog") -> None:
        self._topics = topics
        self._queue_table = queue_table
        self._commit_log = commit_log

    def handlers(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {request_code.GET_MESSAGE_HEADS: self.get_message_heads}

    def get_message_heads(self, _channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Return heads of messages of a queue, from an offset on.

        The permissions of topic and broker, which stop consumers, do not matter here, as in queries by key.
        """
        # Imported late: most brokers start without anyone browsing.
        from rmqha.broker.processor import browsing
        from rmqha.common.protocol.message_heads import GetMessageHeadsRequestHeader

        # Differs: 4.9 does not know GET_MESSAGE_HEADS, the request with which tools list messages without their bodies
        header = request.decode_command_custom_header(GetMessageHeadsRequestHeader)
        topic, queue_id = string_of(header.topic), header.queueId
        queue = self._queue_table.get_queue(topic, queue_id)
        if queue is None:
            config = self._topics.select_topic_config(topic)
            if config is None:
                return RemotingCommand.create_response_command(response_code.TOPIC_NOT_EXIST,
                                                               f"topic[{topic}] not exist")
            if queue_id >= max(config.readQueueNums, config.writeQueueNums):
                return system_error(f"queueId[{queue_id}] is illegal, topic:[{topic}] topicConfig.readQueueNums:"
                                    f"[{config.readQueueNums}] topicConfig.writeQueueNums:[{config.writeQueueNums}]")
        return browsing.browse(topic, header, queue, self._commit_log)
