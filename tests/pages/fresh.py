"""A clone of this checkout as a newcomer has it, who has run `bin/quickstart` there; made once a test run.

What is not committed yet is taken along, so that a page can be run before it is committed. The machines of
`shell.py` see copies of it, at its path: an installation knows where it lies.
"""
import fcntl
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.pages import shell
from tests.support.sources import ROOT

_NO_INDEX = "pip needs a package index"
# Where packages come from is a matter of the host that runs the tests, not of the page.
_KEPT = ("PIP_", "SSL_CERT_", "http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "no_proxy",
         "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


@dataclass(frozen=True)
class Fresh:
    """The clone, and what its first `bin/quickstart` printed."""

    folder: Path
    first_run: str
    first_run_errors: str


def environment(home: Path) -> dict[str, str]:
    """What a shell has after a login: nothing of the tests' own environment but where packages come from."""
    own = {str(ROOT / ".venv" / "bin"), os.path.join(os.environ.get("VIRTUAL_ENV", str(ROOT)), "bin")}
    path = os.pathsep.join(part for part in os.environ["PATH"].split(os.pathsep) if part not in own)
    kept = {name: value for name, value in os.environ.items() if name.startswith(_KEPT)}
    return {**kept, "PATH": path, "HOME": str(home), "LANG": "C.UTF-8", "TERM": "xterm", "USER": "reader",
            "SHELL": "/bin/bash"}


def unavailable(reason: str) -> None:
    """Skip, with the reason why pages can't be run here; with RMQHA_REQUIRE_PAGES=1 fail."""
    (pytest.fail if os.environ.get("RMQHA_REQUIRE_PAGES") == "1" else pytest.skip)(reason)


def fresh(shared: Path) -> Fresh:
    """The clone below a folder that all processes of a test run share; the first that asks makes it."""
    reason = shell.why_not()
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
        elif source.is_file():  # not `.venv`, where that is a link to another folder
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
