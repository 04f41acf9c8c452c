"""What each kind of request needs."""
import functools

from rmqha.acl.common import permission
from rmqha.acl.common.acl_content import combine_request_content
from rmqha.acl.common.acl_exception import AclException
from rmqha.acl.common.session_credentials import ACCESS_KEY, SECURITY_TOKEN, SIGNATURE
from rmqha.acl.plain.plain_access_resource import PlainAccessResource, get_retry_topic, is_retry_topic
from rmqha.acl.plain.plain_permission_manager import PlainPermissionManager
from rmqha.common.acl_config import AclConfig
from rmqha.common.data_version import DataVersion
from rmqha.common.mix_all import UNIQUE_MSG_QUERY_FLAG
from rmqha.common.plain_access_config import PlainAccessConfig
from rmqha.common.protocol import request_code
from rmqha.common.protocol.header.consumer_headers import (
    GetConsumerListByGroupRequestHeader, UnregisterClientRequestHeader, UpdateConsumerOffsetRequestHeader)
from rmqha.common.protocol.heartbeat.heartbeat_data import HeartbeatData
from rmqha.remoting.exception import RemotingCommandException
from rmqha.remoting.protocol import remoting_serializable
from rmqha.remoting.protocol.fastjson import FastjsonError
from rmqha.remoting.protocol.remoting_command import RemotingCommand

_NOT_SIGNED = (SIGNATURE, UNIQUE_MSG_QUERY_FLAG)


class PlainAccessValidator:
    """Checks requests against the accounts of YAML files. `load()`, `start()`, `shutdown()`.

    Java: org.apache.rocketmq.acl.plain.PlainAccessValidator (4.9.8)
    """

    def __init__(self, file_home: str) -> None:
        self._acl_plug_engine = PlainPermissionManager(file_home)

    def load(self) -> None:
        """Read all files. AclException when one is wrong."""
        self._acl_plug_engine.load()

    def start(self) -> None:
        """Follow the files."""
        self._acl_plug_engine.start()

    def shutdown(self) -> None:
        """Follow them no more. Idempotent."""
        self._acl_plug_engine.shutdown()

    def parse(self, request: RemotingCommand, remote_addr: str) -> PlainAccessResource:
        """Who asks, from where (`ip:port`), and for which permissions. AclException when the request is malformed.

        What a body names is added by `validate`, when the signature is right.
        """
        resource = PlainAccessResource(white_remote_address=remote_addr.rpartition(":")[0] or remote_addr,
                                       request_code=request.code)
        fields = request.ext_fields
        if fields is None:  # an address may be enough
            return resource
        resource.access_key = fields.get(ACCESS_KEY)
        resource.signature = fields.get(SIGNATURE)
        resource.secret_token = fields.get(SECURITY_TOKEN)
        try:
            _add_resources(resource, request, fields)
        except RemotingCommandException as error:
            raise AclException(str(error)) from error
        signed = {name: value for name, value in fields.items() if name not in _NOT_SIGNED}
        resource.content = combine_request_content(request, signed)
        # Differs: the flag of queries by key may be signed or not; the original's clients sign it, but its broker
        # leaves it out and so refuses each of their queries
        if UNIQUE_MSG_QUERY_FLAG in fields:
            resource.content_with_flag = combine_request_content(request, fields)
        return resource

    def validate(self, access_resource: PlainAccessResource) -> None:
        """AclException unless it is permitted."""
        self._acl_plug_engine.validate(access_resource)

    def update_access_config(self, plain_access_config: PlainAccessConfig) -> bool:
        """Make or change an account."""
        return self._acl_plug_engine.update_access_config(plain_access_config)

    def delete_access_config(self, accesskey: str) -> bool:
        """Delete an account; False when there is none."""
        return self._acl_plug_engine.delete_access_config(accesskey)

    def get_acl_config_version(self) -> str:
        """The default file's version, as JSON."""
        return self._acl_plug_engine.get_acl_config_data_version()

    def update_global_white_addrs_config(self, global_white_addrs_list: list[str] | None,
                                         acl_file_full_path: str | None = None) -> bool:
        """Replace a file's addresses that need no account; False when it is no file of accounts."""
        return self._acl_plug_engine.update_global_white_addrs_config(global_white_addrs_list, acl_file_full_path)

    def get_all_acl_config(self) -> AclConfig:
        """All accounts and addresses, secrets included."""
        return self._acl_plug_engine.get_all_acl_config()

    def get_all_acl_config_version(self) -> dict[str, DataVersion]:
        """The version of each file, by its path."""
        return self._acl_plug_engine.get_data_version_map()


def _add_resources(resource: PlainAccessResource, request: RemotingCommand, fields: dict[str, str]) -> None:
    """Topics and groups that the request needs, and for what."""
    code, add = request.code, resource.add_resource_and_perm
    if code == request_code.SEND_MESSAGE:
        _add_send(resource, fields.get("topic"), fields.get("group"))
    # Differs: a batch needs what its single messages would; the original lets each account send batches to any topic
    elif code in (request_code.SEND_MESSAGE_V2, request_code.SEND_BATCH_MESSAGE):
        _add_send(resource, fields.get("b"), fields.get("a"))
    elif code == request_code.CONSUMER_SEND_MSG_BACK:
        add(get_retry_topic(fields.get("group")), permission.SUB)
    elif code == request_code.PULL_MESSAGE:
        add(fields.get("topic"), permission.SUB)
        add(get_retry_topic(fields.get("consumerGroup")), permission.SUB)
    elif code == request_code.QUERY_MESSAGE:
        add(fields.get("topic"), permission.SUB)
    elif code == request_code.HEART_BEAT:
        # Differs: the original parses the body before it checks the signature
        resource.body_reader = functools.partial(_add_heartbeat, request.body or b"")
    elif code == request_code.UNREGISTER_CLIENT:
        unregister = request.decode_command_custom_header(UnregisterClientRequestHeader)
        add(get_retry_topic(unregister.consumerGroup), permission.SUB)
    elif code == request_code.GET_CONSUMER_LIST_BY_GROUP:
        get_list = request.decode_command_custom_header(GetConsumerListByGroupRequestHeader)
        add(get_retry_topic(get_list.consumerGroup), permission.SUB)
    elif code == request_code.UPDATE_CONSUMER_OFFSET:
        update = request.decode_command_custom_header(UpdateConsumerOffsetRequestHeader)
        add(get_retry_topic(update.consumerGroup), permission.SUB)
        add(update.topic, permission.SUB)


def _add_heartbeat(body: bytes, resource: PlainAccessResource) -> None:
    """The groups and topics of a heartbeat's consumers."""
    try:
        heartbeat = remoting_serializable.from_json(HeartbeatData, body)
    except FastjsonError as error:
        raise AclException(str(error)) from error
    for data in heartbeat.consumerDataSet or ():
        resource.add_resource_and_perm(get_retry_topic(data.groupName), permission.SUB)
        for subscription in data.subscriptionDataSet or ():
            resource.add_resource_and_perm(subscription.topic, permission.SUB)


def _add_send(resource: PlainAccessResource, topic: str | None, group: str | None) -> None:
    if is_retry_topic(topic):
        # Differs: without a group, as in all requests of the first kind, the one that the topic belongs to counts; the
        # original then checks nothing, so that each account may write to each group's retry topic
        resource.add_resource_and_perm(topic if group is None else get_retry_topic(group), permission.SUB)
    else:
        resource.add_resource_and_perm(topic, permission.PUB)
