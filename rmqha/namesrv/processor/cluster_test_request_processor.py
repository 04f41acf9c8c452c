"""A name server of a test environment: routes that it lacks come from the product environment."""
import logging
import os
from typing import TYPE_CHECKING

from rmqha.common import mix_all
from rmqha.common.namesrv_config import NAMESPACE_ORDER_TOPIC_CONFIG
from rmqha.common.protocol import request_code, response_code
from rmqha.common.protocol.namesrv_headers import GetRouteInfoRequestHeader
from rmqha.common.protocol.topic_route_data import TopicRouteData
from rmqha.common.top_addressing import TopAddressing
from rmqha.namesrv.processor.default_request_processor import DefaultRequestProcessor, topic_not_exist
from rmqha.remoting.exception import RemotingException
from rmqha.remoting.protocol import remoting_serializable
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.remoting.remoting_client import RemotingClient
from rmqha.remoting.remoting_config import ClientConfig
from rmqha.remoting.tls_system_config import use_tls

if TYPE_CHECKING:
    from rmqha.namesrv.namesrv_controller import NamesrvController
    from rmqha.remoting.channel import Channel

log = logging.getLogger("RocketmqNamesrv")

_TIMEOUT_MS = 5_000


class ClusterTestRequestProcessor(DefaultRequestProcessor):
    """Asks the product environment's name servers for the topics that this one does not know.

    They are those of NAMESRV_ADDR, else those that the address server tells for the environment's name.

    Java: org.apache.rocketmq.namesrv.processor.ClusterTestRequestProcessor (4.9.8)
    """

    def __init__(self, namesrv_controller: "NamesrvController", product_env_name: str) -> None:
        super().__init__(namesrv_controller)
        self._product_env_name = product_env_name
        self._client = RemotingClient(ClientConfig(useTLS=use_tls()))

    def start(self) -> None:
        """Start the client to the product environment."""
        self._client.start()

    def shutdown(self) -> None:
        """Stop it."""
        self._client.shutdown()

    def get_route_info_by_topic(self, channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """GET_ROUTEINFO_BY_TOPIC."""
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
