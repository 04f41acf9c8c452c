"""The programs' command lines compared with RocketMQ's, Ctrl-C during startup, --version, --help and invalid
options."""
import os
import signal
import subprocess
import sys

import pytest
from click.testing import CliRunner

from rmqha import __version__, launch
from rmqha.broker import broker_startup
from rmqha.client.exception import MQClientException
from rmqha.client.producer.default_mq_producer import DefaultMQProducer
from rmqha.common.broker_config import BrokerConfig
from rmqha.common.config_keys import config_keys
from rmqha.common.configuration import ConfigError, load_config_file, take_words
from rmqha.common.mix_all import object2properties, properties2string
from rmqha.common.namesrv_config import NamesrvConfig
from rmqha.common.program import INTERRUPTED, Interruptible, Terminated, exit_code, leave_when_interrupted
from rmqha.controller import controller_startup
from rmqha.namesrv import namesrv_startup
from rmqha.remoting.remoting_config import ServerConfig
from rmqha.store.message_store_config import MessageStoreConfig
from rmqha.tools.command import mq_admin_startup
from rmqha.tools.rmqha_command import rmqha
from tests.support import start_as
from tests.support.sources import ROOT

# Ctrl-C during startup, and the answers of the programs to --version, --help and invalid options.


def start(tmp_path, *arguments, **options):
    env = {**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(tmp_path), "NAMESRV_ADDR": "127.0.0.1:1"}
    return subprocess.Popen(
        start_as.command([sys.executable, *arguments], ctrl_c=True), env=env, cwd=tmp_path, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)


@pytest.mark.parametrize("program", launch.PROGRAMS)
def test_ctrl_c_during_import_ends_a_program_with_130_and_no_output(program, tmp_path):
    # -v prints each file that is being imported to standard error.
    file = f"/{launch.PROGRAMS[program].rpartition('.')[2]}."
    process = start(tmp_path, "-v", "-m", "rmqha.launch", program, "--version")
    told = []
    for line in process.stderr:
        told.append(line)
        if file in line:
            process.send_signal(signal.SIGINT)
            break
    told += process.communicate(timeout=600)[1].splitlines(keepends=True)
    assert process.returncode == INTERRUPTED, "".join(told)[-2000:]
    assert not any("Traceback" in line or "KeyboardInterrupt" in line for line in told)


@pytest.mark.parametrize("program", launch.PROGRAMS)
def test_each_program_prints_its_version_and_help(program, tmp_path):
    for option, text in (("--version", __version__), ("--help", program)):
        process = start(tmp_path, "-m", "rmqha.launch", program, option)
        out, err = process.communicate(timeout=600)
        assert (process.returncode, err) == (0, "") and text in out


@pytest.mark.parametrize("arguments", [[], ["mqnothing"]])
def test_unknown_program_names_are_refused(arguments, tmp_path):
    process = start(tmp_path, "-m", "rmqha.launch", *arguments)
    _out, err = process.communicate(timeout=600)
    assert process.returncode == 1 and err.startswith("usage: python -m rmqha.launch mqnamesrv|mqbroker|")


def test_ctrl_c_raises_an_exception_only_in_the_block():
    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        leave_when_interrupted()
        leaves = signal.getsignal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt), Interruptible():
            signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is leaves is not signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_program_that_ignores_ctrl_c_keeps_ignoring_it():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        leave_when_interrupted()
        with Interruptible():
            signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


OTHERS = (signal.SIGTERM, signal.SIGHUP)


@pytest.mark.parametrize("number", OTHERS)
def test_sigterm_and_sighup_raise_an_exception_once_in_the_block(number):
    before = {each: signal.signal(each, signal.SIG_DFL) for each in OTHERS}
    try:
        steps = []
        with pytest.raises(Terminated) as told, Interruptible():
            try:
                signal.raise_signal(number)
            finally:
                for each in OTHERS:
                    signal.raise_signal(each)
                steps.append("cleaned up")
        assert steps == ["cleaned up"] and exit_code(told.value) == 128 + number and number.name in str(told.value)
        assert [signal.getsignal(each) for each in OTHERS] == [signal.SIG_DFL] * 2
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


@pytest.mark.parametrize("number", OTHERS)
@pytest.mark.parametrize("handler", [signal.SIG_IGN, lambda *_: None])
def test_ignored_or_handled_signals_keep_their_handlers(number, handler):
    before = signal.signal(number, handler)
    try:
        with Interruptible():
            signal.raise_signal(number)
        assert signal.getsignal(number) is handler
    finally:
        signal.signal(number, before)


@pytest.mark.parametrize("number", OTHERS)
def test_signal_shuts_down_a_command_of_rmqha_cleanly(number, tmp_path):
    code = ("import signal, sys; sys.argv[1:] = ['config', 'path']\n"
            f"[signal.signal(number, signal.SIG_DFL) for number in {tuple(map(int, OTHERS))}]\n"
            "from rmqha import launch\nfrom rmqha.tools.config import config_command\n"
            f"config_command.filesystem.rocketmq_home = lambda: signal.raise_signal({int(number)})\n"
            "sys.exit(launch.rmqha())")
    process = start(tmp_path, "-c", code)
    assert process.communicate(timeout=600) == ("", f"ended by {number.name}\n") and process.returncode == 128 + number


def test_ctrl_c_ends_a_command_of_rmqha_with_130(tmp_path):
    code = ("import signal, sys; sys.argv[1:] = ['config', 'path']\n"
            "from rmqha import launch\nfrom rmqha.tools.config import config_command\n"
            "config_command.filesystem.rocketmq_home = lambda: signal.raise_signal(signal.SIGINT)\n"
            "sys.exit(launch.rmqha())")
    process = start(tmp_path, "-c", code)
    assert process.communicate(timeout=600) == ("", "interrupted\n") and process.returncode == INTERRUPTED


# Words on the servers' command lines, and name server addresses, compared with what RocketMQ accepts.

CONTROLLER = ["controllerDLegerPeers=n0-127.0.0.1:9878", "controllerDLegerSelfId=n0"]


def printed(module, arguments):
    """Return the keys that -p prints for a server, which runs as a process since it configures logging."""
    done = subprocess.run([sys.executable, "-m", module.__name__, "-p", *arguments], capture_output=True, text=True,
                          timeout=600)
    assert done.returncode == 0, done.stderr
    return {line.rpartition(" - ")[2] for line in done.stdout.splitlines()}


@pytest.mark.parametrize("module, words", [
    (broker_startup, ["-n", "127.0.0.1:9876", "autoCreateTopicEnable=false", "&"]),
    (broker_startup, ["fileReservedTime=11", "-n", "127.0.0.1:9876", "listenPort=25000", "--", "brokerName=x=y"]),
    (namesrv_startup, ["listenPort=9877", "&"]),
    (namesrv_startup, ["enableControllerInNamesrv=true", "-n", "127.0.0.1:9876", *CONTROLLER]),
    (controller_startup, [*CONTROLLER, "&", "-n", "127.0.0.1:9876"]),
])
def test_words_on_a_servers_command_line_are_keys(module, words):
    wanted = {word for word in words if "=" in word}
    assert wanted and not wanted - printed(module, words)


@pytest.mark.parametrize("module", [broker_startup, namesrv_startup, controller_startup])
@pytest.mark.parametrize("words, unknown", [
    (["--no-such"], "--no-such"), (["a=b", "-x"], "-x"), (["--no-such", "value"], "--no-such"),
    (["--listenPort=1"], "--listenPort=1")])
def test_unknown_options_end_with_1(module, words, unknown, capsys):
    with pytest.raises(SystemExit) as end:
        module.parse_command_line(words)
    assert end.value.code == 1 and f"unrecognized arguments: {unknown}\n" in capsys.readouterr().err


@pytest.mark.parametrize("module", [broker_startup, namesrv_startup, controller_startup])
def test_word_with_an_invalid_value_ends_with_2_and_names_the_key(module, capsys):
    assert module.main(["listenPort=many"]) == 2
    assert "command line: listenPort: expected a whole number from 0 to 65535, not 'many'" in capsys.readouterr().err


def test_words_override_the_file_and_unknown_ones_cause_a_warning(tmp_path):
    file = tmp_path / "broker.conf"
    file.write_text("fileReservedTime=48\nbrokerName=of-the-file\nflushDiskType=SYNC_FLUSH\n")
    configs, said = (BrokerConfig(), MessageStoreConfig()), []
    load_config_file(str(file), configs, warn=said.append)
    take_words(["fileReservedTime=5", "brokerNam=x", "&", "", "flushIntervalConsumeQueue = 9"], configs, said.append)
    broker, store = configs
    assert (store.fileReservedTime, store.flushIntervalConsumeQueue, broker.brokerName) == (5, 9, "of-the-file")
    assert store.flushDiskType.name == "SYNC_FLUSH"
    assert said == ["command line: '&' is ignored: it is neither an option nor key=value",
                    "command line: '' is ignored: it is neither an option nor key=value",
                    "command line: unknown key brokerNam, did you mean brokerName?; it is ignored"]


def test_every_key_can_be_given_as_a_word():
    for config in (BrokerConfig(), MessageStoreConfig(), NamesrvConfig(), ServerConfig()):
        said, names = [], {field.name: key for key, field in config_keys(type(config)).items()}
        words = [f"{names[name]}={text}" for name, text in object2properties(config).items()]
        take_words(words, [config], said.append)
        assert not said and len(words) > 5


def test_config_written_by_a_server_is_read_without_a_warning(tmp_path):
    file = tmp_path / "written.conf"
    for config in (BrokerConfig(), MessageStoreConfig(isEnableBatchPush=True), NamesrvConfig(), ServerConfig()):
        file.write_text(properties2string(object2properties(config)))
        again, said = type(config)(), []
        properties = load_config_file(str(file), [again], warn=said.append)
        assert said == [] and object2properties(again) == object2properties(config)
        assert properties.lines


def test_key_overrides_the_name_under_which_a_server_writes_it(tmp_path):
    file, said = tmp_path / "broker.conf", []
    file.write_text("enableBatchPush=true\nisEnableBatchPush=false\n")
    store = MessageStoreConfig()
    load_config_file(str(file), [store], warn=said.append)
    assert store.isEnableBatchPush and said == []


# ---- addresses


def refused(arguments):
    """Return why a broker does not start. Uses -p, so that one that would start ends at once."""
    with pytest.raises(ConfigError) as failure:
        broker_startup.create_broker_controller(broker_startup.parse_command_line([*arguments, "-p"]))
    return str(failure.value)


BAD = [("a:9876,b:9876", "separate addresses with ; instead of ,"), ("a,b:9876", "separate addresses with ;"),
       ("a:9876, b:9876", "separate addresses with ;"), ("tcp://a:9876", "leave out the scheme"),
       ("a:9876/", "leave out the scheme"), ("a:9876 b:9876", "separate addresses with ;"), ("a", ""), ("a:", "")]


@pytest.mark.parametrize("addresses, hint", [*BAD, ("http://a:9876", "leave out the scheme (http://)")])
def test_brokers_refuse_addresses_at_which_they_could_never_register(tmp_path, addresses, hint, monkeypatch):
    file = tmp_path / "broker.conf"
    file.write_text(f"namesrvAddr={addresses}\n")
    for arguments in (["-n", addresses], ["-c", str(file)], [f"namesrvAddr={addresses}"]):
        said = refused(arguments)
        assert "namesrvAddr: expected Name Server addresses" in said and hint in said and repr(addresses) in said
    monkeypatch.setenv("NAMESRV_ADDR", addresses)
    said = refused([])
    assert said.startswith("environment variable NAMESRV_ADDR: expected") and hint in said


@pytest.mark.parametrize("addresses, hint", BAD)
def test_clients_and_tools_refuse_such_addresses_too(addresses, hint, capsys):
    with pytest.raises(MQClientException) as failure:
        DefaultMQProducer("group", addresses).start()
    assert "expected host:port" in failure.value.error_message and hint in failure.value.error_message
    for arguments in (["ha", "status"], ["top", "--once"], ["doctor"], ["check", "ha"],
                      ["produce", "-t", "T"], ["consume", "-t", "T"]):
        result = CliRunner().invoke(rmqha, [*arguments, "-n", addresses], input="x\n")
        code = 3 if arguments[0] == "check" else 2
        assert result.exit_code == code and hint in result.output and "host:port" in result.output, result.output
    mq_admin_startup.main(["clusterList", "-n", addresses])
    assert hint in capsys.readouterr().err


@pytest.mark.parametrize("addresses", ["127.0.0.1:1", "127.0.0.1:1;localhost:2", " 127.0.0.1:1 ; localhost:2; ",
                                       "http://127.0.0.1:1", "http://MQ_INST_1_x.example:80", "[::1]:1", "::1:1"])
def test_valid_addresses_are_accepted_and_stripped_of_blanks(addresses):
    producer = DefaultMQProducer("group", addresses)
    producer.start()
    try:
        taken = producer.api.get_name_server_address_list()
        assert taken and not any(" " in address or "/" in address for address in taken)
    finally:
        producer.shutdown()


@pytest.mark.parametrize("peers", ["n0-127.0.0.1:9878,n1-127.0.0.1:9879", "n0-http://127.0.0.1:9878"])
def test_controllers_refuse_unreachable_peer_addresses(peers, capsys):
    words = [f"controllerDLegerPeers={peers}", "controllerDLegerSelfId=n0"]
    assert controller_startup.main(words) == 2
    assert "expected id-host:port, several separated by ;" in capsys.readouterr().err


def test_broker_refuses_unreachable_controller_addresses():
    with pytest.raises(ConfigError, match="controllerAddr: .*separate addresses with ; instead of ,"):
        broker_startup.create_broker_controller(broker_startup.parse_command_line(
            ["enableControllerMode=true", "controllerAddr=127.0.0.1:1,127.0.0.1:2", "-p"]))
