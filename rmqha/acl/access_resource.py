"""What a request asks to use."""


class AccessResource:
    """Base of what an AccessValidator finds in a request.

    Java: org.apache.rocketmq.acl.AccessResource (4.9.8)
    """
