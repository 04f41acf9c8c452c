"""Subscriptions from what users write.

Java: org.apache.rocketmq.common.filter.FilterAPI (4.9.8)
"""
from rmqha.common.filter import expression_type
from rmqha.common.java_compat import string_hash_code
from rmqha.common.protocol.heartbeat.subscription_data import SUB_ALL, SubscriptionData

# Java's String.trim takes off these: everything up to the blank.
_TRIMMED = "".join(map(chr, range(0x21)))


def build_subscription_data(topic: str, sub_string: str | None) -> SubscriptionData:
    """A subscription by tags: `*` or nothing for all, else tags between `||`. ValueError when it is only separators."""
    subscription = SubscriptionData(topic, sub_string or SUB_ALL)
    if not sub_string or sub_string == SUB_ALL:
        return subscription
    if not sub_string.replace("||", ""):
        raise ValueError("subString split error")
    for part in sub_string.split("||"):
        tag = part.strip(_TRIMMED)
        if tag:
            subscription.tagsSet.add(tag)
            subscription.codeSet.add(string_hash_code(tag))
    return subscription


def build(topic: str, sub_string: str | None, type_: str | None) -> SubscriptionData:
    """A subscription of any type (None: TAG). ValueError for an empty SQL expression."""
    if type_ is None or type_ == expression_type.TAG:
        return build_subscription_data(topic, sub_string)
    if not sub_string:
        raise ValueError(f"Expression can't be null! {type_}")
    return SubscriptionData(topic, sub_string, expressionType=type_)
