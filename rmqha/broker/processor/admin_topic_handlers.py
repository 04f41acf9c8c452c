"""Handlers of admin requests about topics."""
import logging
import threading
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from rmqha.broker.processor.admin_handlers import (
    NO_REMARK,
    AdminHandlers,
    Handler,
    refuse_on_slave,
    success,
    system_error,
    table_answer,
)
from rmqha.broker.topic_config_manager import MAX_QUEUE_NUMS, MAX_TOPICS
from rmqha.common import mix_all
from rmqha.common.protocol import request_code
from rmqha.common.protocol.admin_headers import (
    CreateTopicRequestHeader,
    DeleteTopicRequestHeader,
    GetAllTopicConfigResponseHeader,
)
from rmqha.common.protocol.table_bodies import TopicList
from rmqha.common.topics import TopicConfig
from rmqha.remoting.addresses import parse_channel_remote_addr
from rmqha.remoting.protocol import remoting_serializable
from rmqha.remoting.protocol.remoting_command import RemotingCommand

if TYPE_CHECKING:
    from rmqha.broker.broker_registration import BrokerRegistration
    from rmqha.broker.slave_synchronize import SlaveSynchronize
    from rmqha.broker.topic_config_manager import TopicConfigManager, TopicDeletion
    from rmqha.remoting.channel import Channel
    from rmqha.store.role import Role

log = logging.getLogger("RocketmqBroker")


class AdminTopicHandlers(AdminHandlers):
    """Handlers for topics: create, delete and list them, and clean up files."""

    def __init__(self, role: "Role", topics: "TopicConfigManager",
                 topic_deletion: "TopicDeletion", registration: "BrokerRegistration",
                 slave_synchronize: "SlaveSynchronize", delete_log_files: Callable[[], None]) -> None:
        self._role = role
        self._topics = topics
        self._topic_deletion = topic_deletion
        self._registration = registration
        self._slave_synchronize = slave_synchronize
        # Deletes expired log files, at any hour.
        self._delete_log_files = delete_log_files
        self._lock = threading.Lock()  # one creation or deletion at a time

    def handlers(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {
            request_code.UPDATE_AND_CREATE_TOPIC: self.update_and_create_topic,
            request_code.DELETE_TOPIC_IN_BROKER: self.delete_topic,
            request_code.GET_ALL_TOPIC_CONFIG: self.get_all_topic_config,
            request_code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: self.get_system_topic_list_from_broker,
            request_code.CLEAN_EXPIRED_CONSUMEQUEUE: self.clean_expired_consume_queue,
            request_code.CLEAN_UNUSED_TOPIC: self.clean_unused_topic,
            request_code.DELETE_EXPIRED_COMMITLOG: self.delete_expired_commit_log,
        }

    def update_and_create_topic(self, channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Create or change a topic, and register it at once."""
        refused = refuse_on_slave(self._role)
        if refused is not None:
            return refused
        header = request.decode_command_custom_header(CreateTopicRequestHeader)
        log.info("updateAndCreateTopic called by %s", parse_channel_remote_addr(channel))
        response = success()
        if not self._may_change(header.topic, response):
            return response
        if not (0 <= header.readQueueNums <= MAX_QUEUE_NUMS and 0 <= header.writeQueueNums <= MAX_QUEUE_NUMS):
            # Differs: a topic can't have a negative number of queues, with which each send fails, or more than 65536,
            # with which a request for the topic's offsets uses all memory; the original stores both
            return system_error(f"the numbers of queues are illegal, read: {header.readQueueNums} write: "
                                f"{header.writeQueueNums}")
        config = TopicConfig(header.topic, header.readQueueNums, header.writeQueueNums, header.perm,
                             header.topic_filter_type_enum, header.topicSysFlag or 0)
        topics = self._topics
        with self._lock:
            # Differs: a broker has at most 100,000 topics; the original has no limit
            if len(topics.topic_config_table) >= MAX_TOPICS and header.topic not in topics.topic_config_table:
                return system_error(f"there are {MAX_TOPICS} topics on this broker")
            topics.update_topic_config(config)
            self._registration.register_increment_broker_data(config)
        response.remark = NO_REMARK
        return response

    def delete_topic(self, channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Delete a topic and its queues."""
        refused = refuse_on_slave(self._role)
        if refused is not None:
            return refused
        header = request.decode_command_custom_header(DeleteTopicRequestHeader)
        log.info("deleteTopic called by %s", parse_channel_remote_addr(channel))
        response = success()
        if not self._may_change(header.topic, response):
            return response
        deletion = self._topic_deletion
        with self._lock:
            if mix_all.is_lmq(header.topic):
                deletion.delete_light_queue(header.topic)
            else:
                deletion.delete(header.topic)
        return response

    def get_all_topic_config(self, _channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Return all topics, and for slaves also the deleted ones."""
        manager = self._topics
        deleted = self._topic_deletion.marks()

        def encode(names: list[str] | None) -> str:
            wrapper = manager.build_topic_config_serialize_wrapper(names)
            wrapper.deletedTopics = deleted or None
            return remoting_serializable.to_json(wrapper)

        return table_answer(request, manager.changes, encode, GetAllTopicConfigResponseHeader(),
                            str(zlib.crc32(repr(sorted(deleted.items())).encode())))

    def get_system_topic_list_from_broker(self, _channel: "Channel", _request: RemotingCommand) -> RemotingCommand:
        """Return the topics that users may neither create nor delete."""
        return success(TopicList(self._topics.topic_validator.system_topic_set))

    def clean_expired_consume_queue(self, _channel: "Channel", _request: RemotingCommand) -> RemotingCommand:
        """Delete the queues without messages of topics that the broker does not know."""
        log.warning("invoke cleanExpiredConsumeQueue start.")
        self._topic_deletion.delete_expired()
        log.warning("invoke cleanExpiredConsumeQueue end.")
        return success()

    def clean_unused_topic(self, _channel: "Channel", _request: RemotingCommand) -> RemotingCommand:
        """Delete the queues of topics that the broker does not know."""
        log.warning("invoke cleanUnusedTopic start.")
        with self._lock:
            self._topic_deletion.delete_unused(self._slave_synchronize.take_topics)
        log.warning("invoke cleanUnusedTopic end.")
        return success()

    def delete_expired_commit_log(self, _channel: "Channel", _request: RemotingCommand) -> RemotingCommand:
        """Delete expired commit log files now."""
        log.warning("invoke deleteExpiredCommitLog start.")
        self._delete_log_files()
        log.warning("invoke deleteExpiredCommitLog end.")
        return success()

    def _may_change(self, topic: str, response: RemotingCommand) -> bool:
        validator = self._topics.topic_validator
        return validator.validate_topic(topic, response) and not validator.is_system_topic(topic, response)
