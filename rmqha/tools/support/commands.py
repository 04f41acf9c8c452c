"""Runs other programs for a bundle: for a limited time, without input, and with limited output."""
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO

from rmqha.common.filesystem import package_folder

MAX_OUTPUT = 8 << 20
_MAX_WHY = 300
_TIMED_OUT = 124
# -P: the working directory must not provide modules.
_RMQHA = (sys.executable, "-P", "-m", "rmqha.launch", "rmqha")


@dataclass(frozen=True)
class Outcome:
    """The exit code of a program, and what it printed, each cut to MAX_OUTPUT."""

    code: int
    output: bytes = b""
    errors: bytes = b""

    def text(self) -> str:
        """Return the output as text."""
        return self.output.decode("utf-8", "replace")

    def why(self) -> str:
        """Return why the program failed: the last line that it printed."""
        said = (self.errors or self.output).decode("utf-8", "replace").strip().splitlines()
        return said[-1].removeprefix("Error: ")[:_MAX_WHY] if said else f"exit code {self.code}"


def run(command: Sequence[str], timeout_s: float) -> Outcome:
    """Run a program, and kill it when it takes longer than `timeout_s`."""
    return run_rest(start(command), timeout_s)


@dataclass
class Started:
    """A program that runs, and the files that receive its output."""

    process: "subprocess.Popen[bytes] | None"
    output: IO[bytes]
    errors: IO[bytes]
    failure: str = ""


def start(command: Sequence[str]) -> Started:
    """Start a program. Its output goes to files, so that it never waits for this process."""
    output, errors = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115, run_rest closes them
    try:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, env=_environment(),
                                   start_new_session=True)
    except OSError as error:
        return Started(None, output, errors, f"{command[0]}: {error.strerror}")
    return Started(process, output, errors)


def start_rmqha(arguments: Sequence[str]) -> Started:
    """Start a command of rmqha in another process: it can be killed, and its failure harms nothing here."""
    return start([*_RMQHA, *arguments])


def run_rest(started: Started, timeout_s: float) -> Outcome:
    """Wait for a program, at most `timeout_s`, and return its outcome."""
    with started.output, started.errors:
        if started.process is None:
            return Outcome(_TIMED_OUT, errors=started.failure.encode())
        try:
            code = started.process.wait(max(timeout_s, 0.1))
        except subprocess.TimeoutExpired:
            started.process.kill()
            started.process.wait()
            return Outcome(_TIMED_OUT, errors=f"it took longer than {timeout_s:.0f} s".encode())
        return Outcome(code, _beginning(started.output), _beginning(started.errors))


def _beginning(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read(MAX_OUTPUT)


def _environment() -> dict[str, str]:
    # The same rmqha as this one, also from a checkout; plain English without colours.
    path = os.pathsep.join([str(package_folder().parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path, "NO_COLOR": "1", "LC_ALL": "C.UTF-8"}
