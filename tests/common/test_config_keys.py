"""Every config key has a type and a range: `python -m tests.common.test_config_keys` writes docs/config-keys.md."""
import re
import sys
from enum import Enum
from pathlib import Path

import pytest

from rmqha.broker import broker_startup
from rmqha.common import mix_all
from rmqha.common.broker_config import BrokerConfig
from rmqha.common.config_keys import allowed_words, base_type, config_keys, key_types, parse_property, rules
from rmqha.common.configuration import ConfigError, load_config_file
from rmqha.common.controller_config import ControllerConfig
from rmqha.common.namesrv_config import NamesrvConfig
from rmqha.common.texts import Secret
from rmqha.remoting.remoting_config import RemotingClientConfig, ServerConfig
from rmqha.store.message_store_config import MessageStoreConfig
from tests.support.sources import ROOT

CLASSES = (BrokerConfig, MessageStoreConfig, ServerConfig, RemotingClientConfig, NamesrvConfig, ControllerConfig)
PAGE = ROOT / "docs" / "config-keys.md"
_RANGE = re.compile(r"from (-?\d+) to (\d+)")
# Defaults that depend on the machine.
OF_THE_MACHINE = {
    "rocketmqHome": "$ROCKETMQ_HOME", "namesrvAddr": "$NAMESRV_ADDR", "brokerIP1": "the host's address",
    "brokerIP2": "the host's address", "brokerName": "the host's name", "storePathRootDir": "~/store",
    "kvConfigPath": "~/namesrv/kvConfig.json", "configStorePath": "~/namesrv/namesrv.properties",
    "ControllerConfig.configStorePath": "~/controller/controller.properties",
    "controllerStorePath": "~/DledgerController",
    "sendMessageThreadPoolNums": "cores, at most 4", "putMessageFutureThreadPoolNums": "cores, at most 4",
    "pullMessageThreadPoolNums": "16 + 2 * cores", "processReplyMessageThreadPoolNums": "16 + 2 * cores",
    "queryMessageThreadPoolNums": "8 + cores", "heartbeatThreadPoolNums": "cores, at most 32",
    "endTransactionThreadPoolNums": "8 + 2 * cores", "clientCallbackExecutorThreads": "cores",
}


def keys():
    """(class, key, annotation, default) of every key."""
    for config_class in CLASSES:
        types, config = key_types(config_class), config_class()
        for key, item in config_keys(config_class).items():
            yield config_class, key, types[item.name], getattr(config, item.name)


def bounds(kind) -> tuple[int, int] | None:
    """The least and the greatest number that a key may be."""
    found = _RANGE.search(allowed_words(kind))
    return (int(found[1]), int(found[2])) if found else None


def refused(kind, text: str) -> str:
    """Why a text is no value."""
    with pytest.raises(ValueError) as failure:
        parse_property(text, kind)
    return str(failure.value)


def test_every_key_has_a_type_and_a_range():
    without = [key for _class, key, kind, _default in keys()
               if not (base_type(kind) is bool or issubclass(base_type(kind), Enum) or rules(kind))]
    assert not without


def test_every_default_is_allowed():
    for _class, key, kind, default in keys():
        if default is not None:
            assert parse_property(mix_all.property_text(default), kind) == default, key


def test_numbers_are_taken_up_to_their_bounds_and_no_further():
    numbers = 0
    for _class, key, kind, _default in keys():
        if base_type(kind) is int:
            low, high = bounds(kind)
            assert parse_property(str(low), kind) == low and parse_property(f" {high} ", kind) == high, key
            for text in (str(low - 1), str(high + 1), "1e3", "", "0x1f", "5.0", "1_0", "seven"):
                assert re.search(rf"expected a whole number.* from {low} to {high}", refused(kind, text)), key
            numbers += 1
    assert numbers > 100


def test_switches_take_what_the_original_reads_right():
    switches = [(key, kind) for _class, key, kind, _default in keys() if base_type(kind) is bool]
    assert len(switches) > 50
    for key, kind in switches:
        assert parse_property("TRUE ", kind) is True and parse_property("False", kind) is False, key
        assert not any(parse_property(text, kind) for text in ("no", "off", "0", "N")), key
        for text in ("yes", "on", "1", "", "ture", "true;", "enabled"):
            assert refused(kind, text) == f"expected true or false, not {text!r}", key


@pytest.mark.parametrize("key, good, bad", [
    ("brokerName", ["broker-a", "brokér", "a b"], ["", "  ", "a\x00", "a\nb"]),
    ("brokerClusterName", ["DefaultCluster"], ["", "\t"]),
    ("brokerIP1", ["10.0.0.1", "broker-a.example", "::1", "[fe80::1]"], ["", "10.0.0.1:10911", "a b", "a/b", "a;b"]),
    ("namesrvAddr", ["a:1", "a:1;b:2", "a:9876;", "[::1]:9876", "::1:9876", "a:1; b:2", "name-server_1.example:9876"],
     ["", "a", "a:", "a:0", "a:65536", "a:b", "a:1;;b:1", ":1", "a:1,b:2", "a,b:1", "http://a:1", "a:1 b:2", "a b:1"]),
    ("haMasterAddress", ["", "10.0.0.1:10912", "[::1]:10912"],
     ["10.0.0.1", "10.0.0.1:", "10.0.0.1:99999", "tcp://10.0.0.1:10912", "a:1,b:2"]),
    ("controllerAddr", ["", "a:1", "a:1;b:2", " a:1 ; b:2;"], ["a", "a:1,b:2", "http://a:1", "a:1 b:2", "a:0"]),
    ("storePathRootDir", ["/data/store", "store"], ["", " "]),
    ("storePathCommitLog", ["/a", "/a,/b"], ["", "/a,,/b", "/a,"]),
    ("deleteWhen", ["04", "4", "00;12;23", "004;", "0"], ["", "99", "24", "-1", "4,5", "04:00", "4; 5", "x"]),
    ("messageDelayLevel", ["1s", "1s 5m 2h 1d", "1s 5s "], ["", "1", "1s  5s", "1x", "s", "-1s", "1s,5s", "1.5s"]),
    ("msgTraceTopicName", ["RMQ_SYS_TRACE_TOPIC"], ["", "a b", "ü", "x" * 128]),
    ("haAllowedPeers", ["", "10.0.0.0/8, ::1", "10.0.0.1"], ["10.0.0.0/33", "host"]),
    ("haHandshakeEnable", ["auto", "true", "false", "no", " True "], ["", "maybe", "yes"]),
    ("regionId", ["", "eu-1"], ["a\x01b", "a\x02"]),
])
def test_texts_have_a_form(key, good, bad):
    kind = next(kind for _class, name, kind, _default in keys() if name == key)
    for text in good:
        assert parse_property(text, kind) == text
    for text in bad:
        assert refused(kind, text).startswith("expected ") and f"not {text[:80]!r}" in refused(kind, text)


def test_bad_value_of_any_key_is_refused_with_file_line_key_and_value(tmp_path):
    file = tmp_path / "server.conf"
    for config_class, key, kind, _default in keys():
        bad = "\\u0000" if base_type(kind) in (str, Secret) else "never"
        if base_type(kind) is str and "any text" in allowed_words(kind):
            continue
        file.write_text(f"# a comment\n{key}={bad}\n")
        with pytest.raises(ConfigError) as failure:
            load_config_file(str(file), (config_class(),))
        told = f"{file}:2: {key}: expected {allowed_words(kind)}"
        assert str(failure.value) == told if base_type(kind) is Secret else \
            str(failure.value).startswith(f"{told}, not '"), key


def test_option_and_environment_are_named(tmp_path, monkeypatch, capsys):
    file = tmp_path / "broker.conf"
    file.write_text(f"storePathRootDir={tmp_path}\n")
    assert broker_startup.main(["-c", str(file), "-n", "nowhere"]) == 2
    assert capsys.readouterr().err.startswith("--namesrvAddr: expected Name Server addresses as follows, ")
    monkeypatch.setenv("NAMESRV_ADDR", "a:b")
    assert broker_startup.main(["-c", str(file)]) == 2
    assert capsys.readouterr().err.startswith("environment variable NAMESRV_ADDR: expected Name Server addresses")


def render() -> str:
    """The page."""
    parts = ["# Config keys",
             "What each key may be. A bad value ends the start of a server with exit code 2, and names file, line, "
             "key, value\nand what is allowed; of a command-line value it names the option.\n"
             "Made by `python -m tests.common.test_config_keys`."]
    for config_class in CLASSES:
        rows = ["| key | may be | default |", "|---|---|---|"]
        for of_class, key, kind, default in keys():
            if of_class is config_class:
                said = OF_THE_MACHINE.get(f"{config_class.__name__}.{key}") or OF_THE_MACHINE.get(
                    key, "" if default is None else f"`{mix_all.property_text(default)}`")
                said = "" if said == "``" else said
                rows.append(f"| {key} | {allowed_words(kind).replace('|', '&#124;')} | {said} |")
        parts += [f"## {config_class.__name__}", "\n".join(rows)]
    return "\n\n".join(parts) + "\n"


def test_page_lists_every_key():
    assert PAGE.read_text("utf-8") == render(), "run: python -m tests.common.test_config_keys"


if __name__ == "__main__":
    Path(PAGE).write_text(render(), "utf-8")
    sys.stdout.write(f"wrote {PAGE.name}: {len(list(keys()))} keys\n")
