"""What a broker costs before it has done anything; the time of a start is measured by `tests.bench.startup`."""
from tests.support.nodes import MIB

RSS_MIB = 100


def test_broker_boots_small(make_namesrv, make_broker):
    namesrv = make_namesrv("rmqha")
    broker = make_broker("rmqha", namesrv.address, mappedFileSizeCommitLog=1024 * MIB,
                         mappedFileSizeConsumeQueue=6_000_000, maxHashSlotNum=5_000_000, maxIndexNum=20_000_000)
    assert broker.rss_bytes() / MIB < RSS_MIB
