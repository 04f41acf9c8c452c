"""The start of Spark for a command: what is missing is told at once, in one line, and what Spark prints is kept away.

Spark's JVM, and the Python workers that it starts, write to the standard error that this process had when it started
the JVM. For the start that is a file without a name, which is read when the start fails.
"""
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any, TypeVar

import psutil

from rmqha.pipeline.format_options import PipelineError
from rmqha.remoting.remoting_client import refusal

CONNECT_TIMEOUT_S = 5
FIRST_EXECUTOR_S = 20
_POLL_S = 0.1
_STANDARD_ERROR = 2
_KEPT = 1 << 16
_STANDALONE = "spark://"
_QUERY_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
_JAVA = "Spark needs Java 17 or later"
SessionT = TypeVar("SessionT")


def start(master: str, session: Callable[[], SessionT], verbose: bool) -> SessionT:
    """The session that `session` makes. PipelineError says why there is none: no Java, nobody at `master`, or what
    the JVM had to say.
    """
    if not master.startswith("sc://"):
        check_java()
    if master.startswith((_STANDALONE, "sc://")):
        check_master(master)
    if not verbose:
        quiet_loggers()
    before = set(psutil.Process().children())
    with _standard_error_kept(verbose) as kept:
        try:
            return session()
        except BaseException as error:
            # A JVM whose start was broken off waits for ever, though this process ends.
            for child in set(psutil.Process().children()) - before:
                child.kill()
            reason = _reason(_read(kept), error) if isinstance(error, Exception) else None
            if reason is None:
                raise
            raise PipelineError(reason) from error


def quiet_loggers() -> None:
    """Silence what PySpark itself writes about each error of a query, a line of some KiB: the error is told anyway."""
    from pyspark.logger import PySparkLogger
    for name in _QUERY_LOGGERS:
        PySparkLogger.getLogger(name).disabled = True


def check_java() -> None:
    """PipelineError when there is no program `java` where Spark looks for it."""
    home = os.environ.get("JAVA_HOME")
    if home:
        if not os.access(os.path.join(home, "bin", "java"), os.X_OK):
            raise PipelineError(f"{_JAVA}: JAVA_HOME is {home}, which has no bin/java")
    elif shutil.which("java") is None:
        raise PipelineError(f"{_JAVA}: there is no `java` on PATH, and JAVA_HOME is not set")


def check_master(master: str) -> None:
    """PipelineError when nobody listens at any of a master's addresses: spark://HOST:PORT,HOST:PORT or sc://HOST."""
    scheme, _, rest = master.partition("://")
    default = 7077 if scheme == "spark" else 15002
    refusals = []
    for address in rest.partition("/")[0].partition(";")[0].split(","):
        host, colon, port = address.rpartition(":")
        if not colon:
            host, port = address, str(default)
        if not host or not port.isdecimal():
            raise PipelineError(f"--master {master}: {address!r} is no host:port")
        why = refusal(host, int(port), CONNECT_TIMEOUT_S)
        if why is None:
            return
        refusals.append(f"{host}:{port}: {why}")
    raise PipelineError(f"no Spark master answers at {master} ({'; '.join(refusals)})")


def note_missing_executors(spark: Any, master: str, tell: Callable[[str], None]) -> None:
    """Wait for a cluster's first executor, FIRST_EXECUTOR_S at most, and tell when none has come: the job waits on."""
    if not master.startswith(_STANDALONE) or spark.conf.get("spark.dynamicAllocation.enabled", "false") == "true":
        return
    context = spark.sparkContext._jsc.sc()
    deadline = time.monotonic() + FIRST_EXECUTOR_S
    while context.getExecutorMemoryStatus().size() < 2:  # the driver is one
        if time.monotonic() > deadline:
            tell(f"note {master} has given no executor within {FIRST_EXECUTOR_S} s: has it workers with a free core "
                 "and 1 GiB of free memory? Waiting on")
            return
        time.sleep(_POLL_S)


@contextmanager
def _standard_error_kept(verbose: bool) -> Iterator[IO[bytes] | None]:
    """What is started in the block has a file as its standard error, unless `verbose`; this process has its own again
    behind it."""
    if verbose:
        yield None
        return
    sys.stderr.flush()
    own = os.dup(_STANDARD_ERROR)
    kept = tempfile.TemporaryFile()  # noqa: SIM115, closed behind the block; the JVM goes on with its own descriptor
    os.dup2(kept.fileno(), _STANDARD_ERROR)
    try:
        yield kept
    finally:
        os.dup2(own, _STANDARD_ERROR)
        os.close(own)
        kept.close()


def _read(kept: IO[bytes] | None) -> str:
    if kept is None:
        return ""
    end = kept.seek(0, os.SEEK_END)
    kept.seek(max(end - _KEPT, 0))
    return kept.read().decode("utf-8", "replace")


def _reason(said: str, error: Exception) -> str | None:
    """Why the start failed, out of what the JVM has printed and the error of Python; None when neither tells."""
    if "UnsupportedClassVersionError" in said:
        return f"{_JAVA}: the one that is there is older (`java -version` tells)"
    if "All masters are unresponsive" in said:
        return "the Spark master takes a connection, but does not answer: is it one, and of this version of Spark?"
    for line in said.splitlines():
        found = re.match(r"(?:Error: |Invalid |Exception in thread \"main\" )(.+)", line)
        if found and "Could not create the Java Virtual Machine" not in line:
            return f"Spark does not start: {line.removeprefix('Error: ')}"
    found = re.search(r"(?:SparkException|IllegalArgumentException|BindException|UnknownHostException): (.+)",
                      str(error))
    if found:
        return f"Spark does not start: {found.group(1)}"
    if "JAVA_GATEWAY_EXITED" in str(error):
        last = [line.strip() for line in said.splitlines() if line.strip() and "spark-class: line " not in line][-1:]
        return "Spark does not start: " + (last[0] if last else "its JVM has ended without a word") + " (-v shows all)"
    return None
