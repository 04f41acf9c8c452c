"""The programs of docs/examples do what they say, at a master with its slave."""
import os
import re
import subprocess
from pathlib import Path

import pytest

from rmqha.store.message_store_config import BrokerRole
from tests.support import patience
from tests.support.in_process import running_name_server, start_broker
from tests.support.sources import ROOT
from tests.support.wait import wait_until

EXAMPLES = ROOT / "docs" / "examples"
MAX_LINES = 40
# What each prints, as a regular expression of the whole.
PRINTED = {
    "send.py": r"(order-\d: SEND_OK, queue \d of broker-a, id [0-9A-F]{32}\n){3}",
    "consume.py": r"(order-\d: \d kg of apples for Ada\n){3}",
    "ordered.py": r"(order 1[789]: created -> paid -> sent\n){3}",
    "delayed.py": r"(not yet\n)*the kettle boils, after [1-9]\d*\.\d s\n",
    "transaction.py": r"7: COMMIT_MESSAGE\n5: ROLLBACK_MESSAGE\npaid: \['7 from Ada'\]\n",
    "request_reply.py": r"1\+2 = 3\n30\+4\+5 = 39\n",
    "batch.py": r"(10000 messages from offset \d+ of queue \d on: SEND_OK\n){3}",
    "sql_filter.py": r"hot: Cairo Delhi\n",
    "aio.py": r"sent 1000\nreceived 1000, by two loops: 1\d{3} messages\n",
    "replication.py": r"(broker-a has no slave yet: .*\n)*([0-9A-F]{32}: SEND_OK, master and slave end at \d+\n){3}"
                      r"\d+ bytes at \d+ of .*commitlog:\n"
                      r"topic Watched, queue \d, offset \d+, b'2 apples'\nthe master has the same bytes\n",
}


@pytest.fixture(scope="module")
def namesrv(tmp_path_factory):
    """The name server of a SYNC_MASTER and its slave, which holds what the master has."""
    folder = tmp_path_factory.mktemp("examples")
    with running_name_server(folder) as address:
        master = start_broker("broker-a", address, folder / "master", brokerRole=BrokerRole.SYNC_MASTER,
                              enablePropertyFilter=True, slaveTimeout=30_000)
        ha_address = f"127.0.0.1:{master.message_store.ha_service.ha_listen_port}"
        slave = start_broker("broker-a", address, folder / "slave", brokerRole=BrokerRole.SLAVE, brokerId=1,
                             haMasterAddress=ha_address)
        try:
            wait_until(lambda: master.message_store.ha_service.connection_count.get() == 1)
            wait_until(lambda: slave.registration.name_servers_registered == 1)  # else it tries again after 10 s
            yield address
        finally:
            slave.shutdown()
            master.shutdown()


def test_each_program_is_here_and_short():
    programs = {path.name for path in EXAMPLES.glob("*.py")}
    assert programs == set(PRINTED)
    for name in programs:
        assert len((EXAMPLES / name).read_text("utf-8").splitlines()) < MAX_LINES, name


def test_what_one_program_sends_another_one_receives(namesrv, tmp_path):
    check_output("send.py", namesrv, tmp_path)
    printed = check_output("consume.py", namesrv, tmp_path)
    assert sorted(re.findall("order-[0-9]", printed)) == ["order-1", "order-2", "order-3"]


@pytest.mark.parametrize("name", sorted(PRINTED.keys() - {"send.py", "consume.py"}))
def test_program_prints_what_it_should(name, namesrv, tmp_path):
    printed = check_output(name, namesrv, tmp_path)
    if name == "replication.py":  # the tutorial's record has the same size, and so the same keys
        page = (ROOT / "docs" / "tutorials" / "replication-you-can-watch.md").read_text("utf-8")
        assert re.findall(r"^(\d+) bytes at", printed, re.MULTILINE) == re.findall(
            r"^(\d+) bytes at", page, re.MULTILINE)


def check_output(name: str, namesrv: str, tmp_path: Path) -> str:
    """What a program prints, which is what it should."""
    environment = {**os.environ, "NAMESRV_ADDR": namesrv, "PYTHONPATH": str(ROOT)}
    result = subprocess.run(patience.command([EXAMPLES / name]), cwd=tmp_path, env=environment, text=True,
                            capture_output=True, timeout=600, check=False)
    assert result.returncode == 0, result.stderr
    assert re.fullmatch(PRINTED[name], result.stdout), result.stdout
    assert result.stderr == ""
    return result.stdout
