"""A folder with accounts, and requests as they arrive at a broker."""
from pathlib import Path

from rmqha.acl.common import AclClientRPCHook, SessionCredentials
from rmqha.acl.plain_permission_manager import PlainPermissionManager
from rmqha.remoting.protocol.remoting_command import RemotingCommand

ACCOUNTS = """\
globalWhiteRemoteAddresses:
- 10.10.103.*
accounts:
- accessKey: aliceKey
  secretKey: 12345678
  whiteRemoteAddress: 192.168.0.*
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
  topicPerms:
  - orders=PUB|SUB
- accessKey: adminKey
  secretKey: adminSecret
  admin: true
"""


def manager_of(home: Path, text: str | None = ACCOUNTS) -> PlainPermissionManager:
    """A manager that has read `text` as plain_acl.yml; None: there is no such file."""
    (home / "conf").mkdir(parents=True, exist_ok=True)
    if text is not None:
        (home / "conf" / "plain_acl.yml").write_text(text, "utf-8")
    manager = PlainPermissionManager(str(home))
    manager.load()
    return manager


def request_of(code: int, body: bytes | None = None, account: tuple[str, str] | None = None,
               **fields: object) -> RemotingCommand:
    """A request as it was received; with an account it is signed."""
    request = RemotingCommand.create_request_command(code)
    for name, value in fields.items():
        request.add_ext_field(name, str(value))
    request.body = body
    if account is not None:
        AclClientRPCHook(SessionCredentials(*account)).do_before_request("", request)
    return RemotingCommand.decode(request.encode()[4:])
