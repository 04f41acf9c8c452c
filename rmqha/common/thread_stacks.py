"""What all threads are doing."""
import gc
import sys
import threading
import traceback
from types import FrameType

_looking = threading.Lock()


def current_frames() -> dict[int, FrameType]:
    """The innermost frame of each thread, by its ident.

    Without a garbage collection meanwhile: CPython 3.11 looks at the threads under a lock that a thread which ends, or
    lets go a threading.local, wants too. A collection that gives up the GIL there would stop the process for ever.
    """
    with _looking:
        collects = gc.isenabled()
        gc.disable()
        try:
            return sys._current_frames()
        finally:
            if collects:
                gc.enable()


def thread_stacks() -> str:
    """The stacks of all threads of this process: a thread's name before each line, innermost call first.

    Java: org.apache.rocketmq.common.UtilAll#jstack (4.9.8)
    """
    frames = current_frames()
    stacks = []
    for thread in threading.enumerate():
        frame = frames.get(thread.ident or 0)
        if frame is None:
            continue
        # Differs: CPython does not tell whether a thread runs, waits or is blocked
        stacks.append(f"{thread.name:<40}TID: {thread.native_id} STATE: UNKNOWN\n")
        for call in reversed(traceback.extract_stack(frame)):
            file = call.filename.rpartition("/")[2]
            stacks.append(f"{thread.name:<40}{call.name}({file}:{call.lineno})\n")
        stacks.append("\n")
    return "".join(stacks)
