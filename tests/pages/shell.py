"""A reader's machine for one page: a clone of this checkout, a shell, a Python prompt, all ports free."""
import fcntl
import functools
import os
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.support.programs import not_installed
from tests.support.sources import ROOT
from tests.support.start_as import killed_with_parent
from tests.support.wait import wait_until

# A machine for the reader of one page, with a shell, a Python prompt, and all ports free.
#
# It has its own namespaces for network, processes and mounts: the page's ports, `bin/mqshutdown` and files are its
# own, and everything that it has started ends with it. At the path of the fresh clone it sees a copy that it may
# change. Needs root.

COMMAND_MS, PROMPT_MS = 240_000, 240_000
_TOOLS = ("bash", "ip", "mount", "nsenter", "unshare")
_DRIVER = """
ip link set lo up && mount --bind "$2" "$3" && cd "$3" || exit
exec 3<"$1"
while IFS= read -r file <&3; do
    { . "$file"; } >"$file.out" 2>&1 </dev/null 3<&-
    echo $? >"$file.ended" && mv "$file.ended" "$file.status"
done
"""
_ERRORS = ("Traceback (most recent call last)", '  File "<stdin>", line ')


@functools.cache
def why_not() -> str | None:
    """Return the reason why pages can't be run here; None when they can."""
    missing = not_installed(*_TOOLS)
    if missing is not None:
        return missing
    if os.geteuid() != 0:
        return "needs root for namespaces"
    tried = subprocess.run([*_unshare(), "sh", "-c", "ip link set lo up && mount -t tmpfs none /mnt"],
                           capture_output=True, text=True, check=False, timeout=600)
    return f"namespaces do not work here: {tried.stderr}" if tried.returncode else None


def _unshare() -> list[str]:
    return ["unshare", "--net", "--pid", "--mount", "--fork", "--kill-child", "--mount-proc"]


@dataclass(frozen=True)
class Done:
    """A command that has ended: its output (errors included) and its exit status."""

    output: str
    status: int
    # Output of the processes that the command has started with &.
    file: Path

    def output_now(self) -> str:
        """Return the output so far."""
        return self.file.read_text("utf-8", "replace")


class Machine:
    """One reader's machine. `clone` is the path that the reader sees, `folder` holds the machine's files."""

    def __init__(self, clone: Path, folder: Path, env: dict[str, str]) -> None:
        self.clone = clone
        self.home = folder / "home"
        # The content of `clone`, seen from outside.
        self.copy = folder / "clone"
        self._env = {**env, "HOME": str(self.home)}
        self._commands = folder / "commands"
        self._count = 0
        self._prompt: Prompt | None = None
        self._process: subprocess.Popen | None = None
        # Descriptors: the pipe from which the shell reads commands, and the host's network.
        self._names = self._network = -1

    def start(self) -> "Machine":
        """Copy the clone, and start the shell in it."""
        self.home.mkdir(parents=True)
        self._commands.mkdir()
        self.copy.mkdir()
        # Files in linked folders are replaced, never written to.
        whole, linked = [], []
        for path in self.clone.iterdir():
            (linked if path.name in (".git", ".venv") else whole).append(path)
        subprocess.run(["cp", "-a", *whole, self.copy], check=True, timeout=600)
        subprocess.run(["cp", "-al", *linked, self.copy], check=True, timeout=600)
        fifo = self._commands / "names"
        os.mkfifo(fifo)
        self._names = os.open(fifo, os.O_RDWR)
        self._network = os.open("/proc/self/ns/net", os.O_RDONLY)
        with open(self._commands / "driver.out", "wb") as out:
            self._process = subprocess.Popen(
                killed_with_parent([*_unshare(), "bash", "--noprofile", "--norc", "-c", _DRIVER, "bash", fifo,
                                    self.copy, self.clone]),
                env=self._env, stdin=subprocess.DEVNULL, stdout=out, stderr=out, pass_fds=[self._network])
        return self

    def __enter__(self) -> "Machine":
        return self.start()

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def run(self, command: str, timeout_ms: int = COMMAND_MS, online: bool = False) -> Done:
        """Run a command in the shell, and wait for its end; processes that it starts with & keep running.

        With `online` it runs in the network of this host, in its own shell with the same environment.
        """
        words = f"nsenter --net=/proc/self/fd/{self._network} bash -c {shlex.quote(command)}" if online else command
        file = self._send(words)
        status = file.with_name(f"{file.name}.status")
        wait_until(lambda: status.exists() or self._has_ended(), timeout_ms, f"the end of: {command}")
        out = file.with_name(f"{file.name}.out")
        output = out.read_text("utf-8", "replace") if out.exists() else ""
        assert status.exists(), f"the shell has ended in: {command}\n{output}{self._driver_output()}"
        return Done(output, int(status.read_text("ascii")), out)

    def _send(self, command: str) -> Path:
        self._count += 1
        file = self._commands / str(self._count)
        file.write_text(command + "\n", "utf-8")
        os.write(self._names, f"{file}\n".encode())
        return file

    def _driver_output(self) -> str:
        return (self._commands / "driver.out").read_text("utf-8", "replace")

    def _has_ended(self) -> bool:
        assert self._process is not None
        return self._process.poll() is not None

    @property
    def prompt(self) -> "Prompt":
        """The machine's Python prompt, which opens on first use."""
        if self._prompt is None:
            self._prompt = Prompt(self, self._commands / "prompt")
        return self._prompt

    @property
    def is_at_the_prompt(self) -> bool:
        """Return whether Python's prompt is open."""
        return self._prompt is not None

    def leave_the_prompt(self) -> None:
        """Press Ctrl-D."""
        if self._prompt is not None:
            self._prompt.close()
            self._prompt = None

    @property
    def init(self) -> int:
        """The process id of the machine's shell, seen from outside."""
        assert self._process is not None
        children = wait_until(lambda: self._has_ended() or psutil.Process(self._process.pid).children())
        assert isinstance(children, list), self._driver_output()
        return children[0].pid

    def processes(self) -> list[str]:
        """Return the command lines of the processes that run there, except the shell's."""
        init = self.init
        found = []
        for process in psutil.Process(init).children(recursive=True):
            try:
                if process.status() != psutil.STATUS_ZOMBIE:
                    found.append(" ".join(process.cmdline()))
            except psutil.NoSuchProcess:
                continue
        return found

    def outputs(self) -> str:
        """Return all commands so far with their output, for a failure report."""
        texts = []
        for number in range(1, self._count + 1):
            file = self._commands / str(number)
            out = file.with_name(f"{number}.out")
            texts.append(f"$ {file.read_text('utf-8')}{out.read_text('utf-8', 'replace') if out.exists() else ''}")
        return "".join(texts)

    def close(self) -> None:
        """End the machine and all of its processes."""
        if self._process is not None:
            inside = [] if self._has_ended() else psutil.Process(self._process.pid).children(recursive=True)
            self._process.kill()
            self._process.wait(240)
            psutil.wait_procs(inside, 60)
            self._process = None
            os.close(self._names)
            os.close(self._network)
            shutil.rmtree(self.copy, ignore_errors=True)


class Prompt:
    """Python's prompt in a machine's shell, with its environment; a pasted block is answered as at a terminal."""

    def __init__(self, machine: Machine, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self._count = 0
        number = len(list(folder.iterdir()))
        self._in, self._out, self._err = (folder / f"{number}.{name}" for name in ("in", "out", "err"))
        os.mkfifo(self._in)
        self._keys = os.open(self._in, os.O_RDWR)
        self._machine = machine
        started = machine.run(f".venv/bin/python -i <{self._in} >{self._out} 2>{self._err} & prompt=$!")
        assert started.status == 0, started.output

    def paste(self, block: str) -> str:
        """Paste a block, press Enter once more, and return the output. An exception fails."""
        self._count += 1
        begin_out, begin_err = self._size(self._out), self._size(self._err)
        end = f"<the end of paste {self._count}>\n"
        text = f"{block}\nimport sys; _ = sys.stdout.write({end!r}); sys.stdout.flush()\n"
        os.write(self._keys, text.encode())
        wait_until(lambda: end in self._since(self._out, begin_out) or self._has_failed(begin_err) or
                   self._machine._has_ended(), PROMPT_MS, f"the end of:\n{block}")
        assert not self._has_failed(begin_err), f"{block}\n{self._since(self._err, begin_err)}"
        return self._since(self._out, begin_out).removesuffix(end)

    def _has_failed(self, begin: int) -> bool:
        return any(error in self._since(self._err, begin) for error in _ERRORS)

    @staticmethod
    def _size(file: Path) -> int:
        return file.stat().st_size if file.exists() else 0

    @staticmethod
    def _since(file: Path, begin: int) -> str:
        return file.read_bytes()[begin:].decode("utf-8", "replace") if file.exists() else ""

    def close(self) -> None:
        """Close the prompt, and wait for the process."""
        os.close(self._keys)
        ended = self._machine.run("wait $prompt")
        assert ended.status == 0, f"the prompt ended with {ended.status}: {self._since(self._err, 0)}"


# A clone of this checkout as a newcomer has it after running `bin/quickstart` there; made once per test run.
#
# It includes uncommitted changes, so that a page can be run before it is committed. The machines of `shell.py` see
# copies of it, at its path: an installation contains its own path.

_NO_INDEX = "pip needs a package index"
# The package index is a matter of the host that runs the tests, not of the page.
_KEPT = ("PIP_", "SSL_CERT_", "http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "no_proxy",
         "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


@dataclass(frozen=True)
class Fresh:
    """The clone, and the output of its first `bin/quickstart`."""

    folder: Path
    first_run: str
    first_run_errors: str


def environment(home: Path) -> dict[str, str]:
    """Return the environment of a login shell: nothing from the tests' own environment except the package index
    settings."""
    own = {str(ROOT / ".venv" / "bin"), os.path.join(os.environ.get("VIRTUAL_ENV", str(ROOT)), "bin")}
    path = os.pathsep.join(part for part in os.environ["PATH"].split(os.pathsep) if part not in own)
    kept = {name: value for name, value in os.environ.items() if name.startswith(_KEPT)}
    return {**kept, "PATH": path, "HOME": str(home), "LANG": "C.UTF-8", "TERM": "xterm", "USER": "reader",
            "SHELL": "/bin/bash"}


def unavailable(reason: str) -> None:
    """Skip with the reason why pages can't be run here; fail with RMQHA_REQUIRE_PAGES=1."""
    (pytest.fail if os.environ.get("RMQHA_REQUIRE_PAGES") == "1" else pytest.skip)(reason)


def fresh(shared: Path) -> Fresh:
    """Return the clone below a folder that all processes of a test run share; the first process that asks makes it."""
    reason = why_not()
    if reason is not None:
        unavailable(reason)
    shared.mkdir(parents=True, exist_ok=True)
    made, failed = shared / "first-run.out", shared / "unavailable"
    with open(shared / "lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if failed.exists():
            unavailable(failed.read_text("utf-8"))
        if not made.exists():
            _make(shared, made, failed)
    return Fresh(shared / "rmqha", made.read_text("utf-8"), (shared / "first-run.err").read_text("utf-8"))


def _make(shared: Path, made: Path, failed: Path) -> None:
    def give_up(why: str) -> None:
        failed.write_text(why, "utf-8")
        unavailable(why)

    clone, home = shared / "rmqha", shared / "home"
    shutil.rmtree(clone, ignore_errors=True)
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir()
    cloned = subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(clone)], text=True,
                            capture_output=True, check=False, timeout=600)
    if cloned.returncode:
        give_up(f"this is not a checkout that git can clone: {cloned.stderr}")
    _take_along_what_is_not_committed(clone)
    with open(shared / "first-run.err", "wb") as err:
        ran = subprocess.run(["bin/quickstart"], cwd=clone, env=environment(home), stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, stderr=err, check=False, timeout=900)
    errors = (shared / "first-run.err").read_text("utf-8")
    if ran.returncode and _NO_INDEX in errors:
        give_up(f"nothing can be installed here: {errors}")
    assert ran.returncode == 0, ran.stdout.decode() + errors
    part = made.with_suffix(".part")
    part.write_bytes(ran.stdout)
    part.rename(made)


def _git(*words: str) -> list[str]:
    done = subprocess.run(["git", *words, "-z"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=600)
    return [name for name in done.stdout.split("\0") if name]


def _take_along_what_is_not_committed(clone: Path) -> None:
    for name in {*_git("diff", "--name-only", "HEAD"), *_git("ls-files", "--others", "--exclude-standard")}:
        source, target = ROOT / name, clone / name
        if not os.path.lexists(source):
            target.unlink(missing_ok=True)
        # Skips `.venv` where it is a link to another folder.
        elif source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
