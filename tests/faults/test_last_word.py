"""The last word on a life finds what is not there, on the wire and in the files."""
from dataclasses import replace

import pytest

from tests.faults import last_word
from tests.faults.drawn_messages import KIB, Drawing
from tests.faults.log_copy import LogCopy
from tests.faults.pair import SMALL
from tests.faults.pair_broker import Broker
from tests.faults.senders import Senders
from tests.faults.verdict import Violation, check_queues
from tests.support import store_compare


def test_what_is_not_what_was_sent_is_found(tmp_path):
    broker = Broker("rmqha", tmp_path / "one", "one", **SMALL)
    try:
        broker.start(120_000)
        senders = Senders(broker.address, "s", 1, tmp_path / "journal", drawing=Drawing(128 * KIB))
        try:
            senders.go()
            senders.wait_for_more(200)
            senders.pause()
        finally:
            senders.close()
        copy = LogCopy(broker.commit_log)
        check_queues(broker, copy)
        placed = list(senders.acknowledged.items())
        assert last_word.check_by_offset(broker.address, "one", placed) == len(placed) >= 200
        assert last_word.check_by_queue(broker.address, "one", copy) == copy.count >= 200
        last_word.check_store(broker)
        name, first = placed[0]
        for wrong in (replace(first, crc=first.crc ^ 1), replace(first, offset=first.offset + 12)):
            with pytest.raises(Violation, match=f"read from the one at {wrong.offset}"):
                last_word.check_by_offset(broker.address, "one", [(name, wrong)])
        copy.places[name] = [(*first.place()[:-1], first.crc ^ 1)]
        with pytest.raises(Violation, match="a consumer reads"):
            last_word.check_by_queue(broker.address, "one", copy)
        # a CRC; nobody looks at that of an empty body
        offset = next(record.offset for record in store_compare.walk(broker.commit_log) if record.body)
        with open(broker.commit_log / f"{0:020d}", "r+b") as log:
            log.seek(offset + 8)
            log.write(b"\x7f\xff\xff\xff")
        with pytest.raises(Violation, match="V: store verify of the one: code 1"):
            last_word.check_store(broker)
    finally:
        broker.kill()
