"""Jars that Spark needs for s3a:, fetched once by Maven beside those of the real RocketMQ."""
import functools
import shutil
import subprocess
from pathlib import Path

from tests.support import real_rocketmq


@functools.cache
def jars() -> list[Path]:
    """The jars."""
    pom = Path(__file__).parent / "java" / "spark" / "pom.xml"
    return sorted(real_rocketmq.fetched("spark-jars", pom).glob("*.jar"))


@functools.cache
def why_unavailable() -> str | None:
    """Why they can't be had, None when they are there."""
    if not real_rocketmq.is_fetched("spark-jars") and shutil.which("mvn") is None:
        return "the jars for s3a: are missing, and so is mvn"
    try:
        jars()
    except (AssertionError, OSError, subprocess.TimeoutExpired) as error:
        return f"the jars for s3a: could not be fetched: {error}"
    return None
