"""Java's mqadmin, a JVM a command.

A JVM that starts beside busy ones may not see within its own time-out an answer that came in time. Such a run says
nothing about who answered: it is repeated, and whoever never answers makes all of them fail.
"""
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

from tests.support import real_rocketmq
from tests.support.processes import ServerProcess

_MQADMIN = "org.apache.rocketmq.tools.command.MQAdminStartup"
_TIMED_OUT = "RemotingTimeoutException"
_ATTEMPTS = 3


class JavaMqadmin:
    """The tool of a version of RocketMQ, whose files are in `folder`: output(*args) -> what it prints."""

    def __init__(self, folder: Path, version: str = real_rocketmq.VERSION) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "conf").mkdir(exist_ok=True)
        logback = folder / "conf" / "logback_tools.xml"
        logback.write_text('<configuration><root level="OFF"/></configuration>\n', "ascii")
        jars = real_rocketmq.jars() if version == real_rocketmq.VERSION else real_rocketmq.jars_of(version)
        self.command = [*real_rocketmq.java_command(), f"-Drmq.logback.configurationFile={logback}",
                        f"-Duser.home={folder}", "-cp", f"{jars}/*", _MQADMIN]
        self.env = {"ROCKETMQ_HOME": str(folder), "PATH": os.environ["PATH"]}

    def run(self, *args: str) -> subprocess.CompletedProcess:
        """Its end: code, stdout, stderr."""
        for _ in range(_ATTEMPTS):
            done = subprocess.run([*self.command, *args], capture_output=True, text=True, timeout=600, check=False,
                                  env=self.env)
            if _TIMED_OUT not in done.stdout + done.stderr:
                break
        return done

    def output(self, *args: str) -> str:
        """What it prints on standard output."""
        return self.run(*args).stdout


def start_endless(tool: ServerProcess, wait_up: Callable[[], object],
                  wait_gone: Callable[[], object] = lambda: None) -> None:
    """Start a command of Java's tool that goes on until it is killed, and wait until it is up."""
    for attempt in range(1, _ATTEMPTS + 1):
        tool.launch()
        wait_up()
        if attempt == _ATTEMPTS or _TIMED_OUT not in tool.output():
            break
        tool.kill()
        wait_gone()
        tool.output_file.unlink()
