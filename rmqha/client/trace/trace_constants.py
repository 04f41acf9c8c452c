"""Separators and names of message traces.

Java: org.apache.rocketmq.client.trace.TraceConstants (4.9.8)
"""
from rmqha.common import topics

GROUP_NAME_PREFIX = "_INNER_TRACE_PRODUCER"
CONTENT_SPLITOR = "\x01"
FIELD_SPLITOR = "\x02"
TRACE_INSTANCE_NAME = "PID_CLIENT_INNER_TRACE_PRODUCER"
TRACE_TOPIC_PREFIX = topics.SYSTEM_TOPIC_PREFIX + "TRACE_DATA_"
