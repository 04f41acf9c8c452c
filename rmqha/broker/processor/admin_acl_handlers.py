"""Admin requests about accounts and addresses of access control."""
import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rmqha.acl.common import AccessValidator, AclException
from rmqha.broker.processor.admin_handlers import AdminHandlers, Handler, success
from rmqha.common import util_all
from rmqha.common.protocol import request_code, response_code
from rmqha.common.protocol.admin_headers import (
    CreateAccessConfigRequestHeader,
    DeleteAccessConfigRequestHeader,
    GetBrokerAclConfigResponseHeader,
    UpdateGlobalWhiteAddrsConfigRequestHeader,
)
from rmqha.common.topics import PlainAccessConfig
from rmqha.remoting.addresses import parse_channel_remote_addr
from rmqha.remoting.protocol import remoting_serializable
from rmqha.remoting.protocol.remoting_command import RemotingCommand

if TYPE_CHECKING:
    from rmqha.broker.broker_controller import BrokerController
    from rmqha.remoting.channel import Channel

log = logging.getLogger("RocketmqBroker")

# Differs: what the original answers when access control is off: it fails at a null and tells of that, and to a question
# for the versions it gives no answer at all
ACL_IS_OFF = "access control is off on this broker, set aclEnable=true"


class AdminAclHandlers(AdminHandlers):
    """Accounts: make, change, delete; addresses that need no account; the files' versions."""

    def __init__(self, broker_controller: "BrokerController") -> None:
        super().__init__(broker_controller)
        self._lock = threading.Lock()  # one change at a time

    def handlers(self) -> dict[int, Handler]:
        """Handler by request code."""
        return {
            request_code.UPDATE_AND_CREATE_ACL_CONFIG: self.update_and_create_access_config,
            request_code.DELETE_ACL_CONFIG: self.delete_access_config,
            request_code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: self.update_global_white_addrs_config,
            request_code.GET_BROKER_CLUSTER_ACL_INFO: self.get_broker_acl_config_version,
        }

    def update_and_create_access_config(self, _channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Make or change an account."""
        header = request.decode_command_custom_header(CreateAccessConfigRequestHeader)
        config = PlainAccessConfig(
            header.accessKey, header.secretKey, header.whiteRemoteAddress, header.admin, header.defaultTopicPerm,
            header.defaultGroupPerm, util_all.split(header.topicPerms, ","), util_all.split(header.groupPerms, ","))
        return self._change(
            lambda validator: validator.update_access_config(config),
            response_code.UPDATE_AND_CREATE_ACL_CONFIG_FAILED,
            f"The accesskey[{_shown(header.accessKey)}] corresponding to accessConfig has been updated failed.")

    def delete_access_config(self, channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Delete an account."""
        header = request.decode_command_custom_header(DeleteAccessConfigRequestHeader)
        log.info("DeleteAccessConfig called by %s", parse_channel_remote_addr(channel))
        return self._change(
            lambda validator: validator.delete_access_config(header.accessKey),
            response_code.DELETE_ACL_CONFIG_FAILED,
            f"The accesskey[{_shown(header.accessKey)}] corresponding to accessConfig has been deleted failed.")

    def update_global_white_addrs_config(self, _channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Replace a file's addresses that need no account."""
        header = request.decode_command_custom_header(UpdateGlobalWhiteAddrsConfigRequestHeader)
        addresses = util_all.split(header.globalWhiteAddrs, ",")
        return self._change(
            lambda validator: validator.update_global_white_addrs_config(addresses, header.aclFileFullPath),
            response_code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED,
            f"The globalWhiteAddresses[{_shown(header.globalWhiteAddrs)}] has been updated failed.")

    def get_broker_acl_config_version(self, _channel: "Channel", _request: RemotingCommand) -> RemotingCommand:
        """The versions of the files."""
        controller = self.broker_controller
        validator = controller.access_validator
        if validator is None:
            return RemotingCommand.create_response_command(response_code.SYSTEM_ERROR, ACL_IS_OFF)
        return success(header=GetBrokerAclConfigResponseHeader(
            validator.get_acl_config_version(),
            remoting_serializable.to_json(validator.get_all_acl_config_version()),
            controller.broker_config.brokerName, controller.broker_addr, controller.broker_config.brokerClusterName))

    def _change(self, change: Callable[[AccessValidator[Any]], bool], failure_code: int,
                refused: str) -> RemotingCommand:
        """Do it; `refused` is the remark when nothing was changed."""
        validator = self.broker_controller.access_validator
        if validator is None:
            return RemotingCommand.create_response_command(failure_code, ACL_IS_OFF)
        try:
            with self._lock:
                if change(validator):
                    return success()
        except AclException as error:
            log.error("Failed to change the access control: %s", error)
            return RemotingCommand.create_response_command(failure_code, error.answer)
        log.warning(refused)
        return RemotingCommand.create_response_command(failure_code, refused)


def _shown(text: str | None) -> str:
    return "null" if text is None else text
