"""The text of `rmqha --version`: the version, the commit, Python, and the compiled parts.

The first line is click's, which scripts read. The module is imported only for this text.
"""
import os
import subprocess
import sys

from rmqha import __version__
from rmqha.common.filesystem import checkout, package_folder
from rmqha.common.texts import parse_json
from rmqha.native import kernels

UNKNOWN = "unknown"
_GIT = ("git", "--no-optional-locks", "describe", "--always", "--abbrev=40", "--dirty", "--exclude=*")
_LIMIT_S = 30


def report() -> str:
    """Return the lines of `rmqha --version`."""
    python = f"{sys.version.partition(' ')[0]} ({sys.implementation.name}), {sys.executable or UNKNOWN}"
    return "\n".join((f"rmqha, version {__version__}", f"commit: {commit()}", f"Python: {python}",
                      f"compiled parts: {compiled_parts()}"))


def commit() -> str:
    """Return the commit that this copy was built from, or that is checked out; `-dirty` follows it if files differ.

    `unknown` when neither git nor the file that the build backend writes says so.
    """
    file = package_folder() / "build.json"
    try:
        said = parse_json(file.read_bytes(), str(file))
        return str(said["commit"])
    except FileNotFoundError:
        return _checked_out()
    except (OSError, KeyError, TypeError, ValueError):  # built outside of a checkout, or not written by a build
        return UNKNOWN


def _checked_out() -> str:
    """Return git's HEAD."""
    folder = checkout()
    # Without this check, git would find another repository that contains the folder.
    if folder is None or not (folder / ".git").exists():
        return UNKNOWN
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(_GIT, cwd=folder, env=env, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return UNKNOWN
    return done.stdout.strip() if done.returncode == 0 else UNKNOWN


def compiled_parts() -> str:
    """Return the names of the compiled parts that are used, and of those that are not, with the reason."""
    used = ", ".join(kernel.name for kernel in kernels.KERNELS if kernel.module)
    reasons = {kernel.name: kernel.reason for kernel in kernels.KERNELS if not kernel.module}
    if not reasons:
        return used
    return f"{used or 'none'}; pure Python, slower: {', '.join(reasons)} ({'; '.join(dict.fromkeys(reasons.values()))})"
