"""A consumer group's offsets, committed to the master without a pause: the witness of invariant D.

    D  an offset that was committed is there for as long as the broker lives, and one that was saved for ever: what a
       broker's file says never falls, on the slave neither, and a master that comes back knows what its file says
(of rmqha's files only: the original deletes a file before it puts the next one in its place)
"""
import json
import random
import re
import threading
import time
from pathlib import Path

from tests.faults.pair_broker import Broker
from tests.faults.senders import QUEUES, TOPIC
from tests.faults.verdict import Violation
from tests.support.raw_remoting import RawClient
from tests.support.wait import wait_until

GROUP = "FaultsGroup"
_UPDATE_CONSUMER_OFFSET, _QUERY_CONSUMER_OFFSET = 15, 14
_PAUSE_S = 0.05
_TIMEOUT_S = 120.0  # longer than any stop: what timed out could overwrite what was committed after it
_SAVED_MS = 60_000  # a broker saves for the first time 10 s after its start


def saved_offsets(broker: Broker) -> dict[int, int]:
    """Queue id -> offset, from the broker's file; {} while there is none."""
    path = Path(broker.store) / "config" / "consumerOffset.json"
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        return {}
    try:
        # numbers as keys have no quotes
        table = json.loads(re.sub(r"([{,]\s*)(\d+)(\s*:)", r'\1"\2"\3', text))["offsetTable"]
    except (ValueError, KeyError) as failure:
        raise Violation(f"D: {path} is neither old nor new: {failure}: {text[:99]!r}") from None
    return {int(queue): offset for queue, offset in table.get(f"{TOPIC}@{GROUP}", {}).items()}


class Commits:
    """Commits growing offsets while `go` holds; `check` holds what brokers know against it."""

    def __init__(self, address: str, master: Broker, slave: Broker, seed: int):
        self._address = address
        self._master, self._brokers = master, [one for one in (master, slave) if one.kind == "rmqha"]
        self._rng = random.Random(f"commits {seed}")
        self._answered: dict[int, tuple[int, int]] = {}  # queue id -> (offset, pid of the master); the thread's
        # of each broker and queue: what its file said last, and before that; the older one is on the disk for sure
        self._saved: dict[tuple[str, int], tuple[int, int]] = {}
        self._forgotten: Violation | None = None  # what a master that came back does not know; the thread's
        self.grown_on_slave = 0  # times that the slave's file was seen to have higher offsets
        self._go, self._stopped, self._busy = threading.Event(), threading.Event(), False
        self._thread = threading.Thread(target=self._run, name="commits", daemon=True)
        self._thread.start()

    def go(self) -> None:
        """Commit."""
        self._go.set()

    def pause(self) -> None:
        """Commit no more, and wait until nothing is on its way."""
        self._go.clear()
        wait_until(lambda: not self._busy, int(_TIMEOUT_S * 1000) + 10_000, "an answer to a committed offset")

    def close(self) -> None:
        """End the thread."""
        self._stopped.set()
        self._go.set()
        self._thread.join(240)
        assert not self._thread.is_alive(), "commits hang"

    def _run(self) -> None:
        client, offset, met = None, 0, 0
        while not self._stopped.is_set():
            self._busy = self._go.is_set()
            if not self._busy:
                self._go.wait(0.1)
                continue
            process = self._master.process
            if process is None:  # it is being started again
                time.sleep(_PAUSE_S)
                continue
            pid, queue, offset = process.pid, self._rng.randrange(QUEUES), offset + 1
            try:
                client = client or RawClient(self._address, _TIMEOUT_S)
                if met != pid:
                    self._meet(client)
                    met = pid
                answer = client.request(_UPDATE_CONSUMER_OFFSET, consumerGroup=GROUP, topic=TOPIC, queueId=queue,
                                        commitOffset=offset)
                if answer.code == 0:
                    self._answered[queue] = offset, pid
            except (OSError, EOFError):
                if client is not None:
                    client.socket.close()
                client = None
            time.sleep(_PAUSE_S)
        self._busy = False
        if client is not None:
            client.socket.close()

    def _meet(self, client: RawClient) -> None:
        """A master that came back knows what its file says, before anything is committed to it."""
        for queue in range(QUEUES):
            try:
                self._check_master(client, queue, self._saved.get((self._master.base_name, queue), (-1, -1))[0])
            except Violation as violation:
                self._forgotten = self._forgotten or violation

    def check(self) -> None:
        """Both brokers live, nothing is committed meanwhile."""
        if self._forgotten is not None:
            raise self._forgotten
        self.look()
        answered, pid = dict(self._answered), self._master.pid
        with RawClient(self._address, _TIMEOUT_S) as client:
            for queue in range(QUEUES):
                offset, of_pid = answered.get(queue, (-1, 0))
                floor = self._saved.get((self._master.base_name, queue), (-1, -1))[0]
                if of_pid == pid:
                    floor = max(floor, offset)
                self._check_master(client, queue, floor)

    @staticmethod
    def _check_master(client: RawClient, queue: int, floor: int) -> None:
        answer = client.request(_QUERY_CONSUMER_OFFSET, consumerGroup=GROUP, topic=TOPIC, queueId=queue)
        known = int(answer.fields["offset"]) if answer.code == 0 else -1
        if known < floor:
            raise Violation(f"D: the master knows offset {known} of queue {queue} ({answer.code} {answer.remark}), and "
                            f"{floor} was committed")

    def look(self) -> None:
        """Hold the files against what they said before; a broker need not live for that."""
        for broker in self._brokers:
            found = saved_offsets(broker)
            grown = False
            for queue in range(QUEUES):
                key = broker.base_name, queue
                last, before = self._saved.get(key, (-1, -1))
                offset = found.get(queue, -1)
                if offset < last:
                    raise Violation(f"D: the {broker.base_name}'s file says {offset} for queue {queue}, after {last}")
                if offset > last:
                    self._saved[key], grown = (offset, last), last >= 0
            self.grown_on_slave += grown and broker.base_name == "slave"

    def wait_until_saved(self) -> None:
        """Until the master's file has all that is committed by now."""
        wanted = {queue: offset for queue, (offset, _pid) in dict(self._answered).items()}

        def all_saved() -> bool:
            saved = saved_offsets(self._master)
            return all(saved.get(queue, -1) >= offset for queue, offset in wanted.items())
        wait_until(all_saved, _SAVED_MS, f"offsets {wanted} in the master's file")
        self.look()

    def lost_power(self, broker: Broker) -> None:
        """What its file said last may not have been on its disk."""
        for key, (_last, before) in list(self._saved.items()):
            if key[0] == broker.base_name:
                self._saved[key] = before, before

    def set_up_anew(self, broker: Broker) -> None:
        """Its store is gone."""
        for key in list(self._saved):
            if key[0] == broker.base_name:
                del self._saved[key]
