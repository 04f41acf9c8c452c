"""Access control for clients and servers: credentials, signatures, permissions, and the resources a request needs.

- `SessionCredentials`, `AclClientRPCHook`: a client's account, and the hook that signs its requests.
- `AccessValidator`, `AccessRPCHook`: the broker's check of a request before it is served, and the hook that runs it.
- `PlainAccessResource`: the permissions that a request needs, or that an account has; one class for both, as in Java.
- `is_owned`, `need_admin_perm`: the permissions of an account for a topic or group, and requests that need an admin.
- `needs_of`: the topics and groups that a request names, with the permission needed for each. Where a request names a
  commit log offset instead, its processor checks the stored record: see RecordAccess.
- `CONFIG_*`: names in the account files.

Java: org.apache.rocketmq.acl.common.AclConstants (4.9.8)

Java: org.apache.rocketmq.acl.common.Permission (4.9.8)
"""
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol, TypeVar, overload

from rmqha.common import mix_all, stats, topics, util_all
from rmqha.common.data_version import DataVersion
from rmqha.common.java import string_of
from rmqha.common.lazy_dataclasses import dataclass, field
from rmqha.common.message import message_const, message_layout
from rmqha.common.message.message_decoder import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR
from rmqha.common.mix_all import UNIQUE_MSG_QUERY_FLAG
from rmqha.common.protocol import request_code
from rmqha.common.protocol.client_bodies import CheckClientRequestBody, LockBatchRequestBody
from rmqha.common.subscriptions import HeartbeatData
from rmqha.common.topics import AclConfig, PlainAccessConfig
from rmqha.remoting.exception import RequestDeniedException
from rmqha.remoting.protocol import remoting_serializable
from rmqha.remoting.protocol.remoting_command import RemotingCommand

CONFIG_GLOBAL_WHITE_ADDRS = "globalWhiteRemoteAddresses"
CONFIG_ACCOUNTS = "accounts"
CONFIG_ACCESS_KEY = "accessKey"
CONFIG_SECRET_KEY = "secretKey"
CONFIG_WHITE_ADDR = "whiteRemoteAddress"
CONFIG_ADMIN_ROLE = "admin"
CONFIG_DEFAULT_TOPIC_PERM = "defaultTopicPerm"
CONFIG_DEFAULT_GROUP_PERM = "defaultGroupPerm"
CONFIG_TOPIC_PERMS = "topicPerms"
CONFIG_GROUP_PERMS = "groupPerms"
CONFIG_DATA_VERSION = "dataVersion"
CONFIG_COUNTER = "counter"
CONFIG_TIME_STAMP = "timestamp"
PUB_TEXT = "PUB"
SUB_TEXT = "SUB"
DENY_TEXT = "DENY"
PUB_SUB = "PUB|SUB"
SUB_PUB = "SUB|PUB"
ACCESS_KEY_MIN_LENGTH = 6  # a key must be longer
SECRET_KEY_MIN_LENGTH = 6


class AclException(RequestDeniedException):
    """Access is denied, or an account, an address or an account file is invalid.

    Java: org.apache.rocketmq.acl.common.AclException (4.9.8)
    """

    # The beginning of the remark that clients get.
    JAVA_NAME = "org.apache.rocketmq.acl.common.AclException"

    def __init__(self, message: str, status: str | None = None, code: int = 0, answer: str | None = None) -> None:
        super().__init__(message)
        # `answer` is sent to the client; `message` may be logged.
        self.answer = message if answer is None else answer
        self.status = status
        self.code = code


ACCESS_KEY = "AccessKey"
SECRET_KEY = "SecretKey"
SIGNATURE = "Signature"
SECURITY_TOKEN = "SecurityToken"


def default_key_file() -> str:
    """Return the file that `SessionCredentials.from_key_file` reads: `key` in the home folder."""
    return os.path.join(os.path.expanduser("~"), "key")


@dataclass
class SessionCredentials:
    """The key that names an account, and the secret that signs its requests. Its text omits the secret.

    Java: org.apache.rocketmq.acl.common.SessionCredentials (4.9.8)
    """

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str | None = field(default=None, repr=False)

    @classmethod
    def from_key_file(cls, path: str | None = None) -> "SessionCredentials":
        """Read credentials from a file with lines AccessKey=..., SecretKey=... and, optionally, SecurityToken=...

        ValueError when the file, the key or the secret is missing.
        """
        path = path or default_key_file()
        text = mix_all.file2string(path)
        if text is None:
            raise ValueError(f"{path}: file not found; it should contain the lines AccessKey=... and SecretKey=...")
        credentials = cls("", "")
        credentials.update_content(mix_all.string2properties(text) or {})
        if not credentials.access_key or not credentials.secret_key:
            raise ValueError(f"{path}: it must contain the lines AccessKey=... and SecretKey=...")
        return credentials

    def update_content(self, prop: Mapping[str, str]) -> None:
        """Set the values that `prop` holds."""
        if ACCESS_KEY in prop:
            self.access_key = prop[ACCESS_KEY].strip()
        if SECRET_KEY in prop:
            self.secret_key = prop[SECRET_KEY].strip()
        if SECURITY_TOKEN in prop:
            self.security_token = prop[SECURITY_TOKEN].strip()


def combine_request_content(request: RemotingCommand, fields: Mapping[str, str]) -> bytes:
    """Return the bytes to sign: the values of `fields`, by name as in a Java TreeMap, without the signature; the body.

    Java: org.apache.rocketmq.acl.common.AclUtils#combineRequestContent (4.9.8)
    """
    names = sorted(fields, key=_utf16)
    text = "".join([fields[name] for name in names if name != SIGNATURE])
    return b"".join((text.encode("utf-8", "replace"), request.body or b""))


def _utf16(name: str) -> bytes:
    return name.encode("utf-16-be", "surrogatepass")


class AclClientRPCHook:
    """The hook for producers, consumers and admin tools: `DefaultMQProducer(group, AclClientRPCHook(credentials))`.

    Java: org.apache.rocketmq.acl.common.AclClientRPCHook (4.9.8)
    """

    def __init__(self, session_credentials: SessionCredentials) -> None:
        # Imported late: it loads OpenSSL, and most programs sign nothing.
        from rmqha.acl.signing import cal_signature

        self.session_credentials = session_credentials
        self._sign = cal_signature

    def do_before_request(self, _remote_addr: str, request: RemotingCommand) -> None:
        """Add key, token and signature to the request."""
        credentials = self.session_credentials
        request.add_ext_field(ACCESS_KEY, credentials.access_key)
        if credentials.security_token is not None:
            request.add_ext_field(SECURITY_TOKEN, credentials.security_token)
        content = combine_request_content(request, self.parse_request_content(request))
        request.add_ext_field(SIGNATURE, self._sign(content, credentials.secret_key))

    def do_after_response(self, _remote_addr: str, _request: RemotingCommand,
                          _response: RemotingCommand | None) -> None:
        """Do nothing."""

    def parse_request_content(self, request: RemotingCommand) -> dict[str, str]:
        """Return the fields to sign."""
        request.make_custom_header_to_net()
        # Differs: the extension field UNIQUE_MSG_QUERY_FLAG of a query by key is not signed, because a broker omits it
        # in its check; the original signs it, and its queries are refused
        return {name: text for name, text in (request.ext_fields or {}).items() if name != UNIQUE_MSG_QUERY_FLAG}


class AccessResource:
    """The base of the resources that an AccessValidator finds in a request.

    Java: org.apache.rocketmq.acl.AccessResource (4.9.8)
    """


ResourceT = TypeVar("ResourceT", bound=AccessResource)


class AccessValidator(Protocol[ResourceT]):
    """Determines the permissions that a request needs, checks them, and changes accounts.

    Java: org.apache.rocketmq.acl.AccessValidator (4.9.8)
    """

    def parse(self, request: RemotingCommand, remote_addr: str) -> ResourceT:
        """Return the account, the address (`ip:port`) and the needed permissions of a request. Raises AclException."""

    def validate(self, access_resource: ResourceT) -> None:
        """Raise AclException unless the request is permitted."""

    def validate_needs(self, request: RemotingCommand, remote_addr: str, needs: list[tuple[str, int]]) -> None:
        """Raise AclException unless a request that was permitted may also use these topics, or groups as retry topics.
        """

    def may_do_all(self, request: RemotingCommand, remote_addr: str) -> bool:
        """Return whether the sender of a request that was permitted may do everything."""

    def may(self, access_key: str | None, remote_addr: str, needs: list[tuple[str, int]]) -> bool:
        """Return whether an authenticated account has these permissions."""

    def update_access_config(self, plain_access_config: PlainAccessConfig) -> bool:
        """Create or change an account. Return False when nothing was written. Raises AclException."""

    def delete_access_config(self, accesskey: str | None) -> bool:
        """Delete an account. Return False when it does not exist. Raises AclException."""

    def get_acl_config_version(self) -> str:
        """Return the version of the default file, as JSON."""

    def update_global_white_addrs_config(self, global_white_addrs_list: list[str] | None,
                                         acl_file_full_path: str | None = None) -> bool:
        """Replace a file's addresses that need no account (None: the default file's). Raises AclException."""

    def get_all_acl_config(self) -> AclConfig:
        """Return all accounts and addresses, including secrets."""

    def get_all_acl_config_version(self) -> dict[str, DataVersion]:
        """Return the version of each file, by path."""


class AccessRPCHook:
    """A server's hook. Its AclException becomes the answer to a request that is not permitted.

    Java: org.apache.rocketmq.broker.BrokerController#initialAcl (4.9.8)
    """

    def __init__(self, validator: AccessValidator[Any]) -> None:
        self._validator = validator

    def do_before_request(self, remote_addr: str, request: RemotingCommand) -> None:
        """Raise AclException unless the request is permitted."""
        self._validator.validate(self._validator.parse(request, remote_addr))

    def do_after_response(self, _remote_addr: str, _request: RemotingCommand,
                          _response: RemotingCommand | None) -> None:
        """Do nothing."""


class RemoteAddressStrategy(Protocol):
    """A pattern of addresses.

    Java: org.apache.rocketmq.acl.plain.RemoteAddressStrategy (4.9.8)
    """

    def match(self, plain_access_resource: "PlainAccessResource") -> bool:
        """Return whether the address of a request matches the pattern."""


@dataclass(slots=True)
class PlainAccessResource(AccessResource):
    """The security data of a request or of an account.

    Of a request: key, signature, address (white_remote_address), content and needed permissions. Of an account: key,
    secret, addresses, and its permissions by resource. A group is represented by its retry topic. The text omits
    secret, signature and content.

    Java: org.apache.rocketmq.acl.plain.PlainAccessResource (4.9.8)
    """

    access_key: str | None = None
    secret_key: str | None = field(default=None, repr=False)
    white_remote_address: str | None = None
    admin: bool = False
    default_topic_perm: int = 1
    default_group_perm: int = 1
    resource_perm_map: dict[str, int] | None = None
    remote_address_strategy: RemoteAddressStrategy | None = field(default=None, repr=False)
    request_code: int = 0
    content: bytes = field(default=b"", repr=False)  # the signed bytes
    # The bytes that may be signed instead.
    content_with_flag: bytes | None = field(default=None, repr=False)
    signature: str | None = field(default=None, repr=False)
    secret_token: str | None = field(default=None, repr=False)
    # Returns (resource, permission) of a request; called after authentication. AclException for a malformed request.
    needs: Callable[[], list[tuple[str, int]]] = field(default=list, repr=False)

    def add_resource_and_perm(self, resource: str | None, perm: int) -> None:
        """Add a topic (or a group's retry topic); None is ignored."""
        if resource is None:
            return
        if self.resource_perm_map is None:
            self.resource_perm_map = {}
        self.resource_perm_map[resource] = perm


def is_retry_topic(topic: str | None) -> bool:
    """Return whether a topic represents a group."""
    return topic is not None and topic.startswith(mix_all.RETRY_GROUP_TOPIC_PREFIX)


def print_str(resource: str | None, is_group: bool) -> str | None:
    """Return `topic:<name>` or `group:<name>`."""
    if resource is None:
        return None
    return f"group:{get_group_from_retry_topic(resource)}" if is_group else f"topic:{resource}"


def get_group_from_retry_topic(retry_topic: str | None) -> str | None:
    """Return the group of a retry topic."""
    return None if retry_topic is None else retry_topic[len(mix_all.RETRY_GROUP_TOPIC_PREFIX):]


@overload
def get_retry_topic(group: str) -> str: ...


@overload
def get_retry_topic(group: None) -> None: ...


def get_retry_topic(group: str | None) -> str | None:
    """Return the retry topic that represents a group."""
    return None if group is None else mix_all.get_retry_topic(group)


DENY = 1
ANY = 1 << 1
PUB = 1 << 2
SUB = 1 << 3

ADMIN_CODE = frozenset({
    request_code.UPDATE_AND_CREATE_TOPIC,
    request_code.UPDATE_BROKER_CONFIG,
    request_code.DELETE_TOPIC_IN_BROKER,
    request_code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    request_code.DELETE_SUBSCRIPTIONGROUP,
    # Differs: changing accounts and addresses needs an admin; with the original each account may make itself an admin
    request_code.UPDATE_AND_CREATE_ACL_CONFIG,
    request_code.DELETE_ACL_CONFIG,
    request_code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
    # Differs: listing the accounts needs an admin, and the answer has no secrets; 4.9.7 sends all secrets to each
    # account, and 4.9.8 does not have the request
    request_code.GET_BROKER_CLUSTER_ACL_CONFIG,
    # Differs: deleting files and queues, and reading the offsets of all groups at once, need an admin; with the
    # original each account may do this. Slaves also read all offsets, but their addresses are permitted everything
    request_code.CLEAN_EXPIRED_CONSUMEQUEUE,
    request_code.CLEAN_UNUSED_TOPIC,
    request_code.DELETE_EXPIRED_COMMITLOG,
    request_code.GET_ALL_CONSUMER_OFFSET,
    request_code.GET_ALL_DELAY_OFFSET,
    request_code.GET_BROKER_CONSUME_STATS,
    request_code.QUERY_CORRECTION_OFFSET,
    # Comparing logs, as slaves do, needs an admin too: checksums of short blocks reveal the stored data.
    request_code.GET_COMMIT_LOG_CHECKSUMS,
})
# The requests that each authenticated account may send; their resources are checked too. These are all other requests
# that a broker of 4.9.8 serves, the queries about replication that 5.x added, and rmqha's own for browsing a topic.
COMMON_CODE = frozenset({
    request_code.SEND_MESSAGE, request_code.SEND_MESSAGE_V2, request_code.SEND_BATCH_MESSAGE,
    request_code.CONSUMER_SEND_MSG_BACK, request_code.SEND_REPLY_MESSAGE, request_code.SEND_REPLY_MESSAGE_V2,
    request_code.PULL_MESSAGE, request_code.QUERY_MESSAGE, request_code.VIEW_MESSAGE_BY_ID,
    request_code.HEART_BEAT, request_code.UNREGISTER_CLIENT, request_code.CHECK_CLIENT_CONFIG,
    request_code.GET_CONSUMER_LIST_BY_GROUP, request_code.UPDATE_CONSUMER_OFFSET, request_code.QUERY_CONSUMER_OFFSET,
    request_code.END_TRANSACTION, request_code.LOCK_BATCH_MQ, request_code.UNLOCK_BATCH_MQ,
    request_code.SEARCH_OFFSET_BY_TIMESTAMP, request_code.GET_MAX_OFFSET, request_code.GET_MIN_OFFSET,
    request_code.GET_EARLIEST_MSG_STORETIME, request_code.GET_ALL_TOPIC_CONFIG, request_code.GET_BROKER_CONFIG,
    request_code.GET_BROKER_RUNTIME_INFO, request_code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    request_code.GET_TOPIC_STATS_INFO, request_code.GET_CONSUMER_CONNECTION_LIST,
    request_code.GET_PRODUCER_CONNECTION_LIST, request_code.GET_ALL_PRODUCER_INFO, request_code.GET_CONSUME_STATS,
    request_code.INVOKE_BROKER_TO_RESET_OFFSET, request_code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
    request_code.QUERY_TOPIC_CONSUME_BY_WHO, request_code.QUERY_CONSUME_TIME_SPAN,
    request_code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, request_code.GET_CONSUMER_RUNNING_INFO,
    request_code.CONSUME_MESSAGE_DIRECTLY, request_code.CLONE_GROUP_OFFSET,
    request_code.VIEW_BROKER_STATS_DATA, request_code.QUERY_CONSUME_QUEUE,
    request_code.RESUME_CHECK_HALF_MESSAGE, request_code.GET_BROKER_CLUSTER_ACL_INFO,
    request_code.GET_BROKER_HA_STATUS, request_code.GET_BROKER_EPOCH_CACHE, request_code.GET_MESSAGE_HEADS,
})

# Topics in which the broker keeps messages of all other topics, or events of all groups.
INNER_TOPICS = frozenset({
    topics.RMQ_SYS_SCHEDULE_TOPIC, topics.RMQ_SYS_TRANS_HALF_TOPIC,
    topics.RMQ_SYS_TRANS_OP_HALF_TOPIC, topics.RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC,
    topics.RMQ_SYS_OFFSET_MOVED_EVENT,
})

_JAVA_SPACE = "".join(map(chr, range(0x21)))  # removed by String.trim
_PERMISSIONS = {
    PUB_TEXT: PUB, SUB_TEXT: SUB,
    PUB_SUB: PUB | SUB, SUB_PUB: PUB | SUB,
}


def check_permission(needed_perm: int, owned_perm: int) -> bool:
    """Return whether the owned permissions cover the needed ones. DENY covers none."""
    if owned_perm & DENY:
        return False
    if needed_perm & ANY:
        return owned_perm & (PUB | SUB) != 0
    return needed_perm & owned_perm != 0


def is_owned(owned_access: PlainAccessResource, resource: str, needed_perm: int) -> bool:
    """Return whether an account has a permission for a topic, or for a group, given as its retry topic."""
    if resource == topics.RMQ_SYS_TRACE_TOPIC and needed_perm == PUB:
        # All accounts may send message traces.
        return True
    owned = (owned_access.resource_perm_map or {}).get(resource)
    if owned is not None:
        return check_permission(needed_perm, owned)
    if is_retry_topic(resource):
        return check_permission(needed_perm, owned_access.default_group_perm)
    # Differs: an account's defaults do not apply to topics that hold the messages of other topics. With the original an
    # account that may read all other topics reads the delayed and half messages of topics denied to it by name.
    if resource in INNER_TOPICS:
        return False
    # Differs: by default, a group's dead-letter topic needs the permission to consume as that group
    if resource.startswith(mix_all.DLQ_GROUP_TOPIC_PREFIX) and not is_owned(
            owned_access, get_retry_topic(resource[len(mix_all.DLQ_GROUP_TOPIC_PREFIX):]), SUB):
        return False
    return check_permission(needed_perm, owned_access.default_topic_perm)


def parse_perm_from_string(perm_string: str | None) -> int:
    """Parse PUB, SUB, PUB|SUB or SUB|PUB; anything else is DENY."""
    return DENY if perm_string is None else _PERMISSIONS.get(trim(perm_string), DENY)


def parse_resource_perms(plain_access_resource: PlainAccessResource, is_topic: bool,
                         resources: list[str] | None) -> None:
    """Add texts such as `topicA=PUB` (or `groupA=SUB`) to an account. AclException for a malformed text."""
    for resource in resources or ():
        items = _split_at_equals(resource)
        if len(items) != 2:
            kind = "topic" if is_topic else "group"
            raise AclException(f"Parse resource permission failed for {kind}:{resource}")
        name = trim(items[0])
        plain_access_resource.add_resource_and_perm(name if is_topic else get_retry_topic(name),
                                                    parse_perm_from_string(items[1]))


def check_resource_perms(resources: list[str] | None) -> None:
    """Raise AclException unless all texts have the form `resource=permission`, with an existing permission."""
    for resource in resources or ():
        items = _split_at_equals(resource)
        if len(items) != 2:
            raise AclException(f"Parse Resource format error for {resource}.\n"
                               "The expected resource format is 'Res=Perm'. For example: topicA=SUB")
        if trim(items[1]) != DENY_TEXT and parse_perm_from_string(items[1]) == DENY:
            raise AclException(f"Parse resource permission error for {resource}.\n"
                               "The expected permissions are 'SUB' or 'PUB' or 'SUB|PUB' or 'PUB|SUB'.")


def need_admin_perm(code: int) -> bool:
    """Return whether only an admin may send requests of this code."""
    # Differs: a request code that is in neither set, ADMIN_CODE or COMMON_CODE, needs an admin; the original lets each
    # account send codes unknown to it
    return code in ADMIN_CODE or code not in COMMON_CODE


def trim(text: str) -> str:
    """Remove control characters and spaces at both ends.

    Java: java.lang.String#trim
    """
    return text.strip(_JAVA_SPACE)


def _split_at_equals(text: str) -> list[str]:
    return [item for item in text.split("=") if item]


Need = tuple[str, int]
"""A topic, or a group as its retry topic, and a permission."""
_Rule = Callable[[RemotingCommand, dict[str, str]], Iterable[Need]]

_FURTHER_QUEUES = message_const.PROPERTY_INNER_MULTI_DISPATCH
_FURTHER_QUEUES_UTF8 = _FURTHER_QUEUES.encode()
_TOPIC_STATS = (stats.TOPIC_PUT_NUMS, stats.TOPIC_PUT_SIZE, stats.QUEUE_PUT_NUMS, stats.QUEUE_PUT_SIZE)
_BROKER_STATS = (stats.BROKER_PUT_NUMS, stats.BROKER_GET_NUMS, stats.BROKER_GET_FROM_DISK_NUMS,
                 stats.BROKER_GET_FROM_DISK_SIZE)


def needs_of(request: RemotingCommand) -> list[Need]:
    """Return the permissions that a request needs.

    FastjsonError, MessageDecodeError or ValueError for a malformed body.
    """
    rule = _RULES.get(request.code)
    return [] if rule is None else list(rule(request, request.ext_fields or {}))


def group_need(group: str | None) -> Need:
    """Return the need to consume as a group. A missing group counts as "null", the name that brokers make of it."""
    return get_retry_topic(string_of(group)), SUB


def topic_need(topic: str | None, perm: int = SUB) -> Need:
    """Return the need of a permission for a topic; for a retry topic, the group's, whose only permission is SUB."""
    topic = string_of(topic)
    if topic.startswith(mix_all.RETRY_GROUP_TOPIC_PREFIX):
        return topic, SUB
    return topic, perm


def further_queues(properties: str | None) -> Iterator[str]:
    """Yield the additional queues, such as light queues, that a message goes to according to its properties."""
    if not properties or _FURTHER_QUEUES not in properties:
        return
    for entry in properties.split(PROPERTY_SEPARATOR):
        name, _, value = entry.partition(NAME_VALUE_SEPARATOR)
        if name == _FURTHER_QUEUES:
            for queue in {*value.split(","), *value.strip().split(",")}:
                if queue:
                    yield queue


def _send(topic: str, properties: str, batch: str | None) -> _Rule:
    """Return the rule for a send whose fields have these names."""
    # Differs: a batch needs the permissions that its single messages would need, a reply needs those of a send, and
    # each further queue (INNER_MULTI_DISPATCH) needs PUB. The original lets each account send batches and replies to
    # any topic and queue.

    # Differs: a send to a retry topic needs SUB on the group that the topic belongs to. The original checks the group
    # that another field names, so that an account with SUB on any group can write into all of them.
    def rule(request: RemotingCommand, fields: dict[str, str]) -> Iterator[Need]:
        yield topic_need(fields.get(topic), PUB)
        for queue in further_queues(fields.get(properties)):
            yield topic_need(queue, PUB)
        body = request.body or b""
        if batch is not None and fields.get(batch, "").lower() == "true" and _FURTHER_QUEUES_UTF8 in body:
            for message in message_layout.iterate_batch(body):
                for queue in further_queues(str(message.properties, "utf-8", "replace")):
                    yield topic_need(queue, PUB)

    return rule


def _named(*, topic: str | None = None, perm: int = SUB, groups: Iterable[str] = (),
           optional: Iterable[str] = (), is_group_first: bool = False) -> _Rule:
    """Return the rule for a request that names a topic and groups in these fields. `optional` fields may be absent.

    The order is the original's, because the first denied resource is named in the error.
    """
    optional, groups = frozenset(optional), tuple(groups)

    def rule(_request: RemotingCommand, fields: dict[str, str]) -> list[Need]:
        needs = []
        if topic is not None and not (topic in optional and util_all.is_blank(fields.get(topic))):
            needs.append(topic_need(fields.get(topic), perm))
        needs += [group_need(fields.get(group)) for group in groups if group in fields or group not in optional]
        return needs[::-1] if is_group_first else needs

    return rule


def _heartbeat(request: RemotingCommand, _fields: dict[str, str]) -> Iterator[Need]:
    heartbeat = remoting_serializable.from_json(HeartbeatData, request.body or b"")
    for data in heartbeat.consumerDataSet or ():
        yield group_need(data.groupName)
        for subscription in data.subscriptionDataSet or ():
            yield topic_need(subscription.topic)


def _locks(request: RemotingCommand, _fields: dict[str, str]) -> Iterator[Need]:
    body = remoting_serializable.from_json(LockBatchRequestBody, request.body or b"")
    yield group_need(body.consumerGroup)
    for queue in body.mqSet or ():
        yield topic_need(queue.topic)


def _client_config(request: RemotingCommand, _fields: dict[str, str]) -> Iterator[Need]:
    body = remoting_serializable.from_json(CheckClientRequestBody, request.body or b"")
    yield group_need(body.group)
    if body.subscriptionData is not None:
        yield topic_need(body.subscriptionData.topic)


def _stats_item(_request: RemotingCommand, fields: dict[str, str]) -> Iterator[Need]:
    """Yield the needs of a query for counters of a topic (`topic`, `topic@queue`) or of a group in it (`topic@group`,
    `topic@queue@group`)."""
    name, parts = string_of(fields.get("statsName")), string_of(fields.get("statsKey")).split("@")
    if name in _BROKER_STATS:
        return
    yield topic_need(parts[0], ANY)
    if name not in _TOPIC_STATS:
        yield group_need(parts[-1])


_OFFSETS_OF_A_TOPIC = _named(topic="topic", perm=ANY)
_GROUP_IN_TOPIC = _named(topic="topic", groups=("group",))
_CONSUMER_GROUP = _named(groups=("consumerGroup",))

# Differs: each request in the table `_RULES` is checked; of them the original checks only sends, pulls, queries by key,
# heartbeats, the members of a group and their leaving, and committed offsets. With the others each account may use any
# topic and group
_RULES: dict[int, _Rule] = {
    request_code.SEND_MESSAGE: _send("topic", "properties", "batch"),
    request_code.SEND_MESSAGE_V2: _send("b", "i", "m"),
    request_code.SEND_BATCH_MESSAGE: _send("b", "i", "m"),
    request_code.SEND_REPLY_MESSAGE: _send("topic", "properties", None),
    request_code.SEND_REPLY_MESSAGE_V2: _send("b", "i", None),
    request_code.CONSUMER_SEND_MSG_BACK: _named(groups=("group",)),
    request_code.PULL_MESSAGE: _named(topic="topic", groups=("consumerGroup",)),
    request_code.QUERY_MESSAGE: _named(topic="topic"),
    request_code.HEART_BEAT: _heartbeat,
    request_code.UNREGISTER_CLIENT: _named(groups=("consumerGroup",), optional=("consumerGroup",)),
    request_code.CHECK_CLIENT_CONFIG: _client_config,
    request_code.GET_CONSUMER_LIST_BY_GROUP: _CONSUMER_GROUP,
    request_code.UPDATE_CONSUMER_OFFSET: _named(topic="topic", groups=("consumerGroup",), is_group_first=True),
    request_code.QUERY_CONSUMER_OFFSET: _named(topic="topic", groups=("consumerGroup",)),
    request_code.LOCK_BATCH_MQ: _locks,
    request_code.UNLOCK_BATCH_MQ: _locks,
    request_code.SEARCH_OFFSET_BY_TIMESTAMP: _OFFSETS_OF_A_TOPIC,
    request_code.GET_MAX_OFFSET: _OFFSETS_OF_A_TOPIC,
    request_code.GET_MIN_OFFSET: _OFFSETS_OF_A_TOPIC,
    request_code.GET_EARLIEST_MSG_STORETIME: _OFFSETS_OF_A_TOPIC,
    request_code.GET_TOPIC_STATS_INFO: _OFFSETS_OF_A_TOPIC,
    request_code.QUERY_TOPIC_CONSUME_BY_WHO: _OFFSETS_OF_A_TOPIC,
    request_code.GET_CONSUMER_CONNECTION_LIST: _CONSUMER_GROUP,
    request_code.GET_CONSUMER_RUNNING_INFO: _CONSUMER_GROUP,
    request_code.CONSUME_MESSAGE_DIRECTLY: _CONSUMER_GROUP,
    request_code.GET_CONSUME_STATS: _named(topic="topic", groups=("consumerGroup",), optional=("topic",)),
    request_code.QUERY_CONSUME_QUEUE: _named(topic="topic", groups=("consumerGroup",), optional=("consumerGroup",)),
    request_code.CLONE_GROUP_OFFSET: _named(topic="topic", groups=("srcGroup", "destGroup"), optional=("topic",)),
    request_code.INVOKE_BROKER_TO_RESET_OFFSET: _GROUP_IN_TOPIC,
    request_code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: _GROUP_IN_TOPIC,
    request_code.QUERY_CONSUME_TIME_SPAN: _GROUP_IN_TOPIC,
    request_code.VIEW_BROKER_STATS_DATA: _stats_item,
    request_code.GET_MESSAGE_HEADS: _named(topic="topic"),
}
