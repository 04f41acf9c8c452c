"""The processor of a name server's requests.

    RemotingExecutorThread_<n> --process_request--> RouteInfoManager, KVConfigManager, Configuration

The name server of a test environment gets the routes that it lacks from the production environment.
"""
import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from rmqha.common import logs, mix_all, util_all
from rmqha.common.configuration import FIXED_KEYS, ConfigError, Configuration, refused_keys
from rmqha.common.data_version import DataVersion
from rmqha.common.java import Version, string_of, value2version
from rmqha.common.namesrv_config import NamesrvConfig
from rmqha.common.protocol import cluster_bodies, namespace_util, request_code, response_code, table_version
from rmqha.common.protocol.admin_headers import GetTopicsByClusterRequestHeader
from rmqha.common.protocol.cluster_bodies import RegisterBrokerBody
from rmqha.common.protocol.command_custom_header import CommandCustomHeader
from rmqha.common.protocol.namespace_util import NAMESPACE_ORDER_TOPIC_CONFIG
from rmqha.common.protocol.namesrv_headers import (
    AddWritePermOfBrokerRequestHeader,
    AddWritePermOfBrokerResponseHeader,
    DeleteKVConfigRequestHeader,
    DeleteTopicFromNamesrvRequestHeader,
    GetKVConfigRequestHeader,
    GetKVConfigResponseHeader,
    GetKVListByNamespaceRequestHeader,
    GetRouteInfoRequestHeader,
    PutKVConfigRequestHeader,
    QueryDataVersionRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    UnRegisterBrokerRequestHeader,
    WipeWritePermOfBrokerRequestHeader,
    WipeWritePermOfBrokerResponseHeader,
)
from rmqha.common.protocol.table_bodies import TopicConfigSerializeWrapper, TopicList
from rmqha.common.protocol.topic_route_data import TopicRouteData
from rmqha.common.top_addressing import TopAddressing
from rmqha.namesrv.route_info_manager import BrokerRegistration, RegistrationGap
from rmqha.remoting.addresses import parse_channel_remote_addr
from rmqha.remoting.exception import RemotingCommandException, RemotingException
from rmqha.remoting.protocol import fastjson, remoting_serializable
from rmqha.remoting.protocol.fastjson import FastjsonError
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.remoting.remoting_client import RemotingClient
from rmqha.remoting.remoting_config import RemotingClientConfig
from rmqha.remoting.tls_system_config import use_tls

if TYPE_CHECKING:
    from rmqha.namesrv.kv_config_manager import KVConfigManager
    from rmqha.namesrv.route_info_manager import RouteInfoManager
    from rmqha.remoting.channel import Channel


log = logging.getLogger("RocketmqNamesrv")

_V3_0_11, _V4_9_4 = Version["V3_0_11"], Version["V4_9_4"]
_MOST_DIGITS = 18  # of an epoch

_Handler = Callable[["Channel", RemotingCommand], RemotingCommand]


class DefaultRequestProcessor:
    """Serves all request codes of a name server; an unknown code gets no response, as in 4.9.8.

    Errors are raised; the server responds with SYSTEM_ERROR and their text.

    Java: org.apache.rocketmq.namesrv.processor.DefaultRequestProcessor (4.9.8)
    """

    def __init__(self, namesrv_config: NamesrvConfig, configuration: Configuration,
                 kv_config_manager: "KVConfigManager", route_info_manager: "RouteInfoManager") -> None:
        self._config, self._configuration = namesrv_config, configuration
        self._kv = kv_config_manager
        self._routes = route_info_manager
        configured = namesrv_config.configBlackList.split(";")
        self.config_black_list = FIXED_KEYS.union(configured)
        self._handlers: dict[int, _Handler] = {
            request_code.PUT_KV_CONFIG: self.put_kv_config,
            request_code.GET_KV_CONFIG: self.get_kv_config,
            request_code.DELETE_KV_CONFIG: self.delete_kv_config,
            request_code.QUERY_DATA_VERSION: self.query_broker_topic_config,
            request_code.REGISTER_BROKER: self.register_broker,
            request_code.UNREGISTER_BROKER: self.unregister_broker,
            request_code.GET_ROUTEINFO_BY_TOPIC: self.get_route_info_by_topic,
            request_code.GET_BROKER_CLUSTER_INFO: self.get_broker_cluster_info,
            request_code.WIPE_WRITE_PERM_OF_BROKER: self.wipe_write_perm_of_broker,
            request_code.ADD_WRITE_PERM_OF_BROKER: self.add_write_perm_of_broker,
            request_code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self.get_all_topic_list_from_nameserver,
            request_code.DELETE_TOPIC_IN_NAMESRV: self.delete_topic_in_namesrv,
            request_code.GET_KVLIST_BY_NAMESPACE: self.get_kv_list_by_namespace,
            request_code.GET_TOPICS_BY_CLUSTER: self.get_topics_by_cluster,
            request_code.GET_SYSTEM_TOPIC_LIST_FROM_NS: self.get_system_topic_list_from_ns,
            request_code.GET_UNIT_TOPIC_LIST: self.get_unit_topic_list,
            request_code.GET_HAS_UNIT_SUB_TOPIC_LIST: self.get_has_unit_sub_topic_list,
            request_code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: self.get_has_unit_sub_un_unit_topic_list,
            request_code.UPDATE_NAMESRV_CONFIG: self.update_config,
            request_code.GET_NAMESRV_CONFIG: self.get_config,
        }

    def process_request(self, channel: "Channel", request: RemotingCommand) -> RemotingCommand | None:
        """Return the response; None for an unknown code."""
        log.debug("receive request, %s %s %s", request.code, parse_channel_remote_addr(channel), request)
        handler = self._handlers.get(request.code)
        return None if handler is None else handler(channel, request)

    def reject_request(self) -> bool:
        """Return False: requests are never rejected."""
        return False

    def put_kv_config(self, channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Handle PUT_KV_CONFIG."""
        fields = request.ext_fields or {}
        if fields.get("namespace") is None or fields.get("key") is None:
            return _failure(response_code.SYSTEM_ERROR, "namespace or key is null")
        header = request.decode_command_custom_header(PutKVConfigRequestHeader)
        self._kv.put_kv_config(header.namespace, header.key, header.value)
        return _success()

    def get_kv_config(self, channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Handle GET_KV_CONFIG."""
        header = request.decode_command_custom_header(GetKVConfigRequestHeader)
        value = self._kv.get_kv_config(header.namespace, header.key)
        if value is None:
            return _failure(response_code.QUERY_NOT_FOUND,
                            f"No config item, Namespace: {string_of(header.namespace)} Key: "
                            f"{string_of(header.key)}")
        return _success(header=GetKVConfigResponseHeader(value))

    def delete_kv_config(self, channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Handle DELETE_KV_CONFIG."""
        header = request.decode_command_custom_header(DeleteKVConfigRequestHeader)
        self._kv.delete_kv_config(header.namespace, header.key)
        return _success()

    def register_broker(self, channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Handle REGISTER_BROKER; brokers before 3.0.11 send no filter servers."""
        if request.version < 0:
            raise RemotingCommandException(f"{request.version} is not a valid version")
        with_filter_server = value2version(request.version) >= _V3_0_11
        header = request.decode_command_custom_header(RegisterBrokerRequestHeader)
        if not self._checksum(channel, request, header):
            return _failure(response_code.SYSTEM_ERROR, "crc32 not match")
        wrapper, filter_server_list = _registration_body(request, header, with_filter_server)
        fields = request.ext_fields or {}
        state = fields.get(table_version.NOW, "")
        try:
            result = self._routes.register_broker(BrokerRegistration(
                header.clusterName, header.brokerAddr, header.brokerName, header.brokerId, header.haServerAddr, wrapper,
                filter_server_list, channel, state, fields.get(table_version.SINCE, ""),
                fields.get(table_version.ALONE, ""), _epoch(fields.get(table_version.EPOCH, ""))))
        except RegistrationGap as gap:
            log.info("%s", gap)
            response = _success(header=RegisterBrokerResponseHeader())
            response.add_ext_field(table_version.TAKEN, "")
            return response
        response = _success(header=RegisterBrokerResponseHeader(result.haServerAddr, result.masterAddr),
                            body=self._kv.get_kv_list_by_namespace(NAMESPACE_ORDER_TOPIC_CONFIG))
        if state:
            response.add_ext_field(table_version.TAKEN, state)
        return response

    def _checksum(self, channel: "Channel", request: RemotingCommand, header: RegisterBrokerRequestHeader) -> bool:
        if not header.bodyCrc32 or util_all.crc32(request.body) == header.bodyCrc32:
            return True
        log.warning("receive registerBroker request,crc32 not match,from %s", parse_channel_remote_addr(channel))
        return False

    def query_broker_topic_config(self, channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Handle QUERY_DATA_VERSION; a request with the current version also counts as a heartbeat."""
        header = request.decode_command_custom_header(QueryDataVersionRequestHeader)
        if not request.body:
            raise RemotingCommandException("the request has no data version")
        try:
            data_version = remoting_serializable.decode(DataVersion, request.body)
        except FastjsonError as failure:
            raise RemotingCommandException(f"the body is not a valid DataVersion: {failure}") from None
        changed = self._routes.is_broker_topic_config_changed(header.brokerAddr, data_version)
        if not changed:
            self._routes.update_broker_info_update_timestamp(header.brokerAddr)
        own = self._routes.query_broker_topic_config(header.brokerAddr)
        body = None if own is None else remoting_serializable.encode(own)
        return _success(header=QueryDataVersionResponseHeader(changed), body=body)

    def unregister_broker(self, channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Handle UNREGISTER_BROKER."""
        header = request.decode_command_custom_header(UnRegisterBrokerRequestHeader)
        shared = (request.ext_fields or {}).get(table_version.SHARED)
        if shared:
            # Differs: a master under an address that other replicas share is unregistered only by its own connection; a
            # name server of the original ignores the field
            self._routes.unregister_broker(header.clusterName, shared, header.brokerName, mix_all.MASTER_ID, channel)
        self._routes.unregister_broker(header.clusterName, header.brokerAddr, header.brokerName, header.brokerId)
        return _success()

    def get_route_info_by_topic(self, channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Handle GET_ROUTEINFO_BY_TOPIC: standard JSON for clients that support it, else unquoted broker ids as keys.
        """
        header = request.decode_command_custom_header(GetRouteInfoRequestHeader)
        route = self._routes.pickup_topic_route_data(header.topic)
        if route is None:
            return topic_not_exist(header.topic)
        if self._config.orderMessageEnable:
            route.orderTopicConf = self._kv.get_kv_config(NAMESPACE_ORDER_TOPIC_CONFIG, header.topic)
        if request.version >= _V4_9_4 or header.acceptStandardJsonOnly:
            return _success(body=_standard_json(route))
        return _success(body=remoting_serializable.encode(route))

    def get_broker_cluster_info(self, channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Handle GET_BROKER_CLUSTER_INFO; on request, the response also contains the missing brokers."""
        response = _success(body=remoting_serializable.encode(self._routes.get_all_cluster_info()))
        if cluster_bodies.ASK_DEPARTED_BROKERS in (request.ext_fields or {}):
            response.add_ext_field(cluster_bodies.DEPARTED_BROKERS,
                                   cluster_bodies.encode_departed(self._routes.departed_brokers()))
        return response

    def wipe_write_perm_of_broker(self, channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Handle WIPE_WRITE_PERM_OF_BROKER."""
        header = request.decode_command_custom_header(WipeWritePermOfBrokerRequestHeader)
        count = self._routes.wipe_write_perm_of_broker_by_lock(header.brokerName)
        log.info("wipe write perm of broker[%s], client: %s, %s", header.brokerName, parse_channel_remote_addr(channel),
                 count)
        return _success(header=WipeWritePermOfBrokerResponseHeader(count))

    def add_write_perm_of_broker(self, channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Handle ADD_WRITE_PERM_OF_BROKER."""
        header = request.decode_command_custom_header(AddWritePermOfBrokerRequestHeader)
        count = self._routes.add_write_perm_of_broker_by_lock(header.brokerName)
        log.info("add write perm of broker[%s], client: %s, %s", header.brokerName, parse_channel_remote_addr(channel),
                 count)
        return _success(header=AddWritePermOfBrokerResponseHeader(count))

    def get_all_topic_list_from_nameserver(self, channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Handle GET_ALL_TOPIC_LIST_FROM_NAMESERVER."""
        return _topics(self._routes.get_all_topic_list())

    def delete_topic_in_namesrv(self, channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Handle DELETE_TOPIC_IN_NAMESRV."""
        header = request.decode_command_custom_header(DeleteTopicFromNamesrvRequestHeader)
        self._routes.delete_topic(header.topic, header.clusterName)
        return _success()

    def get_kv_list_by_namespace(self, channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Handle GET_KVLIST_BY_NAMESPACE."""
        header = request.decode_command_custom_header(GetKVListByNamespaceRequestHeader)
        body = self._kv.get_kv_list_by_namespace(header.namespace)
        if body is None:
            return _failure(response_code.QUERY_NOT_FOUND, f"No config item, Namespace: {string_of(header.namespace)}")
        return _success(body=body)

    def get_topics_by_cluster(self, channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Handle GET_TOPICS_BY_CLUSTER."""
        header = request.decode_command_custom_header(GetTopicsByClusterRequestHeader)
        return _topics(self._routes.get_topics_by_cluster(header.cluster))

    def get_system_topic_list_from_ns(self, channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Handle GET_SYSTEM_TOPIC_LIST_FROM_NS."""
        return _topics(self._routes.get_system_topic_list())

    def get_unit_topic_list(self, channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Handle GET_UNIT_TOPIC_LIST."""
        return _topics(self._routes.get_unit_topics())

    def get_has_unit_sub_topic_list(self, channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Handle GET_HAS_UNIT_SUB_TOPIC_LIST."""
        return _topics(self._routes.get_has_unit_sub_topic_list())

    def get_has_unit_sub_un_unit_topic_list(self, channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Handle GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST."""
        return _topics(self._routes.get_has_unit_sub_un_unit_topic_list())

    def update_config(self, channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Handle UPDATE_NAMESRV_CONFIG; the body is a text in properties format."""
        log.info("updateConfig called by %s", parse_channel_remote_addr(channel))
        if request.body is None:
            return _success()
        text = bytes(request.body).decode("utf-8", "replace")
        properties = mix_all.string2properties(text)
        if properties is None:
            # The text is not logged because it may contain secrets.
            log.error("updateConfig MixAll.string2Properties error")
            return _failure(response_code.SYSTEM_ERROR, "string2Properties error")
        # Differs: UPDATE_NAMESRV_CONFIG can change no path, address, port, or key that is read only at the start, and
        # no key of the black list; 4.9 refuses only the keys of the black list
        refused = refused_keys(properties, self.config_black_list)
        if refused:
            log.warning("updateConfig, refused keys: %s client: %s", refused, parse_channel_remote_addr(channel))
            return _failure(response_code.NO_PERMISSION, "Can not update config in black list.")
        try:
            self._configuration.update(properties)
        except ConfigError as failure:
            return _failure(response_code.SYSTEM_ERROR, str(failure))
        if "logLevel" in properties:
            logs.set_level(self._config.logLevel)
        return _success()

    def get_config(self, channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Handle GET_NAMESRV_CONFIG: all keys except secrets, including those of a controller in the same file."""
        content = self._configuration.get_all_configs_format_string()
        return _success(body=content.encode("utf-8") or None)


def topic_not_exist(topic: str | None) -> RemotingCommand:
    """Return the response for a topic without a route."""
    return _failure(response_code.TOPIC_NOT_EXIST,
                    f"No topic route info in name server for the topic: {string_of(topic)}"
                    + namespace_util.suggest_todo(namespace_util.APPLY_TOPIC_URL))


def _epoch(text: str) -> int:
    """Return the epoch in a field of a registration; 0 when it has none."""
    if not text.isascii() or not text.isdigit() or len(text) > _MOST_DIGITS:
        return 0
    return int(text)


def _standard_json(route: TopicRouteData) -> bytes:
    return fastjson.dumps(route, quote_field_names=True, browser_compatible=True).encode("utf-8", "replace")


def _registration_body(request: RemotingCommand, header: RegisterBrokerRequestHeader, with_filter_server: bool,
                       ) -> tuple[TopicConfigSerializeWrapper, list[str] | None]:
    """Return the topics and the filter servers (None: not sent) of a registration.

    Without a body: no topics, version 0.
    """
    if request.body is None:
        return TopicConfigSerializeWrapper(dataVersion=DataVersion(0, 0)), [] if with_filter_server else None
    try:
        if not with_filter_server:
            return remoting_serializable.decode(TopicConfigSerializeWrapper, request.body), None
        if header.compressed:
            body = RegisterBrokerBody.decode_compressed(request.body)
        else:
            body = remoting_serializable.decode(RegisterBrokerBody, request.body)
    except ValueError as failure:
        raise RemotingCommandException(f"Failed to decode RegisterBrokerBody: {failure}") from failure
    return body.topicConfigSerializeWrapper, body.filterServerList


def _topics(topic_list: TopicList) -> RemotingCommand:
    return _success(body=remoting_serializable.encode(topic_list))


def _success(header: CommandCustomHeader | None = None, body: bytes | None = None) -> RemotingCommand:
    response = RemotingCommand.create_response_command(response_code.SUCCESS, None, header)
    response.body = body
    return response


def _failure(code: int, remark: str) -> RemotingCommand:
    return RemotingCommand.create_response_command(code, remark)


_TIMEOUT_MS = 5_000


class ClusterTestRequestProcessor(DefaultRequestProcessor):
    """A processor that asks the production environment's name servers for topics that this one does not know.

    Their addresses come from NAMESRV_ADDR, else from the address server, by the environment's name.

    Java: org.apache.rocketmq.namesrv.processor.ClusterTestRequestProcessor (4.9.8)
    """

    def __init__(self, namesrv_config: NamesrvConfig, configuration: Configuration,
                 kv_config_manager: "KVConfigManager", route_info_manager: "RouteInfoManager",
                 product_env_name: str) -> None:
        super().__init__(namesrv_config, configuration, kv_config_manager, route_info_manager)
        self._product_env_name = product_env_name
        self._client = RemotingClient(RemotingClientConfig(useTLS=use_tls()))

    def start(self) -> None:
        """Start the client for the production environment."""
        self._client.start()

    def shutdown(self) -> None:
        """Stop the client."""
        self._client.shutdown()

    def get_route_info_by_topic(self, channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Handle GET_ROUTEINFO_BY_TOPIC."""
        header = request.decode_command_custom_header(GetRouteInfoRequestHeader)
        route = self._routes.pickup_topic_route_data(header.topic)
        if route is not None:
            route.orderTopicConf = self._kv.get_kv_config(NAMESPACE_ORDER_TOPIC_CONFIG, header.topic)
        else:
            route = self._ask_product_environment(header.topic)
        if route is None:
            return topic_not_exist(header.topic)
        response = RemotingCommand.create_response_command(response_code.SUCCESS, None)
        response.body = remoting_serializable.encode(route)
        return response

    def _ask_product_environment(self, topic: str) -> TopicRouteData | None:
        try:
            if not self._client.get_name_server_address_list():
                self._client.update_name_server_address_list(self._product_name_servers())
            request = RemotingCommand.create_request_command(
                request_code.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader(topic))
            answer = self._client.invoke_sync(None, request, _TIMEOUT_MS)
            if answer.code == response_code.SUCCESS and answer.body:
                return remoting_serializable.decode(TopicRouteData, answer.body)
        except (RemotingException, ValueError) as failure:
            log.info("get route info by topic from product environment failed. envName=%s, %s", self._product_env_name,
                     failure)
        return None

    def _product_name_servers(self) -> list[str]:
        addrs = os.environ.get(mix_all.NAMESRV_ADDR_ENV)
        if not addrs:
            addrs = TopAddressing(unit_name=self._product_env_name).fetch_ns_addr()
        return [addr for addr in (addrs or "").split(";") if addr]
