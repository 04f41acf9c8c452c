"""A raw client that signs its requests as the wire wants it, sharing no code with rmqha, from any address of this host."""
import base64
import hashlib
import hmac
import itertools
import socket

from tests.support.raw_remoting import Answer, RawClient


class SignedClient(RawClient):
    """`account` is (access key, secret key), None for requests that are not signed; `source` the client's address."""

    def __init__(self, address: str, account: tuple[str, str] | None, source: str = "127.0.0.1"):
        host, port = address.rsplit(":", 1)
        super().__init__(address)
        self.socket.close()
        self.socket = socket.create_connection((host, int(port)), 20, source_address=(source, 0))
        self._opaques = itertools.count(1 << 30)  # a broker's own requests, which are passed over, have small ones
        self.account = account

    def request(self, code: int, body: bytes = b"", **fields: object) -> Answer:
        """Sign, send, wait for the answer."""
        if self.account is not None:
            texts = {**{name: str(value) for name, value in fields.items()}, "AccessKey": self.account[0]}
            content = "".join(texts[name] for name in sorted(texts)).encode() + body
            digest = hmac.new(self.account[1].encode(), content, hashlib.sha1).digest()
            fields = {**texts, "Signature": base64.b64encode(digest).decode()}
        return super().request(code, body, **fields)
