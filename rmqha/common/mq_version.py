"""The version numbers that clients and servers put into each command."""


def _version_names() -> list[str]:
    names = ["V3_0_0_SNAPSHOT", "V3_0_0_ALPHA1", *(f"V3_0_0_BETA{n}" for n in range(1, 6))]
    for beta in range(6, 10):
        names += [f"V3_0_0_BETA{beta}_SNAPSHOT", f"V3_0_0_BETA{beta}"]
    names.append("V3_0_0_FINAL")
    for major, minor, first, last in _series():
        for patch in range(first, last + 1):
            names += [f"V{major}_{minor}_{patch}_SNAPSHOT", f"V{major}_{minor}_{patch}"]
    return [*names, "HIGHER_VERSION"]


def _series() -> list[tuple[int, int, int, int]]:
    """(major, minor, first patch, last patch): 3.0 ran to 3.0.15; 3.3 to 3.9 have no patch 0."""
    series = [(3, 0, 1, 15), (3, 1, 0, 9), (3, 2, 0, 9)]
    series += [(3, minor, 1, 9) for minor in range(3, 10)]
    series += [(major, minor, 0, 9) for major in (4, 5) for minor in range(10)]
    return series


_NAMES = _version_names()
Version = {name: number for number, name in enumerate(_NAMES)}
"""Every version that 4.9.8 knows: its number on the wire (V4_9_8 is 409). No enum, which takes 7 ms to make."""

CURRENT_VERSION = Version["V4_9_8"]


def get_version_desc(value: int) -> str:
    """The name of a version number; a number above all known ones is HIGHER_VERSION.

    Java: org.apache.rocketmq.common.MQVersion (4.9.8)
    """
    return _NAMES[value2version(value)]


def value2version(value: int) -> int:
    """The number of a version that is known: of HIGHER_VERSION for those above. ValueError for a negative one.

    Java: org.apache.rocketmq.common.MQVersion$Version (4.9.8)
    """
    if value < 0:
        raise ValueError(f"a version number of {value}")
    return min(value, len(_NAMES) - 1)
