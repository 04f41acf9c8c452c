"""What all threads are doing."""
import gc
import sys
import threading

import pytest

from rmqha.common.threads import current_frames, thread_stacks


def test_each_thread_is_shown_innermost_call_first():
    begun, over = threading.Event(), threading.Event()

    def waits_for_its_end():
        begun.set()
        over.wait(240)
    thread = threading.Thread(target=waits_for_its_end, name="the-waiting-one")
    thread.start()
    try:
        assert begun.wait(240)
        calls = [line for line in thread_stacks().splitlines() if line.startswith("the-waiting-one")]
    finally:
        over.set()
        thread.join()
    assert f"TID: {thread.native_id} " in calls[0]
    names = [line[40:].partition("(")[0] for line in calls[1:]]
    assert names.index("waits_for_its_end") < names.index("run") < names.index("_bootstrap")


@pytest.mark.parametrize("collects", [True, False])
def test_nothing_is_collected_while_the_frames_are_taken(monkeypatch, collects):
    seen, take = [], sys._current_frames

    def watched():
        seen.append(gc.isenabled())
        return take()
    monkeypatch.setattr(sys, "_current_frames", watched)
    before = gc.isenabled()
    (gc.enable if collects else gc.disable)()
    try:
        assert threading.get_ident() in current_frames()
        assert seen == [False] and gc.isenabled() is collects
    finally:
        (gc.enable if before else gc.disable)()
