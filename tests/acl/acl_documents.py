"""Files of accounts as people write them, right and wrong."""
import random

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
    """`count` documents."""
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
