"""A raw client that signs its requests, sharing no code with rmqha, from any address of this host."""
import base64
import hashlib
import hmac
import itertools
import socket

from tests.support.raw_remoting import Answer, RawClient, frame, header


class SignedClient(RawClient):
    """`account` is (access key, secret key), None for requests that are not signed; `source` the client's address."""

    def __init__(self, address: str, account: tuple[str, str] | None, source: str = "127.0.0.1"):
        host, port = address.rsplit(":", 1)
        super().__init__(address)
        self.socket.close()
        self.socket = socket.create_connection((host, int(port)), 60, source_address=(source, 0))
        self._opaques = itertools.count(1 << 30)  # a broker's own requests, which are passed over, have small ones
        self.account = account

    def request(self, code: int, body: bytes = b"", **fields: object) -> Answer:
        """Sign, send, wait for the answer."""
        return super().request(code, body, **self.signed(fields, body))

    def signed(self, fields: dict[str, object], body: bytes) -> dict[str, object]:
        """The fields with key and signature."""
        if self.account is None:
            return fields
        texts = {**{name: str(value) for name, value in fields.items()}, "AccessKey": self.account[0]}
        content = "".join(texts[name] for name in sorted(texts)).encode() + body
        digest = hmac.new(self.account[1].encode(), content, hashlib.sha1).digest()
        return {**texts, "Signature": base64.b64encode(digest).decode()}

    def send_frame(self, topic: str, number: int) -> bytes:
        """The bytes of a signed SEND_MESSAGE_V2 (310), to be sent with others."""
        body = b"message %d" % number
        fields = {"a": "signed-producer", "b": topic, "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1, "h": 0, "i": "",
                  "j": 0, "k": "false", "l": 0, "m": "false"}
        return frame(header(310, next(self._opaques), **self.signed(fields, body)), body)
