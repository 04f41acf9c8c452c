"""Admin requests about the broker itself, its clients, and the locks of orderly consumers."""
import logging
import os
import threading
from typing import TYPE_CHECKING

from rmqha.acl.common import ACCESS_KEY, SECURITY_TOKEN, SIGNATURE
from rmqha.broker.processor.admin_handlers import AdminHandlers, Handler, decode_body, success, system_error
from rmqha.broker.processor.admin_role_handlers import replication_times
from rmqha.common import java, logs, mix_all
from rmqha.common.configuration import ConfigError, refused_keys
from rmqha.common.java import string_of
from rmqha.common.message import message_decoder
from rmqha.common.protocol import request_code, response_code
from rmqha.common.protocol.admin_headers import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetBrokerConfigResponseHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
    ResetOffsetRequestHeader,
    ViewBrokerStatsDataRequestHeader,
)
from rmqha.common.protocol.client_bodies import LockBatchRequestBody, LockBatchResponseBody, UnlockBatchRequestBody
from rmqha.common.protocol.table_bodies import BrokerStatsData, BrokerStatsItem, KVTable
from rmqha.common.stats import StatsSnapshot
from rmqha.remoting.addresses import exception_simple_desc, parse_channel_remote_addr
from rmqha.remoting.exception import RemotingException, RemotingTimeoutException
from rmqha.remoting.protocol import remoting_serializable
from rmqha.remoting.protocol.header_codec import LanguageCode
from rmqha.remoting.protocol.remoting_command import RemotingCommand

if TYPE_CHECKING:
    from rmqha.broker.broker_controller import BrokerController
    from rmqha.remoting.channel import Channel

log = logging.getLogger("RocketmqBroker")

_V3_1_8_SNAPSHOT = java.Version["V3_1_8_SNAPSHOT"]
_CREDENTIALS = (ACCESS_KEY, SECURITY_TOKEN, SIGNATURE)


class AdminBrokerHandlers(AdminHandlers):
    """Configuration, run-time information, statistics, locks, and calls that go on to clients."""

    def __init__(self, broker_controller: "BrokerController") -> None:
        super().__init__(broker_controller)
        self._lock = threading.Lock()  # one update of the configuration at a time

    def handlers(self) -> dict[int, Handler]:
        """Handler by request code."""
        return {
            request_code.UPDATE_BROKER_CONFIG: self.update_broker_config,
            request_code.GET_BROKER_CONFIG: self.get_broker_config,
            request_code.GET_BROKER_RUNTIME_INFO: self.get_broker_runtime_info,
            request_code.VIEW_BROKER_STATS_DATA: self.view_broker_stats_data,
            request_code.LOCK_BATCH_MQ: self.lock_batch_mq,
            request_code.UNLOCK_BATCH_MQ: self.unlock_batch_mq,
            request_code.INVOKE_BROKER_TO_RESET_OFFSET: self.reset_offset,
            request_code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: self.get_consumer_status,
            request_code.GET_CONSUMER_RUNNING_INFO: self.get_consumer_running_info,
            request_code.CONSUME_MESSAGE_DIRECTLY: self.consume_message_directly,
        }

    def update_broker_config(self, channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Set config keys of the running broker and save them."""
        log.info("updateBrokerConfig called by %s", parse_channel_remote_addr(channel))
        if not request.body:
            return success()
        properties = mix_all.string2properties(bytes(request.body).decode("utf-8", "replace"))
        if properties is None:
            return system_error("string2Properties error")
        # Differs: beside the black list, paths, names, ports, roles and what is read at the start can't be changed;
        # keys that nobody knows change nothing, as in the original
        refused = refused_keys(properties, self.broker_controller.broker_config.configBlackList.split(";"))
        if refused:
            log.warning("updateBrokerConfig, refused keys: %s client: %s", refused, parse_channel_remote_addr(channel))
            return RemotingCommand.create_response_command(response_code.NO_PERMISSION,
                                                           "Can not update config in black list.")
        log.info("updateBrokerConfig, new config: [%s] client: %s ", properties, parse_channel_remote_addr(channel))
        controller = self.broker_controller
        with self._lock:
            try:
                controller.configuration.update(properties)
            except ConfigError as failure:
                return system_error(str(failure))
            if "logLevel" in properties:
                logs.set_level(controller.broker_config.logLevel)
            if "brokerPermission" in properties:
                controller.topic_config_manager.note_another_owner()
                controller.register_broker_all(False, False, True)
        return success()

    def get_broker_config(self, _channel: "Channel", _request: RemotingCommand) -> RemotingCommand:
        """All config keys but secrets."""
        configuration = self.broker_controller.configuration
        version = remoting_serializable.to_json(configuration.get_data_version())
        return success(configuration.get_all_configs_format_string(), GetBrokerConfigResponseHeader(version))

    def get_broker_runtime_info(self, _channel: "Channel", _request: RemotingCommand) -> RemotingCommand:
        """Versions, totals, queues, disk."""
        return success(KVTable(self.prepare_runtime_info()))

    def view_broker_stats_data(self, _channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """The windows of one counter."""
        header = request.decode_command_custom_header(ViewBrokerStatsDataRequestHeader)
        item = self.broker_controller.broker_stats_manager.get_stats_item(header.statsName, header.statsKey)
        if item is None:
            return system_error(f"The stats <{string_of(header.statsName)}> <{string_of(header.statsKey)}> not exist")
        return success(BrokerStatsData(_stats_item(item.get_stats_data_in_minute()),
                                       _stats_item(item.get_stats_data_in_hour()),
                                       _stats_item(item.get_stats_data_in_day())))

    def lock_batch_mq(self, channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Lock queues for a client."""
        body = decode_body(request, LockBatchRequestBody)
        group = body.consumerGroup
        if group is None:
            return system_error("the request has no consumerGroup") if body.mqSet else success(LockBatchResponseBody())
        host = parse_channel_remote_addr(channel).rpartition(":")[0]
        locked = self.broker_controller.rebalance_lock_manager.try_lock_batch(group, body.mqSet, body.clientId, host)
        return success(LockBatchResponseBody(locked))

    def unlock_batch_mq(self, _channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Unlock queues of a client."""
        body = decode_body(request, UnlockBatchRequestBody)
        if body.consumerGroup is None:
            return system_error("the request has no consumerGroup")
        self.broker_controller.rebalance_lock_manager.unlock_batch(body.consumerGroup, body.mqSet, body.clientId)
        return success()

    def reset_offset(self, channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Set a group's offsets through its consumers."""
        header = request.decode_command_custom_header(ResetOffsetRequestHeader)
        log.info("[reset-offset] reset offset started by %s. topic=%s, group=%s, timestamp=%s, isForce=%s",
                 parse_channel_remote_addr(channel), header.topic, header.group, header.timestamp, header.isForce)
        return self.broker_controller.broker2_client.reset_offset(
            header.topic, string_of(header.group), header.timestamp, header.isForce,
            request.language is LanguageCode.CPP)

    def get_consumer_status(self, channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """A group's offsets as its consumers see them."""
        header = request.decode_command_custom_header(GetConsumerStatusRequestHeader)
        log.info("[get-consumer-status] get consumer status by %s. topic=%s, group=%s",
                 parse_channel_remote_addr(channel), header.topic, header.group)
        return self.broker_controller.broker2_client.get_consume_status(header.topic, header.group, header.clientAddr)

    def get_consumer_running_info(self, _channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """What a consumer does now; asked of the consumer."""
        header = request.decode_command_custom_header(GetConsumerRunningInfoRequestHeader)
        return self._call_consumer(request, request.ext_fields, request.body, header.consumerGroup, header.clientId)

    def consume_message_directly(self, channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Let a consumer consume one message."""
        header = request.decode_command_custom_header(ConsumeMessageDirectlyResultRequestHeader)
        # Differs: a malformed message id, or that of no message, is an error answer, not a NullPointerException
        if header.msgId is None:
            return system_error("the message id is missing")
        try:
            offset = message_decoder.decode_message_id(header.msgId).offset
        except ValueError as failure:
            return system_error(str(failure))
        result = self.broker_controller.message_store.select_one_message_by_offset(offset)
        if result is None:
            return system_error(f"can not find message by the offset, {offset}")
        with result:
            self.broker_controller.record_access.check_reading_bytes(channel, request, result.buffer, offset)
            body = bytes(result.buffer)
        fields = {**(request.ext_fields or {}), "brokerName": self.broker_controller.broker_config.brokerName}
        return self._call_consumer(request, fields, body, header.consumerGroup, header.clientId)

    def prepare_runtime_info(self) -> dict[str, str]:
        """The table of GET_BROKER_RUNTIME_INFO."""
        controller = self.broker_controller
        store, config, totals = controller.message_store, controller.broker_config, controller.broker_stats
        info: dict[str, object] = {**store.get_runtime_info(), **replication_times(store)}
        info |= {
            "brokerVersionDesc": java.get_version_desc(java.CURRENT_VERSION),
            "brokerVersion": java.CURRENT_VERSION,
            "msgPutTotalYesterdayMorning": totals.msg_put_total_yesterday_morning,
            "msgPutTotalTodayMorning": totals.msg_put_total_today_morning,
            "msgPutTotalTodayNow": totals.msg_put_total_today_now,
            "msgGetTotalYesterdayMorning": totals.msg_get_total_yesterday_morning,
            "msgGetTotalTodayMorning": totals.msg_get_total_today_morning,
            "msgGetTotalTodayNow": totals.msg_get_total_today_now,
            "sendThreadPoolQueueSize": controller.send_message_executor.queue_size(),
            "sendThreadPoolQueueCapacity": config.sendThreadPoolQueueCapacity,
            "pullThreadPoolQueueSize": controller.pull_message_executor.queue_size(),
            "pullThreadPoolQueueCapacity": config.pullThreadPoolQueueCapacity,
            "queryThreadPoolQueueSize": controller.query_message_executor.queue_size(),
            "queryThreadPoolQueueCapacity": config.queryThreadPoolQueueCapacity,
            "EndTransactionQueueSize": 0,
            "EndTransactionThreadPoolQueueCapacity": config.endTransactionPoolQueueCapacity,
            "dispatchBehindBytes": store.dispatch_behind_bytes(),
            "pageCacheLockTimeMills": store.lock_time_mills(),
            # Sends and pulls are served as they are read; there is no queue whose head could wait.
            "sendThreadPoolQueueHeadWaitTimeMills": 0,
            "pullThreadPoolQueueHeadWaitTimeMills": 0,
            "queryThreadPoolQueueHeadWaitTimeMills": 0,
            "earliestMessageTimeStamp": store.get_earliest_message_time(),
            "startAcceptSendRequestTimeStamp": config.startAcceptSendRequestTimeStamp,
            "remainTransientStoreBufferNumbs": store.remain_transient_store_buffer_numbs(),
        }
        self._add_sizes(info)
        return {key: str(value) for key, value in info.items()}

    def _add_sizes(self, info: dict[str, object]) -> None:
        controller = self.broker_controller
        commit_log = controller.message_store.commit_log
        if controller.message_store_config.is_transient_store_pool_enable():
            info["remainHowManyDataToCommit"] = mix_all.human_readable_byte_count(
                commit_log.remain_how_many_data_to_commit(), False)
        info["remainHowManyDataToFlush"] = mix_all.human_readable_byte_count(
            commit_log.remain_how_many_data_to_flush(), False)
        root = controller.message_store_config.storePathRootDir
        if os.path.isdir(root):
            disk = os.statvfs(root)
            total = mix_all.human_readable_byte_count(disk.f_blocks * disk.f_frsize, False)
            free = mix_all.human_readable_byte_count(disk.f_bavail * disk.f_frsize, False)
            info["commitLogDirCapacity"] = f"Total : {total}, Free : {free}."

    def _call_consumer(self, request: RemotingCommand, ext_fields: dict[str, str] | None,
                       body: bytes | memoryview | None, group: str, client_id: str | None) -> RemotingCommand:
        client = self.broker_controller.consumer_manager.find_channel(group, client_id) if client_id else None
        if client is None:
            return system_error(f"The Consumer <{group}> <{string_of(client_id)}> not online")
        if client.version < _V3_1_8_SNAPSHOT:
            return system_error(f"The Consumer <{client_id}> Version <{java.get_version_desc(client.version)}> "
                                "too low to finish, please upgrade it to V3_1_8_SNAPSHOT")
        call = RemotingCommand.create_request_command(request.code)
        # Differs: who asks keeps his signature to himself; with the original the consumer gets it, and may send in his
        # name whatever has the signed fields' texts, one behind the other, as its own
        call.ext_fields = {name: text for name, text in (ext_fields or {}).items() if name not in _CREDENTIALS}
        call.body = body
        try:
            return self.broker_controller.broker2_client.call_client(client.channel, call)
        except RemotingTimeoutException as failure:
            return RemotingCommand.create_response_command(
                response_code.CONSUME_MSG_TIMEOUT,
                f"consumer <{group}> <{client_id}> Timeout: {exception_simple_desc(failure)}")
        except RemotingException as failure:
            return system_error(f"invoke consumer <{group}> <{client_id}> Exception: "
                                f"{exception_simple_desc(failure)}")


def _stats_item(snapshot: StatsSnapshot) -> BrokerStatsItem:
    return BrokerStatsItem(snapshot.sum, snapshot.tps, snapshot.avgpt)
