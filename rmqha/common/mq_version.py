"""The version numbers that clients and servers put into each command."""
from enum import IntEnum


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


Version = IntEnum("Version", _version_names(), start=0)  # type: ignore[misc]  # mypy wants names that are written out
"""Every version that 4.9.8 knows; the value is the number on the wire (V4_9_8 is 409)."""

CURRENT_VERSION = int(Version["V4_9_8"])


def get_version_desc(value: int) -> str:
    """The name of a version number; a number above all known ones is HIGHER_VERSION.

    Java: org.apache.rocketmq.common.MQVersion (4.9.8)
    """
    return value2version(value).name


def value2version(value: int) -> "Version":
    """The version of a number. Raises ValueError for a negative one.

    Java: org.apache.rocketmq.common.MQVersion$Version (4.9.8)
    """
    return Version(min(value, len(Version) - 1))
