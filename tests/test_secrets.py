"""What servers write while every secret key is set: logs, console, config files, answers and metrics have no secret."""
import os
import subprocess
import sys

import pytest

from rmqha.common.configuration import FIXED_KEYS, SECRET_KEYS
from rmqha.common.mix_all import string2properties
from rmqha.common.protocol import request_code as codes
from rmqha.common.protocol import response_code
from tests.support.ports import free_broker_port, free_port
from tests.support.processes import ServerProcess
from tests.support.raw_remoting import RawClient
from tests.support.scrape import http_get
from tests.support.sources import ROOT

SECRETS = {key: f"s3cret-{number}-of-the-test" for number, key in enumerate(sorted(SECRET_KEYS | {"my.password"}))}
PLACES = ["broker", "name server", "controller", "controller in a name server"]
_CONTROLLER = ("controllerStore=local\ncontrollerDLegerGroup=g\ncontrollerDLegerSelfId=n0\n"
               "controllerDLegerPeers=n0-127.0.0.1:{port}\ncontrollerStorePath={home}/decided\n")


class Server:
    """A server with a home of its own, and what it may be asked at its ports."""

    def __init__(self, kind, home):
        self.home, self.kind = home, kind
        self.port = free_broker_port() if kind == "broker" else free_port()
        self.controller_port, self.metrics_port = free_port(), free_port()
        self.program = {"broker": "mqbroker", "controller": "mqcontroller"}.get(kind, "mqnamesrv")
        self.file = home / "server.conf"
        self.file.write_text(self._text() + "".join(f"{key}={value}\n" for key, value in SECRETS.items()))
        tls = home / "tls.properties"
        tls.write_text("".join(f"{key}={value}\n" for key, value in SECRETS.items() if key.startswith("tls.")))
        for file in (self.file, tls):
            file.chmod(0o600)
        self.environment = {"HOME": str(home), "ROCKETMQ_LOG_DIR": "", "PYTHONPATH": str(ROOT),
                            "TLS_CONFIG_FILE": str(tls)}
        self.command = [sys.executable, "-m", "rmqha.launch", self.program, "-c", str(self.file)]
        self.process = ServerProcess("server", self.command, home, "boot success", self.environment)

    def _text(self):
        text = f"listenPort={self.port}\nmetricsPort={self.metrics_port}\nlogLevel=DEBUG\n"
        if self.kind == "broker":
            return text + (f"storePathRootDir={self.home}/store\nbrokerIP1=127.0.0.1\nmappedFileSizeCommitLog=1048576\n"
                           "maxHashSlotNum=1000\nmaxIndexNum=4000\n")
        if self.kind == "controller":
            self.controller_port = self.port
            return text + _CONTROLLER.format(port=self.port, home=self.home)
        text += f"kvConfigPath={self.home}/kv.json\n"
        if self.kind == "name server":
            return text
        return text + "enableControllerInNamesrv=true\n" + _CONTROLLER.format(port=self.controller_port, home=self.home)

    def asked(self):
        """(port, code to update, code to get, a harmless line) of each server in the process."""
        if self.kind == "broker":
            return [(self.port, codes.UPDATE_BROKER_CONFIG, codes.GET_BROKER_CONFIG, "traceOn=false")]
        controller = (self.controller_port, codes.UPDATE_CONTROLLER_CONFIG, codes.GET_CONTROLLER_CONFIG,
                      "scanNotActiveBrokerInterval=7000")
        name_server = (self.port, codes.UPDATE_NAMESRV_CONFIG, codes.GET_NAMESRV_CONFIG, "orderMessageEnable=true")
        return {"controller": [controller], "name server": [name_server]}.get(self.kind, [name_server, controller])


def assert_none_is_in(text: bytes, where: str) -> None:
    for key, value in SECRETS.items():
        assert value.encode() not in text, f"{key} is in {where}"


@pytest.mark.parametrize("kind", PLACES)
def test_nothing_that_a_server_writes_has_a_secret(tmp_path, kind):
    pytest.importorskip("prometheus_client")
    server = Server(kind, tmp_path)
    printed = [subprocess.run([*server.command, option], env={**os.environ, **server.environment}, check=True,
                              capture_output=True, timeout=600)
               for option in ("-p", *(["-m"] if kind == "broker" else []))]
    for each in printed:
        assert_none_is_in(each.stdout + each.stderr, "what -p prints")
    if "controller" in kind:
        assert b"etcdPassword=***" in printed[0].stdout
    try:
        server.process.start()
        for port, update, get, harmless in server.asked():
            with RawClient(f"127.0.0.1:{port}") as client:
                for bad in (f"etcdPassword={SECRETS['etcdPassword']}\\uzzzz", "logLevel=LOUD"):
                    assert client.request(update, bad.encode()).code == response_code.SYSTEM_ERROR
                assert client.request(update, harmless.encode()).code == 0
                answer = client.request(get)
                assert harmless.encode() in answer.body
                assert_none_is_in(answer.body, f"the answer to {get}")
        status, body, _headers = http_get(server.metrics_port, "/metrics")
        assert status == 200
        assert_none_is_in(body, "the metrics")
        assert server.process.stop() == 0
    finally:
        server.process.kill()
    logs = [path for path in tmp_path.rglob("*.log") if path.stat().st_size]
    assert logs, "no logs were written"
    for path in tmp_path.rglob("*"):
        if path.is_file() and path.name not in ("server.conf", "server.conf.bak", "tls.properties"):
            assert_none_is_in(path.read_bytes(), str(path))
    # the file that has them keeps them, for the next start, and for its owner alone
    assert string2properties(server.file.read_text()).items() >= SECRETS.items()
    assert {path.stat().st_mode & 0o777 for path in tmp_path.glob("server.conf*")} == {0o600}


@pytest.mark.parametrize("kind", PLACES)
def test_fixed_keys_of_all_servers_are_refused_by_each(tmp_path, kind):
    server = Server(kind, tmp_path)
    try:
        server.process.start()
        before = server.file.read_bytes()
        for port, update, get, _harmless in server.asked():
            with RawClient(f"127.0.0.1:{port}") as client:
                shown = client.request(get).body
                for key in sorted(FIXED_KEYS):
                    answer = client.request(update, f"{key}=1\nlogLevel=ERROR\n".encode())
                    assert answer.code == response_code.NO_PERMISSION, f"{key} at port {port}"
                assert client.request(get).body == shown
        assert server.file.read_bytes() == before
        assert server.process.stop() == 0
    finally:
        server.process.kill()
