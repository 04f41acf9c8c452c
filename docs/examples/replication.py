"""Watch a slave follow its master, then read the last record from both commit logs: the bytes are the same.

The program reads the brokers' files, so they must be on this host. docs/tutorials shows how to start such a cluster.
"""
import time
from pathlib import Path

from rmqha import Message, Producer
from rmqha.common.message import message_decoder

with Producer("replication_watchers") as producer:
    result = producer.send(Message("Watched", b"first", keys="begin"))  # creates the topic and finds a broker
    name = result.message_queue.brokerName
    while len(addresses := producer.api.get_broker_cluster_info(3_000).brokerAddrTable[name].brokerAddrs) < 2:
        print(f"{name} has no slave yet; a running slave registers within 30 s")
        time.sleep(1)
    master, slave = addresses[0], addresses[1]

    def end(address: str) -> int:  # the commit log offset of a broker's next message
        return int(producer.api.get_broker_runtime_info(address, 3_000).table["commitLogMaxOffset"])

    for n in range(3):
        result = producer.send(Message("Watched", b"%d apples" % n, keys=f"key-{n}"), queue=result.message_queue)
        while (behind := end(master) - end(slave)) > 0:
            time.sleep(0.01)
        print(f"{result.msg_id}: {result.send_status.name}, master and slave end at {end(master)}")

    records: list[bytes] = []
    offset = message_decoder.decode_message_id(result.offset_msg_id or "").offset
    for address in (master, slave):
        config = producer.api.get_broker_config(address, 3_000)
        folder = config.get("storePathCommitLog") or f"{config['storePathRootDir']}/commitlog"
        file = max(path for path in Path(folder).iterdir() if int(path.name) <= offset)  # named after its first offset
        log, start = file.read_bytes(), offset - int(file.name)
        records.append(log[start:start + int.from_bytes(log[start:start + 4], "big")])  # a record begins with its size
message = message_decoder.decode(records[1])
print(f"{len(records[1])} bytes at {message.commit_log_offset} of {folder}:")
print(f"topic {message.topic}, queue {message.queue_id}, offset {message.queue_offset}, {bytes(message.body)!r}")
print("the master has the same bytes" if records[0] == records[1] else "the master has OTHER bytes")
