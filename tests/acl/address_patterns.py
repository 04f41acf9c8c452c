"""Address patterns as people write them, right and wrong, and the addresses that they are tried on."""
import random

ADDRESSES = (
    "127.0.0.1", "10.0.0.0", "10.1.2.3", "10.10.103.7", "192.168.0.1", "192.168.1.1", "192.168.7.200",
    "192.168.255.255", "1.2.3.4", "255.255.255.255", "0.0.0.0", "::1", "0:0:0:0:0:0:0:1", "5::7:6:1:9",
    "5::7:6:c8:ffff", "1050:0:0:0:5:600:300c:326b", "1050::5:600:300C:1", "fe80::1:2", "2001:db8::",
    "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
)
# Of the original's own tests, and of its documentation.
KNOWN = (
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


def generated(seed: int, count: int) -> list[str]:
    """`count` patterns, most of them nearly right."""
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
