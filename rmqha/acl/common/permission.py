"""What an account may do with a topic or a group, and which requests only an admin may send.

Java: org.apache.rocketmq.acl.common.Permission (4.9.8)
"""
from rmqha.acl.common import acl_constants
from rmqha.acl.common.acl_exception import AclException
from rmqha.acl.plain.plain_access_resource import PlainAccessResource, get_retry_topic, is_retry_topic
from rmqha.common import mix_all, topics
from rmqha.common.protocol import request_code

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
    # Differs: who changes accounts and addresses must be an admin; with the original each account may make itself one
    request_code.UPDATE_AND_CREATE_ACL_CONFIG,
    request_code.DELETE_ACL_CONFIG,
    request_code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
    # Differs: so must who deletes files and queues, and who asks for the offsets of all groups at once, as slaves do
    # (their addresses are permitted everything); with the original each account may
    request_code.CLEAN_EXPIRED_CONSUMEQUEUE,
    request_code.CLEAN_UNUSED_TOPIC,
    request_code.DELETE_EXPIRED_COMMITLOG,
    request_code.GET_ALL_CONSUMER_OFFSET,
    request_code.GET_ALL_DELAY_OFFSET,
    request_code.GET_BROKER_CONSUME_STATS,
    request_code.QUERY_CORRECTION_OFFSET,
    # and whoever compares logs, as slaves do: checksums of short blocks give away what is stored
    request_code.GET_COMMIT_LOG_CHECKSUMS,
})
# What each account may send that signs for it; resources are checked on top. All else that a broker of 4.9.8 serves,
# and the queries about replication that 5.x has added.
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
    request_code.GET_BROKER_HA_STATUS, request_code.GET_BROKER_EPOCH_CACHE,
})

# Topics in which the broker keeps the messages of all others, or tells of all groups.
INNER_TOPICS = frozenset({
    topics.RMQ_SYS_SCHEDULE_TOPIC, topics.RMQ_SYS_TRANS_HALF_TOPIC,
    topics.RMQ_SYS_TRANS_OP_HALF_TOPIC, topics.RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC,
    topics.RMQ_SYS_OFFSET_MOVED_EVENT,
})

_JAVA_SPACE = "".join(map(chr, range(0x21)))  # what String.trim takes away
_PERMISSIONS = {
    acl_constants.PUB: PUB, acl_constants.SUB: SUB,
    acl_constants.PUB_SUB: PUB | SUB, acl_constants.SUB_PUB: PUB | SUB,
}


def check_permission(needed_perm: int, owned_perm: int) -> bool:
    """Whether what is owned covers what is needed; DENY covers nothing."""
    if owned_perm & DENY:
        return False
    if needed_perm & ANY:
        return owned_perm & (PUB | SUB) != 0
    return needed_perm & owned_perm != 0


def is_owned(owned_access: PlainAccessResource, resource: str, needed_perm: int) -> bool:
    """Whether an account has a permission for a topic, or for a group that stands as its retry topic."""
    if resource == topics.RMQ_SYS_TRACE_TOPIC and needed_perm == PUB:
        return True  # the topic of message traces is open to all
    owned = (owned_access.resource_perm_map or {}).get(resource)
    if owned is not None:
        return check_permission(needed_perm, owned)
    if is_retry_topic(resource):
        return check_permission(needed_perm, owned_access.default_group_perm)
    # Differs: the defaults of an account are not for topics that hold the messages of others; with the original who
    # may read "all other topics" reads delayed and half messages of topics that are denied to him by name
    if resource in INNER_TOPICS:
        return False
    # Differs: by default, what a group has failed on is for those who may consume as that group
    if resource.startswith(mix_all.DLQ_GROUP_TOPIC_PREFIX) and not is_owned(
            owned_access, get_retry_topic(resource[len(mix_all.DLQ_GROUP_TOPIC_PREFIX):]), SUB):
        return False
    return check_permission(needed_perm, owned_access.default_topic_perm)


def parse_perm_from_string(perm_string: str | None) -> int:
    """PUB, SUB, PUB|SUB or SUB|PUB; anything else is DENY."""
    return DENY if perm_string is None else _PERMISSIONS.get(trim(perm_string), DENY)


def parse_resource_perms(plain_access_resource: PlainAccessResource, is_topic: bool,
                         resources: list[str] | None) -> None:
    """Add texts as `topicA=PUB` (or `groupA=SUB`) to an account. AclException when one has another form."""
    for resource in resources or ():
        items = _split_at_equals(resource)
        if len(items) != 2:
            kind = "topic" if is_topic else "group"
            raise AclException(f"Parse resource permission failed for {kind}:{resource}")
        name = trim(items[0])
        plain_access_resource.add_resource_and_perm(name if is_topic else get_retry_topic(name),
                                                    parse_perm_from_string(items[1]))


def check_resource_perms(resources: list[str] | None) -> None:
    """AclException unless all have the form `resource=permission`, with a permission that there is."""
    for resource in resources or ():
        items = _split_at_equals(resource)
        if len(items) != 2:
            raise AclException(f"Parse Resource format error for {resource}.\n"
                               "The expected resource format is 'Res=Perm'. For example: topicA=SUB")
        if trim(items[1]) != acl_constants.DENY and parse_perm_from_string(items[1]) == DENY:
            raise AclException(f"Parse resource permission error for {resource}.\n"
                               "The expected permissions are 'SUB' or 'PUB' or 'SUB|PUB' or 'PUB|SUB'.")


def need_admin_perm(code: int) -> bool:
    """Whether only an admin may send requests of this code."""
    # Differs: a code that is in neither set needs an admin; the original lets each account try codes unknown to it
    return code in ADMIN_CODE or code not in COMMON_CODE


def trim(text: str) -> str:
    """Without control characters and spaces at both ends.

    Java: java.lang.String#trim
    """
    return text.strip(_JAVA_SPACE)


def _split_at_equals(text: str) -> list[str]:
    return [item for item in text.split("=") if item]
