"""The rules that must hold after all events: nothing acknowledged is lost, stored too often, or missing at its
consumer."""
from collections import Counter, defaultdict
from collections.abc import Iterable

from tests.faults.felt.figures import is_expected
from tests.faults.felt.programs import Client
from tests.faults.felt.system import NAMES, System
from tests.support import store_compare
from tests.support.felt_client import DIGITS
from tests.support.wait import wait_until

_SHOWN = 5
_MASTER_MS = 60_000
Copies = dict[str, Counter[int]]


def copies_in_logs(system: System) -> Copies:
    """Return how often the final masters' logs have each message: topic -> number -> count."""
    copies: Copies = defaultdict(Counter)
    for name in NAMES[:system.setup.names]:
        master = wait_until(lambda name=name: system.master_of_name(name), _MASTER_MS, f"a master of {name}")
        for record in store_compare.walk(master.commit_log, master.told_end()):
            assert record.crc_ok, f"{master.name}: the record at {record.offset} is damaged"
            if record.topic in system.topics:
                copies[record.topic][int(record.body[:DIGITS])] += 1
    return copies


def violations(clients: Iterable[Client], copies: Copies) -> list[str]:
    """Return what does not hold, a line for each rule and client."""
    found = []
    for client in clients:
        found += [f"{client.program.name}: {text}" for text in _of_client(client, copies[client.program.topic])]
    return found


def _of_client(client: Client, copies: Counter[int]) -> list[str]:
    program, records = client.program, client.records
    acknowledged = {number for number in records.acknowledged() if is_expected(program, number)}
    tries = {send.number: send.tries if program.most_tries is None else program.most_tries for send in records.sends}
    rules = {
        "acknowledged and lost": [number for number in acknowledged if not copies[number]],
        "acknowledged and not received": [number for number in acknowledged if number not in records.receptions],
        "received without being in the log": [number for number in records.receptions if not copies[number]],
    }
    if program.mode == "transactions":
        rules["rolled back and received"] = [number for number in records.receptions
                                             if not is_expected(program, number)]
    else:
        # A transaction that is checked may be committed again.
        rules["stored more often than sent"] = [number for number, count in copies.items()
                                                if count > max(tries.get(number) or 1, 1)]
    if program.mode == "ordered":
        rules["received after a later one"] = _overtaken(client)
    return [f"{len(numbers)} {rule}: {sorted(numbers)[:_SHOWN]}" for rule, numbers in rules.items() if numbers]


def _overtaken(client: Client) -> list[int]:
    """Return the acknowledged messages whose first reception came after that of a later one."""
    acknowledged, seen, latest, overtaken = client.records.acknowledged(), set(), -1, []
    for got in client.records.got:
        if got.number in seen or got.number not in acknowledged:
            continue
        seen.add(got.number)
        if got.number < latest:
            overtaken.append(got.number)
        latest = max(latest, got.number)
    return overtaken


def duplicates(client: Client, copies: Copies) -> int:
    """Return how many messages of a client are in the log more than once."""
    return sum(count > 1 for count in copies[client.program.topic].values())
