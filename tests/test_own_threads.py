"""Whose threads a test counts."""
import threading

from tests.support.own_threads import begin_test, own_threads


def _started(body, name):
    thread = threading.Thread(target=body, name=name, daemon=True)
    thread.start()
    return thread


def _starter(may_start, may_end):
    """A thread that starts another when it may: (it, what it has started)."""
    born = []

    def body():
        may_start.wait(240)
        born.append(_started(lambda: may_end.wait(240), "child"))
    return _started(body, "parent"), born


def test_threads_of_the_test_and_theirs_are_its_own():
    may_start, may_end = threading.Event(), threading.Event()
    parent, born = _starter(may_start, may_end)
    assert own_threads() == {parent}
    may_start.set()
    parent.join(240)
    assert own_threads() == set(born) and len(born) == 1  # though who has started it is gone
    may_end.set()
    born[0].join(240)
    assert not own_threads()


def test_threads_of_an_earlier_test_and_theirs_are_not():
    may_start, may_end = threading.Event(), threading.Event()
    parent, born = _starter(may_start, may_end)
    begin_test()
    may_start.set()
    parent.join(240)
    assert born[0].is_alive() and not own_threads()
    may_end.set()
    born[0].join(240)
