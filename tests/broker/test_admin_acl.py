"""Access control of a whole broker: how it starts, what it answers, and without PyYAML."""
import pytest

from rmqha.acl import acl_files
from rmqha.broker import broker_startup
from rmqha.common.configuration import ConfigError
from tests.acl.accounts import ACCOUNTS
from tests.support.ports import free_broker_port
from tests.support.signed_client import SignedClient

ADMIN, ALICE = ("adminKey", "adminSecret"), ("aliceKey", "12345678")


def controller_of(home, **properties):
    """A broker's controller of a config file in `home`."""
    (home / "conf").mkdir(exist_ok=True)
    file = home / "broker.conf"
    texts = {"rocketmqHome": home, "storePathRootDir": home / "store", "storePathCommitLog": home / "store/commitlog",
             "listenPort": free_broker_port(), "brokerIP1": "127.0.0.1", "mappedFileSizeCommitLog": 1 << 20,
             "maxHashSlotNum": 1000, "maxIndexNum": 4000, **properties}
    file.write_text("".join(f"{key}={value}\n" for key, value in texts.items()), "utf-8")
    return broker_startup.create_broker_controller(broker_startup.parse_command_line(["-c", str(file)]))


@pytest.fixture(autouse=True)
def logs_stay(monkeypatch):
    """The loggers belong to the tests, all of them."""
    monkeypatch.setattr(broker_startup.logs, "setup_broker_logging", lambda *_: None)


@pytest.fixture
def broker(tmp_path, monkeypatch):
    """broker(**properties) -> a running broker in this process and its address."""
    started = []

    def start(**properties):
        controller = controller_of(tmp_path, **properties)
        started.append(controller)
        assert controller.initialize()
        controller.start()
        return controller
    yield start
    for controller in started:
        controller.shutdown()


def test_both_ports_ask_for_accounts(broker, tmp_path):
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "plain_acl.yml").write_text(ACCOUNTS, "utf-8")
    controller = broker(aclEnable="true")
    for server in (controller.remoting_server, controller.fast_remoting_server):
        address = f"127.0.0.1:{server.local_listen_port}"
        with SignedClient(address, None) as stranger, SignedClient(address, ADMIN) as admin:
            refused = stranger.request(28)
            assert refused.code == 1
            assert refused.remark.startswith(
                "org.apache.rocketmq.acl.common.AclException: No accessKey is configured, ")
            assert stranger.send_message("orders", b"x").code == 1
            assert admin.request(28).code == 0
    controller.shutdown()
    assert not controller.access_validator._acl_plug_engine._watch_service.is_alive()


def test_many_sends_of_one_read_are_all_checked(broker, tmp_path):
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "plain_acl.yml").write_text(ACCOUNTS, "utf-8")
    controller = broker(aclEnable="true")
    address = f"127.0.0.1:{controller.remoting_server.local_listen_port}"
    with SignedClient(address, ADMIN) as admin:
        admin.create_topic("orders", 1)
        admin.create_topic("others", 1)
    with SignedClient(address, ALICE) as alice:
        sends = [alice.send_frame(topic, number) for number in range(50) for topic in ("orders", "others")]
        alice.send(b"".join(sends))
        codes = [alice.read_frame()[1].code for _ in sends]
    assert codes.count(0) == codes.count(1) == 50
    assert controller.message_store.get_max_offset_in_queue("others", 0) == 0


def test_wrong_file_keeps_the_broker_from_starting(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("ROCKETMQ_LOG_DIR", str(tmp_path / "logs"))
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "plain_acl.yml").write_text("accounts:\n- accessKey: a\n", "utf-8")
    controller = controller_of(tmp_path, aclEnable="true")
    assert broker_startup.run(controller, None) == broker_startup.EXIT_START_FAILED
    told = capsys.readouterr().err
    assert "plain_acl.yml: account a: The accessKey=a and secretKey=null cannot be null" in told


def test_without_pyyaml_the_broker_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr(acl_files, "is_available", lambda: False)
    with pytest.raises(ConfigError, match=r"aclEnable: access control is asked for, it needs PyYAML: .* -m pip"):
        controller_of(tmp_path, aclEnable="true")
    controller_of(tmp_path).shutdown()


def test_requests_about_accounts_say_that_access_control_is_off(broker):
    controller = broker()
    with SignedClient(f"127.0.0.1:{controller.remoting_server.local_listen_port}", None) as client:
        answers = [client.request(50, accessKey="carolKey", secretKey="12345678"),
                   client.request(51, accessKey="carolKey"),
                   client.request(53, globalWhiteAddrs="1.2.3.4", aclFileFullPath=""), client.request(52)]
    assert [answer.code for answer in answers] == [209, 210, 211, 1]
    assert {answer.remark for answer in answers} == {"access control is off on this broker, set aclEnable=true"}
