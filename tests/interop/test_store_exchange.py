"""A store that one kind of broker wrote: the other kind opens it, continues at its end, and reads all of it."""
import pytest

from tests.support import store_compare
from tests.support.java_driver import Workload, assert_all_read
from tests.support.load import small_sizes
from tests.support.mqadmin import pairs

TOPIC = "Exchanged"
QUEUES = 4
COUNT = 4_000
MORE = 400


@pytest.mark.parametrize("ending", ["stopped", "killed"])
@pytest.mark.parametrize("writer, reader", pairs(("rmqha", "java"), ("java", "rmqha")))
def test_other_broker_continues_the_store(writer, reader, ending, make_namesrv, make_broker, java_driver):
    namesrv = make_namesrv(reader).address
    broker = make_broker(writer, namesrv, shared_jvm=ending == "stopped")
    java_driver.create_topic(namesrv, broker.address, TOPIC, QUEUES)
    load = Workload(TOPIC, COUNT + MORE, small_sizes(COUNT + MORE, seed=4))
    first = java_driver.produce(namesrv, load.part(0, COUNT))
    assert [one for one in first if not one.ok] == []
    assert_all_read(java_driver.consume(namesrv, load.part(0, COUNT), "old-group"), load.part(0, COUNT), first)
    if ending == "stopped":
        broker.stop()
        assert not (broker.store / "abort").exists()
    else:
        broker.kill()
        assert (broker.store / "abort").exists()
    end = store_compare.log_end(broker.commit_log)

    broker.become(reader).start()
    assert store_compare.log_end(broker.commit_log) == end
    more = java_driver.produce(namesrv, load.part(COUNT, MORE), threads=1)
    assert [one for one in more if not one.ok] == []
    assert_all_read(java_driver.consume(namesrv, load, "new-group"), load, first + more)
    assert store_compare.check_consume_queues(broker.store) == COUNT + MORE
    assert java_driver.query_keys(namesrv, TOPIC, ["key-5", f"key-{COUNT + 5}"]) == [[5], [COUNT + 5]]
    # the store has the group's offsets: only new messages
    if ending == "stopped":
        report = java_driver.consume(namesrv, load.part(COUNT, MORE), "old-group")
        assert_all_read(report, load.part(COUNT, MORE), more)
