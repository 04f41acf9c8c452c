"""Code that runs in a forked process."""
import json
import os
import signal
import traceback
import warnings
from collections.abc import Callable
from typing import Any

_LIMIT_S = 120


def in_forked_process(work: Callable[[], Any]) -> Any:
    """What `work` gives in a process that is forked from this one; it has to be JSON. AssertionError when it hangs."""
    read_end, write_end = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of a process with threads, which it is about
        pid = os.fork()
    if pid == 0:
        _run_and_exit(work, write_end)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        said = pipe.read()
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status == 0, f"the forked process ended with {status} (a negative number is a signal): {said.decode()}"
    return json.loads(said)


def _run_and_exit(work: Callable[[], Any], write_end: int) -> None:
    status = 1
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(_LIMIT_S)
        said = json.dumps(work())
        status = 0
    except BaseException:
        said = traceback.format_exc()
    os.write(write_end, said.encode())
    os._exit(status)
