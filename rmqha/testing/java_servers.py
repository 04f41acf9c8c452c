"""Servers of the real Apache RocketMQ, each in a JVM of its own, from an unpacked release.

- `release_at`: finds the jars of a release, 4.9 or 5.x, and its version.
- `JavaServer`: a name server or a broker. It ends with the process that has started it.
"""
from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from rmqha.common import mix_all
from rmqha.testing.cluster_parts import EmbeddedError, wait_until

NAMESRV, BROKER = "org.apache.rocketmq.namesrv.NamesrvStartup", "org.apache.rocketmq.broker.BrokerStartup"
_READY = "boot success"
_READY_S = 120
_END_S = 60
_TAIL = 2_000  # characters of the output in an error
# A small JVM that starts quickly. The disk is the one of the machine's other programs, so its usage must not matter
_OPTIONS = ("-Xms64m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
            "-Drocketmq.broker.diskSpaceWarningLevelRatio=0.99", "-Drocketmq.broker.diskSpaceCleanForciblyRatio=0.98")
# Otherwise each server creates an RSA key when it starts, which takes seconds of CPU
_NO_TLS = "-Dtls.server.mode=disabled"
# Java 9 and later hide internals that RocketMQ uses. Java 8 does not read this variable, and has no such options
_JAVA_9_OPTIONS = "JDK_JAVA_OPTIONS"
_OPENS = ("--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED --add-opens=java.base/jdk.internal.ref=ALL-UNNAMED "
          "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED --add-opens=java.base/java.nio=ALL-UNNAMED "
          "--add-opens=java.base/java.lang=ALL-UNNAMED")
_LOGBACK = """<configuration>
  <appender name="STDOUT" class="{package}ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d{{HH:mm:ss.SSS}} %p %c{{0}} %m%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="STDOUT"/></root>
</configuration>
"""
_SHADED = "org.apache.rocketmq.logging."  # 5.x has its own copy of logback
# Becomes the JVM, which the kernel then ends with its parent
_START = ("import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 9); "
          "os.execv(sys.argv[1], sys.argv[1:])")
_BROKER_JAR = re.compile(r"rocketmq-broker-(\d[\w.-]*)\.jar")


class Release(NamedTuple):
    """A release of RocketMQ: the folder of its jars, and its version."""

    jars: Path
    version: str


def release_at(home: str | os.PathLike[str]) -> Release:
    """Return the release in a folder: an unpacked binary release, or a folder of its jars. EmbeddedError if there is
    none."""
    for folder in (Path(home) / "lib", Path(home)):
        if not folder.is_dir():
            continue
        versions = [found[1] for found in map(_BROKER_JAR.fullmatch, sorted(map(str, os.listdir(folder)))) if found]
        if len(versions) > 1:
            raise EmbeddedError(f"{folder} has the jars of several releases of RocketMQ: {', '.join(versions)}")
        if versions and any(folder.glob("rocketmq-namesrv-*.jar")):
            return Release(folder, versions[0])
    raise EmbeddedError(f"{os.fspath(home)} is not a binary release of Apache RocketMQ: it has no lib/rocketmq-broker-"
                        "VERSION.jar or no lib/rocketmq-namesrv-VERSION.jar; unpack rocketmq-all-VERSION-bin-release"
                        ".zip, and use the folder that has bin and lib")


def java_program() -> str:
    """Return the path of java: that of JAVA_HOME, else the one on PATH. EmbeddedError if neither exists."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=os.path.join(home, "bin")) if home else shutil.which("java")
    if found is None:
        where = f"in JAVA_HOME={home}/bin" if home else "on PATH, and JAVA_HOME is not set"
        raise EmbeddedError(f"the backend java needs a Java run time: java was not found {where}")
    return found


class JavaServer:
    """One server of a release, with its config file and its output in `folder`. `start` starts it."""

    def __init__(self, name: str, release: Release, main_class: str, folder: Path) -> None:
        self.name = name
        self._release = release
        self._main_class = main_class
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None  # from `launch` to `kill`

    @property
    def is_running(self) -> bool:
        """True if the server was started, and not killed since."""
        return self._process is not None

    @property
    def pid(self) -> int:
        """The process id of the JVM; EmbeddedError if it is down."""
        if self._process is None:
            raise EmbeddedError(f"{self.name} is down; restart({self.name!r}) starts it again")
        return self._process.pid

    def launch(self, properties: Mapping[str, object]) -> None:
        """Start the server with this config, and do not wait until it is ready."""
        self._folder.mkdir(parents=True, exist_ok=True)
        config = self._folder / f"{self.name}.conf"
        config.write_text("".join(f"{key}={mix_all.property_text(value)}\n" for key, value in properties.items()),
                          "utf-8")
        logback = _write_logback(self._folder, self._release)
        tls = () if "tls." in os.environ.get("JAVA_TOOL_OPTIONS", "") else (_NO_TLS,)
        command = [sys.executable, "-ISBc", _START, java_program(), *_OPTIONS, *tls, f"-Duser.home={self._folder}",
                   f"-Drocketmq.client.logRoot={self._folder}/clientlogs", "-Drocketmq.client.logLevel=WARN",
                   f"-Drmq.logback.configurationFile={logback}", "-cp", f"{self._release.jars}/*", self._main_class,
                   "-c", str(config)]
        env = {**os.environ, "ROCKETMQ_HOME": str(self._folder),
               _JAVA_9_OPTIONS: f"{_OPENS} {os.environ.get(_JAVA_9_OPTIONS, '')}".strip()}
        with open(self._output, "wb") as output:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output,
                                             stderr=subprocess.STDOUT, env=env)

    @property
    def _output(self) -> Path:
        return self._folder / f"{self.name}.out"

    def wait_until_ready(self) -> None:
        """Wait until the server serves; EmbeddedError with the end of its output if it exits instead."""
        wait_until(self._is_ready, _READY_S, f"{self.name} of RocketMQ {self._release.version} is ready")

    def _is_ready(self) -> bool:
        text = self._output.read_text("utf-8", "replace")
        code = self._process.poll() if self._process is not None else None
        if code is not None:
            raise EmbeddedError(f"{self.name} of RocketMQ {self._release.version} has exited with code {code}: "
                                f"{text.strip()[-_TAIL:]}")
        return _READY in text

    def kill(self) -> None:
        """Kill the server like SIGKILL. Idempotent."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait(_END_S)


def _write_logback(folder: Path, release: Release) -> Path:
    """Write the logback files of a server, which prints warnings and errors; return the path of the one of 5.x."""
    conf = folder / "conf"
    conf.mkdir(exist_ok=True)
    text = _LOGBACK.format(package="" if release.version.startswith("4.") else _SHADED)
    for name in ("namesrv", "broker"):
        (conf / f"logback_{name}.xml").write_text(text, "ascii")
    return conf / "logback_broker.xml"
