"""docs/SECURITY.md matches the code, and servers write no secrets."""
import os
import re
import subprocess
import sys

import pytest

from rmqha.acl.common import ADMIN_CODE, COMMON_CODE, AclClientRPCHook, SessionCredentials
from rmqha.broker import broker_startup
from rmqha.common.broker_config import BrokerConfig
from rmqha.common.compression import MAX_DECOMPRESSED_SIZE
from rmqha.common.config_keys import config_keys
from rmqha.common.configuration import FIXED_KEYS, SECRET_KEYS, is_fixed
from rmqha.common.mix_all import property_text, string2properties
from rmqha.common.protocol import request_code, response_code
from rmqha.common.protocol import request_code as codes
from rmqha.namesrv import namesrv_startup
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.remoting.remoting_config import ServerConfig
from rmqha.remoting.tls_system_config import TlsMode, TlsSystemConfig
from rmqha.store import message_store_config
from rmqha.store.message_store_config import MessageStoreConfig
from tests.broker.support import ADMIN, acl_broker, is_refused, running_broker
from tests.support.ports import free_broker_port, free_port
from tests.support.processes import ServerProcess
from tests.support.raw_remoting import RawClient, http_get
from tests.support.sources import ROOT

# The defaults and ports in docs/SECURITY.md match the code, and so does what an unsigned request can do.

PAGE = (ROOT / "docs" / "SECURITY.md").read_text("utf-8")
CONFIGS = (BrokerConfig(), MessageStoreConfig(), ServerConfig())


@pytest.mark.parametrize("pair", ["aclEnable=false", "autoCreateTopicEnable=true", "autoCreateSubscriptionGroup=true",
                                  "serverChannelMaxIdleTimeSeconds=120"])
def test_default_on_the_page_matches_the_code(pair):
    assert f"`{pair}`" in PAGE
    key, value = pair.split("=")
    found = [property_text(getattr(config, item.name)) for config in CONFIGS
             for name, item in config_keys(type(config)).items() if name == key]
    assert found == [value]


def test_keys_on_the_page_exist():
    known = {key for config in CONFIGS for key in config_keys(type(config))}
    assert {"haAllowedPeers", "haMasterAddress", "logLevel"} <= known & set(re.findall(r"`(\w+)[`=]", PAGE))
    assert MessageStoreConfig().haAllowedPeers is None


def test_ports_and_sizes_match_the_code():
    port = broker_startup.DEFAULT_LISTEN_PORT
    assert f"name server, {namesrv_startup.DEFAULT_LISTEN_PORT} " in PAGE
    assert f"broker, {port}, and fast port, {port - message_store_config.FAST_PORT_DISTANCE} " in PAGE
    assert f"replication, {port + 1} " in PAGE
    assert f"grow to {MAX_DECOMPRESSED_SIZE >> 20} MiB at most" in PAGE


def test_tls_is_offered_and_authenticates_nothing_by_default():
    settings = TlsSystemConfig()
    assert settings.tls_mode is TlsMode.PERMISSIVE and settings.tls_test_mode_enable


def test_no_request_code_is_open_to_admins_and_to_everyone():
    assert not ADMIN_CODE & COMMON_CODE and request_code.UPDATE_BROKER_CONFIG in ADMIN_CODE


def test_paths_names_ports_and_roles_cannot_be_changed_remotely():
    allowed = {key for config in CONFIGS for key in config_keys(type(config)) if not is_fixed(key)}
    assert not [key for key in allowed if re.search("Path|Port$|Name$|Role$|Home$|Address$|IP[12]$", key)]
    assert "aclEnable" not in allowed and "haAllowedPeers" not in allowed


def test_without_access_control_any_client_may_change_keys(tmp_path):
    with running_broker(tmp_path) as broker:
        assert broker.call(request_code.UPDATE_BROKER_CONFIG, body=b"traceOn=false\n").code == 0
        assert broker.controller.broker_config.traceOn is False


def test_signed_request_can_be_replayed_with_another_code_as_documented(tmp_path):
    """Capture a request: an admin's tools sign it for a broker that an attacker has registered, and other brokers
    accept it from the attacker."""
    assert "`DELETE_EXPIRED_COMMITLOG`" in PAGE and "`tls.client.authServer=true`" in PAGE
    hook = AclClientRPCHook(SessionCredentials(*ADMIN))
    request = RemotingCommand.create_request_command(request_code.GET_BROKER_RUNTIME_INFO, None)
    hook.do_before_request("stranger:10911", request)
    with acl_broker(tmp_path / "home") as broker, broker.client(None) as stranger:
        code = request_code.DELETE_EXPIRED_COMMITLOG
        assert is_refused(stranger.request(code))
        assert stranger.request(code, **request.ext_fields).code == 0


# Every secret key is set, and no log, console output, config file, answer or metric contains its value.

SECRETS = {key: f"s3cret-{number}-of-the-test" for number, key in enumerate(sorted(SECRET_KEYS | {"my.password"}))}
PLACES = ["broker", "name server", "controller", "controller in a name server"]
_CONTROLLER = ("controllerStore=local\ncontrollerDLegerGroup=g\ncontrollerDLegerSelfId=n0\n"
               "controllerDLegerPeers=n0-127.0.0.1:{port}\ncontrollerStorePath={home}/decided\n")


class Server:
    """A server with its own home, and the requests that its ports accept."""

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
        """Return (port, code to update, code to get, a harmless line) of each server in the process."""
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
def test_servers_write_no_secrets(tmp_path, kind):
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
    # The file that contains them keeps them for the next start, readable only by its owner.
    assert string2properties(server.file.read_text()).items() >= SECRETS.items()
    assert {path.stat().st_mode & 0o777 for path in tmp_path.glob("server.conf*")} == {0o600}


@pytest.mark.parametrize("kind", PLACES)
def test_each_server_refuses_changes_to_fixed_keys_of_all_servers(tmp_path, kind):
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
