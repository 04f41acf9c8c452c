"""The response codes that the transport itself gives.

Java: org.apache.rocketmq.remoting.protocol.RemotingSysResponseCode (4.9.8)
"""

SUCCESS = 0
SYSTEM_ERROR = 1
SYSTEM_BUSY = 2
REQUEST_CODE_NOT_SUPPORTED = 3
TRANSACTION_FAILED = 4
