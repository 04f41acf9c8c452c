"""Namespaces of the name server's key-value store.

Java: org.apache.rocketmq.common.namesrv.NamesrvUtil (4.9.8)
"""

NAMESPACE_ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"
