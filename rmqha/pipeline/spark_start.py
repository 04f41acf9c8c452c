"""Starting Spark for a command: report a missing requirement at once, in one line, and hide Spark's own output.

Spark's JVM and the Python workers that it starts inherit the standard error that this process has when it starts the
JVM. During the start, that is an unnamed temporary file, which is read if the start fails.
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
    """Return the session that `session` makes. PipelineError says why it could not start: Java is missing, no server
    listens at `master`, or what the JVM reported.
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
            # A JVM whose start was interrupted would wait forever, even after this process ends.
            for child in set(psutil.Process().children()) - before:
                child.kill()
            reason = _reason(_read(kept), error) if isinstance(error, Exception) else None
            if reason is None:
                raise
            raise PipelineError(reason) from error


def quiet_loggers() -> None:
    """Silence the line of some KiB that PySpark logs for each failed query: the command reports the error itself."""
    from pyspark.logger import PySparkLogger
    for name in _QUERY_LOGGERS:
        PySparkLogger.getLogger(name).disabled = True


def check_java() -> None:
    """Raise PipelineError if Spark would not find a `java` program."""
    home = os.environ.get("JAVA_HOME")
    if home:
        if not os.access(os.path.join(home, "bin", "java"), os.X_OK):
            raise PipelineError(f"{_JAVA}: JAVA_HOME is {home}, which has no bin/java")
    elif shutil.which("java") is None:
        raise PipelineError(f"{_JAVA}: `java` is not on PATH, and JAVA_HOME is not set")


def check_master(master: str) -> None:
    """Raise PipelineError if no address of a master accepts connections (spark://HOST:PORT,HOST:PORT or sc://HOST)."""
    scheme, _, rest = master.partition("://")
    default = 7077 if scheme == "spark" else 15002
    refusals = []
    for address in rest.partition("/")[0].partition(";")[0].split(","):
        host, colon, port = address.rpartition(":")
        if not colon:
            host, port = address, str(default)
        if not host or not port.isdecimal():
            raise PipelineError(f"--master {master}: {address!r} is not a valid host:port")
        why = refusal(host, int(port), CONNECT_TIMEOUT_S)
        if why is None:
            return
        refusals.append(f"{host}:{port}: {why}")
    raise PipelineError(f"no Spark master answers at {master} ({'; '.join(refusals)})")


def note_missing_executors(spark: Any, master: str, tell: Callable[[str], None]) -> None:
    """Wait up to FIRST_EXECUTOR_S for a cluster's first executor, and report if none has come: the job keeps waiting.
    """
    if not master.startswith(_STANDALONE) or spark.conf.get("spark.dynamicAllocation.enabled", "false") == "true":
        return
    context = spark.sparkContext._jsc.sc()
    deadline = time.monotonic() + FIRST_EXECUTOR_S
    # The driver counts as one.
    while context.getExecutorMemoryStatus().size() < 2:
        if time.monotonic() > deadline:
            tell(f"note {master} has not provided an executor within {FIRST_EXECUTOR_S} s. Does it have a worker with "
                 "a free core and 1 GiB of free memory? Still waiting")
            return
        time.sleep(_POLL_S)


@contextmanager
def _standard_error_kept(verbose: bool) -> Iterator[IO[bytes] | None]:
    """Redirect standard error to a file for the block, unless `verbose`, and restore it afterwards. Processes started
    in the block keep the file as their standard error.
    """
    if verbose:
        yield None
        return
    sys.stderr.flush()
    own = os.dup(_STANDARD_ERROR)
    # Closed after the block; the JVM keeps its own descriptor.
    kept = tempfile.TemporaryFile()  # noqa: SIM115
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
    """Return why the start failed, from the JVM's output and the Python error; None if neither says."""
    if "UnsupportedClassVersionError" in said:
        return f"{_JAVA}: the installed one is older (see `java -version`)"
    if "All masters are unresponsive" in said:
        return "the Spark master accepts connections but does not answer: is it Spark, and of the same version?"
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
        return "Spark does not start: " + (last[0] if last else "its JVM ended without any output") + " (-v shows all)"
    return None
