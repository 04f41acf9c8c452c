"""Every config key has a type and a range: `python -m tests.common.test_config_keys` writes docs/config-keys.md."""
import copy
import dataclasses
import json
import logging
import os
import pickle
import re
import sys
from enum import Enum
from pathlib import Path

import pytest

from rmqha.broker import broker_startup
from rmqha.common import mix_all
from rmqha.common.broker_config import BrokerConfig
from rmqha.common.config_keys import (
    INT_MAX,
    LONG_MAX,
    AnyText,
    Host,
    NamesrvAddresses,
    Paths,
    Port,
    SecretText,
    allowed_words,
    base_type,
    config_keys,
    key_types,
    parse_property,
    rules,
)
from rmqha.common.config_keys import Path as KeyPath
from rmqha.common.configuration import (
    CHANGEABLE_TEXTS,
    FIXED_KEYS,
    SECRET_KEYS,
    ConfigError,
    Configuration,
    is_fixed,
    is_secret,
    load_config_file,
    refused_keys,
)
from rmqha.common.controller_config import ControllerConfig
from rmqha.common.namesrv_config import NamesrvConfig
from rmqha.common.texts import Secret
from rmqha.namesrv import namesrv_startup
from rmqha.remoting.remoting_config import RemotingClientConfig, ServerConfig
from rmqha.remoting.tls_system_config import TlsSystemConfig
from rmqha.store.message_store_config import MessageStoreConfig
from rmqha.tools.config.config_command import explain
from rmqha.tools.config.config_meanings import MEANINGS, OLD_NAMES
from rmqha.tools.manage.settings import AT_NEXT_START, SPECIAL_EFFECTS
from tests.support.sources import ROOT

CLASSES = (BrokerConfig, MessageStoreConfig, ServerConfig, RemotingClientConfig, NamesrvConfig, ControllerConfig)
PAGE = ROOT / "docs" / "config-keys.md"
_RANGE = re.compile(r"from (-?\d+) to (\d+)")
# Defaults that depend on the machine, or on the server.
OF_THE_MACHINE = {
    "listenPort": f"broker: `{broker_startup.DEFAULT_LISTEN_PORT}`<br>"
                  f"name server: `{namesrv_startup.DEFAULT_LISTEN_PORT}`",
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
    ("masterAddress", ["", "10.0.0.1:10911", "broker-a.example:3", "[::1]:65535", "vip_1:10911"],
     ["10.0.0.1", "10.0.0.1:", "10.0.0.1:2", "10.0.0.1:65536", "::1:10911", "tcp://10.0.0.1:10911", "a:9;b:9", ":10"]),
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


# The page: keys by subject. A key belongs to the first subject with a pattern that matches its whole name.

INTRO = """# Config keys

This page lists every key of the config files of brokers, name servers and controllers, for those who run them.
`rmqha config explain KEY` prints meaning, values and default of one key, and the modules that read it.
`rmqha config check FILE` finds mistakes in a file before its server does.

## How to set a key

- **In a file**, one `key=value` a line: `mqbroker -c broker.conf`. `mqnamesrv` and `mqcontroller` have `-c`, too.
- **On the command line**: `mqbroker -c broker.conf traceOn=false`. It overrides the file.
- **At run time**: [`rmqha cluster config set`](how-to/cluster-settings.md) for brokers; or `mqadmin`
  `updateBrokerConfig`, `updateNamesrvConfig` or `updateControllerConfig`, for one key.
  The server checks the value, applies it, and writes it to its file. Nothing else in the file changes.
  Servers do not read the file again while they run.

An invalid value ends the start with exit code 2. The message names file, line, key, value and the allowed values.
An unknown key is a warning that names the nearest known one.

## How to read the tables

The second line of each meaning has up to three parts:

1. **The allowed values, and their unit.** "1 or more" ends at 2,147,483,647, and with "(64 bits)" at
   9,223,372,036,854,775,807. A *text* or a *name* has no control characters, and a name is not blank. A page of
   memory has 4 KiB.
2. **When a change takes effect**: *at run time*; *at the next start*, though the running server accepts the change;
   or *fixed*: the running server refuses it, so edit the file and restart.
3. **Where RocketMQ differs**: *rmqha only*, *not in 4.9*, *not in 5.x*, or the name that RocketMQ uses. Without this
   part, 4.9 and 5.x have the key under the same name (from the source of 4.9.8 and 5.3.3).
"""
SUBJECTS: tuple[tuple[str, str, str], ...] = (
    ("Identity and role of a broker", "", "broker(Name|ClusterName|Id|Role|IP.|Permission)"),
    ("Registration with name servers", "Keys of a broker.",
     "namesrvAddr|masterAddress|fetchNamesrv.*|register.*|compressedRegister|forceRegister"),
    ("Files of the store", "Keys of a broker.",
     "storePath(RootDir|CommitLog)|readOnly.*|mappedFileSize.+|enableConsumeQueueExt|preallocate.*|dataReadAhead.*|"
     "warm.*|flushLeast.*|transientStore.*|fastFailIf.*|commitC.*|commitI.*"),
    ("Flushing", "When messages reach the disk. Keys of a broker.",
     "flush(DiskType|Interval|Commit|ConsumeQueue).*|syncFlushTimeout|dispatchBehindFlush"),
    ("Retention", "When old messages are deleted. Keys of a broker.",
     "delete.*|clean.*|diskMax.*|fileReserved.*|destroy.*|redelete.*"),
    ("Recovery, index and queries", "Keys of a broker.",
     "checkCRC.*|messageIndex.*|max(HashSlot|Index)Num|maxMsgsNumBatch|defaultQueryMaxNum|duplicationEnable"),
    ("Replication", "Keys of a broker. [Replication](replication.md) says how they work together.",
     "ha(?!Scrub).*|slaveTimeout|.*[iI]nSync.*|syncFromLastFile|asyncLearner|maxHaTransfer.*|enableAutoSwitchHA|"
     "storePathEpochFile|totalReplicas"),
    ("Comparing replicas", "A slave compares its log with its master's while it runs. Keys of a broker.", "haScrub.*"),
    ("Automatic failover, at a broker", "See [how failover works](failover.md).",
     "enableControllerMode|controller(Addr|HeartBeat.*|Lease)|fetchController.*|brokerHeartbeatInterval|"
     "sendHeartbeat.*|sync(Broker|Controller)Metadata.*|brokerElection.*|storePathBrokerIdentity|"
     "onRoleChange.*|relayToMaster"),
    ("Controller", "Keys of a controller, and of a name server with a controller inside.",
     "scan.*|controller(?!Addr|Heart|Lease).*|enableElect.*|notifyBrokerRole.*|maxLease.*|etcd.*"),
    ("Name server", "", "kvConfigPath|productEnvName|clusterTest|orderMessage.*|enableControllerInNamesrv"),
    ("Topics and consumer groups", "Keys of a broker.",
     "autoCreate.*|.*TopicEnable|defaultTopic.*|notifyConsumer.*|flushConsumerOffset.*|.*L[mM][qQ].*|enableMulti.*"),
    ("Sends", "Keys of a broker.",
     "maxMessageSize|osPageCache.*|startAccept.*|rejectTransaction.*|storeReply.*|trace(On|Topic.*)|msgTrace.*|"
     "regionId"),
    ("Pulls", "Keys of a broker.",
     "longPolling.*|shortPolling.*|maxTransfer.*|accessMessage.*|slaveRead.*|disableConsume.*|consumerFall.*|"
     "offsetCheck.*|diskFall.*"),
    ("SQL92 filters", "Keys of a broker.",
     "enablePropertyFilter|filter.*|enableCalc.*|expectConsumer.*|maxErrorRate.*"),
    ("Delayed and transactional messages", "Keys of a broker.",
     "messageDelay.*|flushDelay.*|enableSchedule.*|scheduleAsync.*|transaction.*"),
    ("Threads and waiting requests", "Keys of a broker.",
     ".*ThreadPool.*|waitTimeMills.*|brokerFastFailureEnable"),
    ("Connections", "Keys of all servers. `server...` is for connections that a server accepts, `client...` for those "
     "that it opens.", "listenPort|server.*|client.*|connectTimeout.*|useTLS|writeBuffer.*"),
    ("Security, logs and metrics", "Keys of a broker, unless other servers are named.",
     "rocketmqHome|configStorePath|configBlackList|aclEnable|log.*|metrics.*|stallWatch.*|isolateLog.*|"
     "enableDetailStat|autoDelete.*|debugLock.*"),
)
NO_EFFECT = "Keys without effect"
# No module of a server reads these by their names, and yet they have an effect; and the other way round.
_EFFECTIVE = {"controllerDLegerPeers", "totalReplicas"}
_WITHOUT_EFFECT = {"haListenPort", "bitMapLengthConsumeQueueExt", "endTransactionPoolQueueCapacity"}
_UNITS = {"milliseconds": "ms", "seconds": "s", "percent": "%"}
_SERVERS = {BrokerConfig: "broker", NamesrvConfig: "name server", ControllerConfig: "controller"}


def is_without_effect(key: str) -> bool:
    """True if no server does anything with a key."""
    return key in _WITHOUT_EFFECT or (not explain(key)[0].readers and key not in _EFFECTIVE)


def subject_of(key: str) -> str:
    """The heading of the page below which a key is found."""
    if is_without_effect(key):
        return NO_EFFECT
    found = next((title for title, _words, pattern in SUBJECTS if re.fullmatch(pattern, key)), None)
    assert found, f"no pattern of SUBJECTS matches {key}"
    return found


def range_words(kind) -> str:
    """Return a short text about the values that a key may have."""
    words = allowed_words(kind)
    found = re.fullmatch(r"a whole number(?: of (\w+))? from (-?\d+) to (\d+)", words)
    if not found:
        name = words.startswith("a name: ")
        return "a name" if name else {
            "a text without control characters": "a text", "true or false": "true, false",
            allowed_words(NamesrvAddresses): 'host:port, several separated by ";"'}.get(
                words, words.removeprefix("one of ").replace("|", "&#124;"))
    unit, low, high = found[1] or "", int(found[2]), int(found[3])
    bits = " (64 bits)" if high == LONG_MAX else ""
    open_end = "any whole number" if low in (-INT_MAX - 1, -LONG_MAX - 1) else f"{low:,} or more"
    text = open_end if high in (INT_MAX, LONG_MAX) else f"{low:,} to {high:,}"
    return f"{text} {_UNITS.get(unit, unit)}".strip() + bits


def default_text(config_class: type, key: str, kind, default) -> str:
    """A default, large sizes and times also in units that one can read."""
    said = OF_THE_MACHINE.get(f"{config_class.__name__}.{key}") or OF_THE_MACHINE.get(key)
    if said or default is None or default == "":
        return said or "not set"
    text, words = mix_all.property_text(default), allowed_words(kind)
    units = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)) if "of bytes" in words else (
        ("d", 86_400_000), ("h", 3_600_000), ("min", 60_000)) if "of milliseconds" in words else ()
    more = next((f"<br>{default // size} {unit}" for unit, size in units if default and default % size == 0), "")
    return (text if " " in text else f"`{text}`") + more


def names_elsewhere(key: str) -> str:
    """Return the names of a key in RocketMQ 4.9 and 5.x; empty if both have the same name."""
    found = explain(key)[0]
    if found.in_4_9 is None and found.in_5 is None:
        return "rmqha only"
    said = ["not in 4.9"] if found.in_4_9 is None else [f"until 4.4 `{OLD_NAMES[key]}`"] if key in OLD_NAMES else []
    if found.in_5 != key:
        said.append("not in 5.x" if found.in_5 is None else f"5.x: `{found.in_5}`")
    return ", ".join(said)


def row(key: str) -> str:
    """A key's row: of all servers that have it."""
    of = [(config_class, kind, default) for config_class, name, kind, default in keys() if name == key]
    defaults = {_SERVERS.get(config_class, ""): default_text(config_class, key, kind, default)
                for config_class, kind, default in of}
    default = next(iter(defaults.values())) if len(set(defaults.values())) == 1 else "<br>".join(
        f"{server}: {text}" for server, text in defaults.items())
    meaning = MEANINGS[key][0].upper() + MEANINGS[key][1:] if MEANINGS[key].split()[0].islower() else MEANINGS[key]
    effect = "fixed" if is_fixed(key) else SPECIAL_EFFECTS.get(key) or (
        "at the next start" if AT_NEXT_START.fullmatch(key) else "at run time")
    servers = f" ({', '.join(defaults)})" if len(defaults) > 1 and not is_without_effect(key) else ""
    parts = [range_words(of[0][1]), "" if is_without_effect(key) else effect, names_elsewhere(key)]
    return f"| `{key}` | {default} | {meaning}{servers}.<br>*{'; '.join(filter(None, parts))}* |"


def render() -> str:
    """The page."""
    by_subject: dict[str, list[str]] = {}
    for key in dict.fromkeys(key for _class, key, _kind, _default in keys()):
        by_subject.setdefault(subject_of(key), []).append(key)
    parts = [INTRO]
    for title, words, _pattern in (*SUBJECTS, (
            NO_EFFECT, "These keys are accepted, so that RocketMQ's files can be used as they are. rmqha does nothing "
            "with them, except that it does not start with `enableDLegerCommitLog=true` or with a "
            "`messageStorePlugIn`.", "")):
        parts.append(f"## {title}\n\n" + (f"{words}\n\n" if words else "") + "\n".join(
            ["| key | default | meaning |", "|---|---|---|", *map(row, by_subject[title])]))
    parts.append("---\n\nThis page is generated from the config classes by `python -m tests.common.test_config_keys`.")
    return "\n\n".join(part.strip() for part in parts) + "\n"


def test_each_key_has_a_subject_and_each_subject_keys():
    found = {subject_of(key) for _class, key, _kind, _default in keys()}
    assert found == {NO_EFFECT, *(title for title, _words, _pattern in SUBJECTS)}
    assert all(is_without_effect(key) for key in ("putMsgIndexHightWater", "dLegerGroup", "haListenPort"))
    known = {key for _class, key, _kind, _default in keys()}
    assert known >= _EFFECTIVE | _WITHOUT_EFFECT | set(SPECIAL_EFFECTS)


def test_page_lists_every_key():
    assert PAGE.read_text("utf-8") == render(), "run: python -m tests.common.test_config_keys"


# Every config key of every server is shown or secret, and changeable or fixed, on purpose.

LOG = logging.getLogger("RocketmqNamesrv")
TLS_KEYS = {item.metadata["property"]: item for item in dataclasses.fields(TlsSystemConfig)}
_LOOKS_SECRET = re.compile("passw|secret|token|credential", re.IGNORECASE)
_LOOKS_FIXED = re.compile(r"Path$|Home$|Dir$|Port$|Role$|Name$|Addr$|Address$|IP\d$|Peers$|Endpoints$|Host$")


def wrong_of(key: str, kind) -> str | None:
    """Why a key and its annotation don't fit the lists; None when they do."""
    is_secret_type = base_type(kind) is Secret
    if (is_secret_type or _LOOKS_SECRET.search(key)) and not (key in SECRET_KEYS and is_secret_type):
        return "a secret has the type SecretText, and is in SECRET_KEYS"
    is_text = base_type(kind) is str or kind in (KeyPath, Paths, Port, Host)
    if (is_text or _LOOKS_FIXED.search(key)) and key not in FIXED_KEYS | CHANGEABLE_TEXTS:
        return "a path, name, address, port or text is in one of the lists of FIXED_KEYS, or in CHANGEABLE_TEXTS"
    return None


def test_every_key_of_every_class_is_in_the_lists_it_belongs_to():
    assert {key: wrong for _class, key, kind, _default in keys() if (wrong := wrong_of(key, kind))} == {}


@pytest.mark.parametrize(("key", "kind"), [
    ("otherStorePath", KeyPath), ("newName", AnyText), ("adminPort", Port), ("bindHost", Host), ("dirs", Paths),
    ("namesrvAddr2", NamesrvAddresses), ("kafkaPassword", AnyText), ("kafkaPassword", SecretText), ("key", SecretText)])
def test_a_new_key_that_is_in_no_list_fails(key, kind):
    assert wrong_of(key, kind) is not None


def test_the_lists_name_keys_that_there_are():
    known = {key for config_class in CLASSES for key in config_keys(config_class)}
    known |= {old for config_class in CLASSES for old in getattr(config_class, "key_aliases", {})} | set(TLS_KEYS)
    assert (FIXED_KEYS | CHANGEABLE_TEXTS) - known == {
        "brokerConfigPath", "rmqAddressServerDomain", "rmqAddressServerSubGroup"}
    assert not FIXED_KEYS & CHANGEABLE_TEXTS


def test_all_of_tls_is_fixed_and_its_passwords_are_secret():
    assert set(TLS_KEYS) <= FIXED_KEYS
    for key, item in TLS_KEYS.items():
        assert (key in SECRET_KEYS) == item.metadata["secret"] == bool(_LOOKS_SECRET.search(key)) == (not item.repr)
    shown = repr(TlsSystemConfig(tls_server_key_password="of-the-server", tls_client_key_password="of-the-client"))
    assert "of-the" not in shown and "tls_server_key_path" in shown


def test_passwords_of_tls_are_secrets_however_they_are_given_and_shown(tmp_path, monkeypatch, caplog):
    file = tmp_path / "tls.properties"
    file.write_text("tls.server.keyPassword=of-the-server\ntls.client.keyPassword=of-the-client\n")
    monkeypatch.setenv("TLS_SERVER_KEYPASSWORD", "of-the-server")
    monkeypatch.setenv("TLS_CLIENT_KEYPASSWORD", "of-the-client")
    given = [TlsSystemConfig(), TlsSystemConfig(tls_config_file=str(file)).with_config_file(),
             TlsSystemConfig(tls_server_key_password="of-the-server", tls_client_key_password="of-the-client")]
    for settings in given:
        for each in dataclasses.fields(settings):
            if each.metadata["secret"]:
                value = getattr(settings, each.name)
                assert isinstance(value, Secret) and value.reveal().startswith("of-the-")
        with caplog.at_level(0, "RocketmqRemoting"):
            settings.log_final()
        shown = (f"{settings} {settings.__dict__} {dataclasses.asdict(settings)} {dataclasses.astuple(settings)} "
                 f"{dataclasses.replace(settings, tls_enable=True)} "
                 + json.dumps(dataclasses.asdict(settings), default=str) + caplog.text)
        assert "of-the" not in shown
        with pytest.raises(TypeError):
            pickle.dumps(settings)


@pytest.mark.parametrize("key", ["myPassword", "db.passwd", "accessToken", "SECRET_KEY", "ssl.privateKey"])
def test_a_key_that_nobody_knows_is_secret_by_its_name(key):
    assert is_secret(key) and is_fixed(key) and refused_keys([key, "traceOn"]) == [key]


def test_a_black_list_is_added():
    assert refused_keys(["traceOn", "longPollingEnable"], [" traceOn", " x"]) == ["traceOn"]


def test_a_secret_prints_as_stars_wherever_it_goes():
    secret = Secret("s3cret")
    config = ControllerConfig(etcdPassword=secret)
    for text in (str(secret), repr(secret), f"{secret}", "%s %r" % (secret, secret), str([secret]), repr(config),
                 mix_all.property_text(secret), str(mix_all.object2properties(config)),
                 str(dataclasses.asdict(config)), json.dumps({"password": secret}, default=str)):
        assert "***" in text and "s3cret" not in text
    with pytest.raises(TypeError):
        json.dumps({"password": secret})
    with pytest.raises(TypeError):
        pickle.dumps(config)
    assert secret.reveal() == "s3cret" and copy.deepcopy(secret) == secret == Secret("s3cret") != Secret("s3creT")
    assert ControllerConfig(etcdPassword="s3cret").etcdPassword == secret and not Secret("")


def test_a_bad_secret_is_refused_without_being_shown(tmp_path):
    file = tmp_path / "controller.conf"
    file.write_text("etcdPassword=s3cret\\u0007\n")
    with pytest.raises(ConfigError) as failure:
        load_config_file(str(file), (ControllerConfig(),))
    assert "s3cret" not in str(failure.value) and f"{file}:1: etcdPassword: expected" in str(failure.value)


def test_a_file_keeps_its_secrets_and_its_mode_and_no_other_file_gets_them(tmp_path, caplog):
    file = tmp_path / "controller.conf"
    file.write_text("etcdPassword=s3cret\nmyToken=t0ken\nunknown=1\n")
    file.chmod(0o600)
    config = ControllerConfig(configStorePath=str(file))
    properties = load_config_file(str(file), (config,), warn=lambda text: None)
    configuration = Configuration(LOG, config).register_config(properties)
    configuration.set_store_path_from_config(config, "configStorePath")
    with caplog.at_level("DEBUG"):
        configuration.update({"scanNotActiveBrokerInterval": "7000"})
    for text in (configuration.get_all_configs_format_string(), caplog.text):
        assert "s3cret" not in text and "t0ken" not in text and "***" not in text
    assert mix_all.string2properties(file.read_text()).items() >= {
        "etcdPassword": "s3cret", "myToken": "t0ken", "unknown": "1", "scanNotActiveBrokerInterval": "7000"}.items()
    assert {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {
        "controller.conf": 0o600, "controller.conf.bak": 0o600}
    config.configStorePath = str(tmp_path / "other.conf")
    configuration.persist()
    assert "scanNotActiveBrokerInterval=7000" in (other := (tmp_path / "other.conf").read_text())
    assert "s3cret" not in other and "t0ken" not in other and "***" not in other


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644])
def test_a_file_that_is_replaced_keeps_its_mode(tmp_path, mode, monkeypatch):
    file = tmp_path / "conf"
    file.write_text("old")
    file.chmod(mode)
    mix_all.string2file("new", str(file))
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("new", mode)

    def no_links(*_names):
        raise OSError(1, "no hard links here")
    monkeypatch.setattr(os, "link", no_links)
    mix_all.string2file("newer", str(file))
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {mode}


if __name__ == "__main__":
    Path(PAGE).write_text(render(), "utf-8")
    sys.stdout.write(f"wrote {PAGE.name}: {len(list(keys()))} keys\n")
