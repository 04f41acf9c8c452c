"""Prepares this process, then becomes a command: `python start_as.py [--ctrl-c] [--end-with N] COMMAND...`.

A function that Popen calls between fork and exec would do the same in a copy of the whole test process, in which locks
that other threads held stay locked. Such a child once waited forever for the lock of a log handler.
"""
import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def end_with_parent(number: int) -> None:
    """Send this process the signal `number` when the thread that created it ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)


def command(words: list, *, end_with: int = 0, ctrl_c: bool = False) -> list[str]:
    """Return the command `words`, which ends with the thread that starts it, by signal `end_with`.

    With `ctrl_c` it handles Ctrl-C and the end of a terminal even if a shell or nohup had them ignored.
    """
    options = [*(["--ctrl-c"] if ctrl_c else []), *(["--end-with", str(int(end_with))] if end_with else [])]
    return [sys.executable, "-ISB", __file__, *options, *map(os.fspath, words)]


def killed_with_parent(words: list) -> list[str]:
    """Return the command of a server or a helper of a test, none of which may remain."""
    return command(words, end_with=signal.SIGKILL)


def main(words: list[str]) -> None:
    """Prepare the process, and become the command."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    while words[0] in ("--ctrl-c", "--end-with"):
        if words.pop(0) == "--ctrl-c":
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        else:
            end_with_parent(int(words.pop(0)))
    try:
        os.execvp(words[0], words)
    except OSError as error:
        sys.exit(f"{words[0]}: {error.strerror}")


if __name__ == "__main__":
    main(sys.argv[1:])
