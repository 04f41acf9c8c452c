"""One request to a broker for which the client's API has no method."""
from rmqha.client.exception import MQBrokerException
from rmqha.common.protocol import response_code
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.tools.admin.cluster_admin import Broker, ClusterAdmin


def ask_broker(admin: ClusterAdmin, broker: Broker, request: RemotingCommand) -> RemotingCommand:
    """Send a request and return the answer.

    Its errors are those of the client: MQBrokerException for an error answer, and RemotingException. Call it within
    `ClusterAdmin.asked`.
    """
    response = admin.api.remoting_client.invoke_sync(broker.address, request, admin.timeout_millis)
    if response.code != response_code.SUCCESS:
        raise MQBrokerException(response.code, response.remark, broker.address)
    return response
