"""What a broker costs before it has done anything."""
import time

from tests.support.nodes import MIB

# Aims: under 2 s and under 100 MiB. The time is asserted with a wide margin: other tests may share the machine.
BOOT_S = 10
RSS_MIB = 100


def test_broker_boots_soon_and_small(make_namesrv, make_broker, capsys):
    namesrv = make_namesrv("rmqha")
    broker = make_broker("rmqha", namesrv.address, start=False, mappedFileSizeCommitLog=1024 * MIB,
                         mappedFileSizeConsumeQueue=6_000_000, maxHashSlotNum=5_000_000, maxIndexNum=20_000_000)
    begin = time.monotonic()
    broker.start()
    took = time.monotonic() - begin
    rss = broker.rss_bytes() / MIB
    with capsys.disabled():
        print(f"\nbroker with an empty store: boots in {took:.2f} s, {rss:.0f} MiB; "
              f"name server {namesrv.rss_bytes() / MIB:.0f} MiB")
    assert took < BOOT_S
    assert rss < RSS_MIB
