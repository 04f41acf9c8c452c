"""Accounts, account files and address patterns, valid and invalid, for the tests of access control."""
import random
from pathlib import Path

from rmqha.acl.common import AclClientRPCHook, SessionCredentials
from rmqha.acl.plain_permission_manager import PlainPermissionManager
from rmqha.remoting.protocol.remoting_command import RemotingCommand

# A folder with accounts, and requests as they arrive at a broker.

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
    """Return a manager that has read `text` as plain_acl.yml; with None there is no such file."""
    (home / "conf").mkdir(parents=True, exist_ok=True)
    if text is not None:
        (home / "conf" / "plain_acl.yml").write_text(text, "utf-8")
    manager = PlainPermissionManager(str(home))
    manager.load()
    return manager


def request_of(code: int, body: bytes | None = None, account: tuple[str, str] | None = None,
               **fields: object) -> RemotingCommand:
    """Return a request as received, signed if an account is given."""
    request = RemotingCommand.create_request_command(code)
    for name, value in fields.items():
        request.add_ext_field(name, str(value))
    request.body = body
    if account is not None:
        AclClientRPCHook(SessionCredentials(*account)).do_before_request("", request)
    return RemotingCommand.decode(request.encode()[4:])


# Account files as people write them, valid and invalid.

_SCALARS = (
    "RocketMQ", "12345678", "0123456789", "01234567", "0x1234567", "0b1010101", "1_000_000", "1e10", "12345678e3",
    "1.5", "123.4567890", "1.0e+3", "+12", "-7", "12:30:45", "190:20:30.15", ".5", "0.1", "1e400",
    "123456789012345678901234567890", "yes", "No", "ON", "true", "False", "null", "~", "", "'12345678'",
    '"quoted # text"', "text # comment", "a:b", "192.168.0.*", "'*'", "10.1.2.{3,4}", "ümlaut", "topicA=PUB",
    "topicB=PUB|SUB", "PUB", "SUB|PUB", "=", "a=b=c", "<<", "1_0", "0o17", "0.", "1.e3", "e3", "- x", "*missing",
    "&anchor named", "!!str 12345678", "!!int '12345678'", "!!java.util.Date 1", "@at", "`tick", "%percent", "{a: b}",
    "[a, b]", "[", "|-\n      block", "no: value",
)
_KEYS = ("secretKey", "whiteRemoteAddress", "admin", "defaultTopicPerm", "defaultGroupPerm", "secret_key",
         "default-topic-perm", "unknown")
_LISTS = ("topicPerms", "groupPerms")
KNOWN = (
    "", "\n", "# only a comment\n", "---\n", "--- \n...\n", "a: b\n--- \nc: d\n", "- a\n- b\n", "text\n", "12\n",
    "{}\n", "accounts:\n", "accounts: []\n", "accounts: text\n", "accounts: {a: b}\n", "accounts:\n- text\n",
    "accounts:\n- []\n", "globalWhiteRemoteAddresses: 10.1.2.3\n",
    "globalWhiteRemoteAddresses:\n- 1\n- ~\n- true\n- 1.5\n", "dataVersion: []\n",
    "dataVersion:\n- counter: 5\n  timestamp: 1700000000000\n", "dataVersion:\n- counter: x\n",
    "dataVersion:\n- text\n", "accounts:\n- accessKey: a\n  accessKey: b\n", "\ttab: x\n", "a: b\n  c: d\n",
    "\ufeffaccounts: []\n",
    "accounts:\n- &one\n  accessKey: first00\n  secretKey: secret00\n- <<: *one\n  accessKey: second0\n",
    "accounts:\n- !!org.apache.rocketmq.common.PlainAccessConfig\n  accessKey: tagged0\n",
    "accounts:\n- accessKey: first00\n  topicPerms: a=PUB\n",
    "accounts:\n- accessKey: first00\n  topicPerms: {a: PUB}\n",
)


def generated(seed: int, count: int) -> list[str]:
    """Generate `count` documents."""
    generator = random.Random(seed)
    return [_document(generator) for _ in range(count)]


def _document(generator: random.Random) -> str:
    lines = []
    if generator.random() < 0.4:
        lines.append("globalWhiteRemoteAddresses:")
        lines += [f"- {generator.choice(_SCALARS)}" for _ in range(generator.randrange(3))]
    lines.append("accounts:")
    for _ in range(generator.choice((1, 1, 2))):
        name = generator.choice(("accessKey", "accessKey", "AccessKey", "access_key"))
        lines.append(f"- {name}: {generator.choice(('RocketMQ', 'second0', generator.choice(_SCALARS)))}")
        for key in generator.sample(_KEYS, generator.randrange(4)):
            lines.append(f"  {key}: {generator.choice(_SCALARS)}")
        if generator.random() < 0.5:
            lines.append(f"  {generator.choice(_LISTS)}:")
            lines += [f"  - {generator.choice(_SCALARS)}" for _ in range(generator.randrange(3))]
    return "\n".join(lines) + "\n"


# Address patterns as people write them, valid and invalid, and the addresses to match them with.

ADDRESSES = (
    "127.0.0.1", "10.0.0.0", "10.1.2.3", "10.10.103.7", "192.168.0.1", "192.168.1.1", "192.168.7.200",
    "192.168.255.255", "1.2.3.4", "255.255.255.255", "0.0.0.0", "::1", "0:0:0:0:0:0:0:1", "5::7:6:1:9",
    "5::7:6:c8:ffff", "1050:0:0:0:5:600:300c:326b", "1050::5:600:300C:1", "fe80::1:2", "2001:db8::",
    "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
)
# From the original's own tests and its documentation.
PATTERNS_KNOWN = (
    "", "  ", "*", "*.*.*.*", "*:*:*:*:*:*:*:*", "127.0.0.1", "127.0.0.*", "127.0.0.1-10", "192.168.*.*",
    "192.168.1-7.*", "192.168.*", "192.*.*.*", "10.10.103.*", "10.1.2.{3,4,5}", "{10,11}.1.2.3", "10.1.2.{3,4",
    "10.1.2.3,10.1.2.4", "10.1.2.3, 10.1.2.4", "10.1.{2,3}", "10.1.2-1.*", "10.1.-2.*", "10.1.2-.*", "10.1.2.256",
    "10.1.2.0-256", "10.1.2.0-0", "10.1.1*.2", "10.1.*.3", "10.*.2.3", "010.1.*.*", "10.1.2.03", "10. 1 .*.*",
    "1.2.3.4.5", "1.2.3", "a.b.c.d", "a.b.*.*", "::1", "0:0:0:0:0:0:0:1", "5::7:6:1-200:*", "5::7:6:1-200:1",
    "5::7:6:1-200", "5::7:6:*", "5:7:6:1-200:*", "*:7:6::", "1050::0005:0600:300c:*", "1050:0:0:0:5:600:300c:1-3",
    "1050::5:600:300c:{1,2,326b}", "1050::5:600:{300c,1}:1", "1050::5,1050::6", "::-1", "::1-2", "1-2::", "g::*",
    "fffff::*", "1::2::*", "1:2:3:4:5:6:7:8:*", "1:2:3:4:5:6:7:8:9", "::ffff:10.1.2.3", "fe80::1%eth0", "2001:db8::*",
    "2001:db8:0:0:0:0:0:*", "2001:db8::0-ffff", "2001:db8::*:*",
)
_IPV4_PARTS = (
    "0", "1", "2", "7", "10", "103", "168", "192", "200", "255", "256", "*", "*", "1-7", "0-255", "7-1", "1-256",
    "0-0", "-1", "1-", "1-2-3", "", " 1", "01", "x", "{1,2}", "{1,200", "1,2",
)
_IPV6_PARTS = (
    "", "", "0", "1", "5", "6", "7", "600", "300c", "1050", "ffff", "10000", "*", "1-200", "0-ffff", "0-0", "7-1",
    "{1,9}", "g", "-1", "1-", "2001", "db8",
)


def generated_patterns(seed: int, count: int) -> list[str]:
    """Generate `count` patterns, most of them nearly valid."""
    generator = random.Random(seed)
    return [_ipv4(generator) if generator.random() < 0.5 else _ipv6(generator) for _ in range(count)]


def _ipv4(generator: random.Random) -> str:
    length = generator.choice((4, 4, 4, 4, 4, 3, 5, 2))
    parts = generator.choice(ADDRESSES[:11]).split(".")[:length] + ["1"] * (length - 4)
    for index in range(len(parts)):
        if generator.random() < 0.35:
            parts[index] = generator.choice(_IPV4_PARTS)
    return ".".join(parts)


def _ipv6(generator: random.Random) -> str:
    parts = generator.choice(ADDRESSES[11:]).split(":")
    for _ in range(generator.choice((0, 1, 1, 2, 3))):
        parts[generator.randrange(len(parts))] = generator.choice(_IPV6_PARTS)
    if generator.random() < 0.5:
        parts[-1] = generator.choice(("*", "1-200", "0-ffff", "{1,9}"))
    return ":".join(parts)
