"""Handlers of admin requests about the broker itself: its configuration and its state."""
import logging
import os
import threading
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from rmqha.broker.processor.admin_handlers import AdminHandlers, Handler, success, system_error
from rmqha.broker.processor.admin_role_handlers import replication_times
from rmqha.common import filesystem, java, logs, mix_all
from rmqha.common.broker_config import BrokerConfig
from rmqha.common.configuration import ConfigError, Configuration, is_secret, refused_keys
from rmqha.common.java import PropertiesError, string_of
from rmqha.common.protocol import cluster_bodies, request_code, response_code
from rmqha.common.protocol.admin_headers import GetBrokerConfigResponseHeader, ViewBrokerStatsDataRequestHeader
from rmqha.common.protocol.cluster_bodies import ConfigFileReport
from rmqha.common.protocol.table_bodies import BrokerStatsData, BrokerStatsItem, KVTable
from rmqha.common.stats import StatsSnapshot
from rmqha.remoting.addresses import parse_channel_remote_addr
from rmqha.remoting.protocol import remoting_serializable
from rmqha.remoting.protocol.remoting_command import RemotingCommand

if TYPE_CHECKING:
    from rmqha.broker.broker_fast_failure import BrokerPools
    from rmqha.broker.broker_registration import BrokerRegistration
    from rmqha.remoting.channel import Channel
    from rmqha.store.broker_stats_manager import BrokerStats, BrokerStatsManager
    from rmqha.store.default_message_store import DefaultMessageStore

log = logging.getLogger("RocketmqBroker")


class AdminBrokerHandlers(AdminHandlers):
    """Handlers for the configuration, run-time information and statistics."""

    def __init__(self, configuration: Configuration, broker_config: BrokerConfig, registration: "BrokerRegistration",
                 store: "DefaultMessageStore", pools: "BrokerPools", stats: "BrokerStatsManager",
                 totals: "BrokerStats", config_file: "ConfigFile") -> None:
        self._configuration = configuration
        self._config_file = config_file
        self._config = broker_config
        self._registration = registration
        self._store = store
        self._pools = pools
        self._stats, self._totals = stats, totals
        self._lock = threading.Lock()  # one update of the configuration at a time

    def handlers(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {
            request_code.UPDATE_BROKER_CONFIG: self.update_broker_config,
            request_code.GET_BROKER_CONFIG: self.get_broker_config,
            request_code.GET_BROKER_RUNTIME_INFO: self.get_broker_runtime_info,
            request_code.VIEW_BROKER_STATS_DATA: self.view_broker_stats_data,
        }

    def update_broker_config(self, channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Set configuration keys of the running broker, and save them."""
        log.info("updateBrokerConfig called by %s", parse_channel_remote_addr(channel))
        if not request.body:
            return success()
        properties = mix_all.string2properties(bytes(request.body).decode("utf-8", "replace"))
        if properties is None:
            return system_error("string2Properties error")
        # Differs: UPDATE_BROKER_CONFIG can change no key of the black list, and no path, name, port, role or key that
        # is read only at the start; the original refuses only the black list. Both ignore unknown keys
        refused = refused_keys(properties, self._config.configBlackList.split(";"))
        if refused:
            log.warning("updateBrokerConfig, refused keys: %s client: %s", refused, parse_channel_remote_addr(channel))
            return RemotingCommand.create_response_command(response_code.NO_PERMISSION,
                                                           "Can not update config in black list.")
        log.info("updateBrokerConfig, new config: [%s] client: %s ", properties, parse_channel_remote_addr(channel))
        with self._lock:
            before = self._config_file.running(properties)
            try:
                self._configuration.update(properties)
            except ConfigError as failure:
                return system_error(str(failure))
            self._config_file.note_update(properties, before)
            if "logLevel" in properties:
                logs.set_level(self._config.logLevel)
            if "brokerPermission" in properties:
                self._registration.register_another_owner(check_order_config=False)
        return success()

    def get_broker_config(self, _channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Return all configuration keys except secrets; on request also those of the file."""
        configuration = self._configuration
        version = remoting_serializable.to_json(configuration.get_data_version())
        response = success(configuration.get_all_configs_format_string(), GetBrokerConfigResponseHeader(version))
        # Differs: a request for the configuration that has the field askConfigFile gets a field with the keys of the
        # config file, and with those that requests have changed; the original ignores such a field
        if cluster_bodies.ASK_CONFIG_FILE in (request.ext_fields or {}):
            with self._lock:
                report = self._config_file.report()
            response.add_ext_field(cluster_bodies.CONFIG_FILE, report.encode())
        return response

    def get_broker_runtime_info(self, _channel: "Channel", _request: RemotingCommand) -> RemotingCommand:
        """Return versions, totals, queue sizes and disk usage."""
        return success(KVTable(self.prepare_runtime_info()))

    def view_broker_stats_data(self, _channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Return the windows of one counter."""
        header = request.decode_command_custom_header(ViewBrokerStatsDataRequestHeader)
        item = self._stats.get_stats_item(header.statsName, header.statsKey)
        if item is None:
            return system_error(f"The stats <{string_of(header.statsName)}> <{string_of(header.statsKey)}> not exist")
        return success(BrokerStatsData(_stats_item(item.get_stats_data_in_minute()),
                                       _stats_item(item.get_stats_data_in_hour()),
                                       _stats_item(item.get_stats_data_in_day())))

    def prepare_runtime_info(self) -> dict[str, str]:
        """Return the table of GET_BROKER_RUNTIME_INFO."""
        store, config, pools, totals = self._store, self._config, self._pools, self._totals
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
            "sendThreadPoolQueueSize": pools.send_message_executor.queue_size(),
            "sendThreadPoolQueueCapacity": config.sendThreadPoolQueueCapacity,
            "pullThreadPoolQueueSize": pools.pull_message_executor.queue_size(),
            "pullThreadPoolQueueCapacity": config.pullThreadPoolQueueCapacity,
            "queryThreadPoolQueueSize": pools.query_message_executor.queue_size(),
            "queryThreadPoolQueueCapacity": config.queryThreadPoolQueueCapacity,
            "EndTransactionQueueSize": 0,
            "EndTransactionThreadPoolQueueCapacity": config.endTransactionPoolQueueCapacity,
            "dispatchBehindBytes": store.dispatch_behind_bytes(),
            "pageCacheLockTimeMills": store.lock_time_mills(),
            # Sends and pulls are served as they are read, without a queue.
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
        commit_log, store_config = self._store.commit_log, self._store.message_store_config
        if store_config.is_transient_store_pool_enable():
            info["remainHowManyDataToCommit"] = mix_all.human_readable_byte_count(
                commit_log.remain_how_many_data_to_commit(), False)
        info["remainHowManyDataToFlush"] = mix_all.human_readable_byte_count(
            commit_log.remain_how_many_data_to_flush(), False)
        root = store_config.storePathRootDir
        if os.path.isdir(root):
            disk = os.statvfs(root)
            total = mix_all.human_readable_byte_count(disk.f_blocks * disk.f_frsize, False)
            free = mix_all.human_readable_byte_count(disk.f_bavail * disk.f_frsize, False)
            info["commitLogDirCapacity"] = f"Total : {total}, Free : {free}."


class ConfigFile:
    """The config file, and how the running configuration came to differ from it.

        start --remember--> values in the file
        UPDATE_BROKER_CONFIG --note_update--> values at the start, values written
        GET_BROKER_CONFIG with askConfigFile --report--> ConfigFileReport

    The caller of each method but `remember` holds a lock.
    """

    def __init__(self, configuration: Configuration, is_read: bool) -> None:
        self._configuration = configuration
        self._is_read = is_read
        self._file_at_start: dict[str, str] = {}
        # The values that requests have written to the file since.
        self._written: dict[str, str] = {}
        self._at_start: dict[str, str] = {}  # values of the keys that requests have changed

    def remember(self) -> None:
        """Keep the values that the file has now, at the start."""
        self._file_at_start = self._read()[0]

    def running(self, keys: Iterable[str]) -> dict[str, str]:
        """Return the present values of those keys that a request for the configuration shows."""
        shown = java.loads(self._configuration.get_all_configs_format_string())
        return {key: shown[key] for key in keys if key in shown}

    def note_update(self, wanted: Iterable[str], before: Mapping[str, str]) -> None:
        """Remember which of these values an update has changed, and what the file has for the wanted keys now."""
        in_file = self._read()[0]
        for key in wanted:
            if key in in_file:
                self._written[key] = in_file[key]
        for key, value in self.running(before).items():
            if value == self._at_start.setdefault(key, before[key]):
                del self._at_start[key]

    def report(self) -> ConfigFileReport:
        """Return the report for a tool."""
        values, error = self._read()
        path = self._configuration.store_path or ""
        if error:
            return ConfigFileReport(path, self._is_read, error, changed=dict(self._at_start))
        keys = {*values, *self._file_at_start, *self._written}
        edited = sorted(key for key in keys if self._is_edited(key, values.get(key)))
        return ConfigFileReport(path, self._is_read, "", values, dict(self._at_start), edited)

    def _is_edited(self, key: str, value: str | None) -> bool:
        """Return whether a value in the file, or its absence, is neither that at the start nor a request's."""
        return value != self._file_at_start.get(key) and (key not in self._written or value != self._written[key])

    def _read(self) -> tuple[dict[str, str], str]:
        """Return the keys of the file except secrets, or why it can't be read."""
        path = self._configuration.store_path
        if path is None:
            return {}, "no file is configured"
        try:
            with open(filesystem.open_regular(path), "rb") as file:
                content = file.read(cluster_bodies.MAX_FILE_BYTES + 1)
            values = java.load(content)
        except OSError as failure:
            return {}, failure.strerror or str(failure)
        except PropertiesError as failure:
            return {}, str(failure)
        if len(content) > cluster_bodies.MAX_FILE_BYTES:
            return {}, f"it is longer than {cluster_bodies.MAX_FILE_BYTES} bytes"
        return {key: value for key, value in values.items() if not is_secret(key)}, ""


def _stats_item(snapshot: StatsSnapshot) -> BrokerStatsItem:
    return BrokerStatsItem(snapshot.sum, snapshot.tps, snapshot.avgpt)
