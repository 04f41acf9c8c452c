"""The collector rests while somebody decodes much, and is as it was afterwards."""
import gc
import threading

import pytest

from rmqha.common.garbage_pause import no_garbage_collection


def test_collector_rests_until_the_last_has_ended():
    assert gc.isenabled()
    inside, may_end = threading.Event(), threading.Event()

    def other():
        with no_garbage_collection:
            inside.set()
            may_end.wait(240)

    thread = threading.Thread(target=other)
    with no_garbage_collection:
        thread.start()
        assert inside.wait(240)
    assert not gc.isenabled()
    may_end.set()
    thread.join(240)
    assert gc.isenabled()


def test_collector_goes_on_after_an_error():
    with pytest.raises(ValueError), no_garbage_collection:
        raise ValueError
    assert gc.isenabled()


def test_collector_that_was_off_stays_off():
    gc.disable()
    try:
        with no_garbage_collection:
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()
