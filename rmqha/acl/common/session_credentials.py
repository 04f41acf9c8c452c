"""Who a client is."""
import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from rmqha.common import mix_all

ACCESS_KEY = "AccessKey"
SECRET_KEY = "SecretKey"
SIGNATURE = "Signature"
SECURITY_TOKEN = "SecurityToken"


def default_key_file() -> str:
    """The file that `SessionCredentials.from_key_file` reads: `key` in the home folder."""
    return os.path.join(os.path.expanduser("~"), "key")


@dataclass
class SessionCredentials:
    """The key that names an account, and the secret that signs for it; texts of it leave the secret out.

    Java: org.apache.rocketmq.acl.common.SessionCredentials (4.9.8)
    """

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str | None = field(default=None, repr=False)

    @classmethod
    def from_key_file(cls, path: str | None = None) -> "SessionCredentials":
        """Of a file with lines as AccessKey=..., SecretKey=..., SecurityToken=... . ValueError when one is missing."""
        path = path or default_key_file()
        text = mix_all.file2string(path)
        if text is None:
            raise ValueError(f"{path}: there is no such file; it should hold the lines AccessKey=... and SecretKey=...")
        credentials = cls("", "")
        credentials.update_content(mix_all.string2properties(text) or {})
        if not credentials.access_key or not credentials.secret_key:
            raise ValueError(f"{path}: the lines AccessKey=... and SecretKey=... are needed")
        return credentials

    def update_content(self, prop: Mapping[str, str]) -> None:
        """Take over what `prop` holds."""
        if ACCESS_KEY in prop:
            self.access_key = prop[ACCESS_KEY].strip()
        if SECRET_KEY in prop:
            self.secret_key = prop[SECRET_KEY].strip()
        if SECURITY_TOKEN in prop:
            self.security_token = prop[SECURITY_TOKEN].strip()
