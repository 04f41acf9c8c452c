"""Settings of running brokers: read them, change them, and find differences between replicas and from their files.

    brokers --GET_BROKER_CONFIG--> Settings: the values, and what the broker reports about its file
    wanted keys + Settings --plan--> Changes, or the reasons against them
    --UPDATE_BROKER_CONFIG, read again--> Changed: the value in force, and what survives a restart

A broker of RocketMQ reports nothing about its file: then all about the file is unknown.
"""
import functools
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rmqha.common import java
from rmqha.common.broker_config import BrokerConfig
from rmqha.common.config_keys import config_keys, key_types, parse_property
from rmqha.common.configuration import is_fixed, is_secret, nearest_key, refused_keys
from rmqha.common.protocol import cluster_bodies, request_code
from rmqha.common.protocol.cluster_bodies import ConfigFileReport, decode_report
from rmqha.common.texts import HIDDEN
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.remoting.remoting_config import RemotingClientConfig, ServerConfig
from rmqha.store.message_store_config import MessageStoreConfig
from rmqha.tools.admin.cluster_admin import Broker, ClusterAdmin
from rmqha.tools.manage.masters import Outcomes, brokers_of, on_each
from rmqha.tools.manage.single_request import ask_broker
from rmqha.tools.terminal import CannotAnswerError

CLASSES = (BrokerConfig, ServerConfig, RemotingClientConfig, MessageStoreConfig)
_BLACK_LIST = "configBlackList"
# A key that only rmqha's brokers have.
_OF_RMQHA = "haHandshakeEnable"

# A running broker accepts a change of these, and reads them when it starts.
AT_NEXT_START = re.compile(
    ".*ThreadPoolNums|.*ThreadPoolQueueCapacity|clusterTopicEnable|brokerTopicEnable|traceTopicEnable|"
    "defaultTopicQueueNums|cleanResourceInterval|flushConsumerOffsetInterval|flushDelayOffsetInterval|"
    "registerNameServerPeriod|fetchNamesrvAddrByAddressServer|server(?!SocketSnd).*|client(?!Socket|Close).*|"
    "clusterTest|productEnvName|enableCalcFilterBitMap|expectConsumerNumUseFilter|maxErrorRateOfBloomFilter|"
    "enableDetailStat|stallWatchMs|isolateLogEnable|checkCRCOnRecover|messageIndexSafe")
SPECIAL_EFFECTS = {
    "flushDiskType": "to ASYNC_FLUSH at run time, to SYNC_FLUSH at the next start",
    **dict.fromkeys(("serverSocketSndBufSize", "clientSocketSndBufSize", "clientSocketRcvBufSize",
                     "writeBufferHighWaterMark", "writeBufferLowWaterMark"), "at run time, for new connections")}
AT_RUN_TIME = "at run time"

_ITS_NAME = "each broker name is unique"
_ITS_PLACE = "each broker has its own address and ports"
_ITS_FILES = "a path of this host"
_ITS_START = "set by the broker when it starts"
# Keys that differ between brokers by their meaning -> why.
OWN_KEYS = {
    "brokerName": _ITS_NAME, "brokerId": "each replica has its own id",
    **dict.fromkeys(("brokerIP1", "brokerIP2", "listenPort", "haListenPort", "metricsHost", "metricsPort"), _ITS_PLACE),
    **dict.fromkeys(("rocketmqHome", "brokerConfigPath", "storePathRootDir", "storePathCommitLog",
                     "storePathDLedgerCommitLog", "readOnlyCommitLogStorePaths", "storePathEpochFile",
                     "storePathBrokerIdentity"), _ITS_FILES),
    **dict.fromkeys(("haMasterAddress", "masterAddress"), "the master of this broker name"),
    "onRoleChange": "a command of this host",
    **dict.fromkeys(("dLegerGroup", "dLegerPeers", "dLegerSelfId", "preferredLeaderId"), "one for each DLedger group"),
    "startAcceptSendRequestTimeStamp": _ITS_START,
}
# Keys that also differ between a slave and its master.
OWN_KEYS_OF_SLAVES = {
    "brokerRole": "a slave's role is SLAVE",
    "brokerElectionPriority": "the replicas' order in an election",
    "asyncLearner": "a property of one replica",
    "haSyncFromFirstFile": "what this slave copies when it is empty",
}
# Keys whose running value comes from something else than the file -> what.
_DERIVED_KEYS = {"haListenPort": "it is always listenPort + 1", "startAcceptSendRequestTimeStamp": _ITS_START}
_OF_MOVING_ROLES = {"brokerRole": "its role is assigned while it runs", "brokerId": "its id is assigned while it runs",
                    "haMasterAddress": "its master is assigned while it runs"}


@dataclass(frozen=True)
class Settings:
    """A broker's settings, secrets hidden. `file`: None for a broker that reports nothing about its config file."""

    values: dict[str, str]
    file: ConfigFileReport | None = None

    @property
    def is_of_rmqha(self) -> bool:
        """True if the broker is rmqha's."""
        return _OF_RMQHA in self.values

    def value(self, key: str) -> str | None:
        """Return a key's value, by its name in a file; None when the broker does not have it."""
        return self.values.get(shown_name(key), self.values.get(key))


def picked(admin: ClusterAdmin, cluster: str | None, broker: str | None) -> list[Broker]:
    """Return the brokers of a cluster, those of a broker name, or the one at an address; sorted by name and id.

    CannotAnswerError without brokers, and for several clusters of which no one was chosen.
    """
    found = sorted(brokers_of(admin, cluster, broker))
    return [each for each in found if each.address == broker] or found


def label(broker: Broker) -> str:
    """Return the name and the id of a broker."""
    return f"{broker.name} {broker.broker_id}"


def read_settings(admin: ClusterAdmin, brokers: Iterable[Broker]) -> Outcomes[Settings]:
    """Return the settings of all brokers, asked in parallel."""
    return on_each(admin, brokers, lambda broker: admin.asked(f"broker {broker.address}", _read, admin, broker))


def _read(admin: ClusterAdmin, broker: Broker) -> Settings:
    request = RemotingCommand.create_request_command(request_code.GET_BROKER_CONFIG)
    request.add_ext_field(cluster_bodies.ASK_CONFIG_FILE, "true")
    response = ask_broker(admin, broker, request)
    shown = java.loads(bytes(response.body or b"").decode("utf-8"))
    values = {key: HIDDEN if is_secret(key) else value for key, value in shown.items()}
    return Settings(values, decode_report((response.ext_fields or {}).get(cluster_bodies.CONFIG_FILE)))


# ---- keys


@functools.cache
def known_keys() -> Mapping[str, Any]:
    """Return the annotation of each key of a broker, by its name in a file."""
    return {key: kinds[item.name] for each, kinds in ((each, key_types(each)) for each in CLASSES)
            for key, item in config_keys(each).items()}


@functools.cache
def _shown_names() -> Mapping[str, str]:
    return {key: item.name for each in CLASSES for key, item in config_keys(each).items()}


@functools.cache
def _file_names() -> Mapping[str, str]:
    old = {name: key for each in CLASSES for name, key in getattr(each, "key_aliases", {}).items()}
    return {**{name: key for key, name in _shown_names().items()}, **old}


def shown_name(key: str) -> str:
    """Return the name under which a broker returns a key."""
    return _shown_names().get(key, key)


def file_name(key: str) -> str:
    """Return the current name in a file of a key that is given by an old name, or as a broker returns it."""
    return _file_names().get(key, key)


def same_value(key: str, one: str | None, other: str | None) -> bool:
    """Return whether two texts are the same value of a key: `1.0` and `1`, `true` and ` TRUE`."""
    if one is None or other is None or one == other:
        return one == other
    kind = known_keys().get(key)
    if kind is None:
        return False
    try:
        return bool(parse_property(one, kind) == parse_property(other, kind))
    except ValueError:
        return False


def effect_of(key: str) -> str:
    """Return when a change of a key takes effect, at a broker of rmqha."""
    if key in SPECIAL_EFFECTS:
        return SPECIAL_EFFECTS[key]
    return "at the next start" if AT_NEXT_START.fullmatch(key) else AT_RUN_TIME


def checked_keys(keys: Iterable[str], settings: Mapping[Broker, Settings]) -> list[str]:
    """Return keys by their names in a file; CannotAnswerError for a key that no broker has."""
    shown = {file_name(key) for each in settings.values() for key in each.values}
    found = [file_name(key) for key in keys]
    for key in found:
        if key not in shown and key not in known_keys():
            raise _unknown(key, {*shown, *known_keys()})
    return list(dict.fromkeys(found))


def wanted_values(words: Iterable[str]) -> dict[str, str]:
    """Return the keys and values of KEY=VALUE texts, checked as a broker checks them.

    CannotAnswerError for another form, for an unknown key, for one that can't change while a broker runs, and for an
    invalid value.
    """
    wanted: dict[str, str] = {}
    kinds = known_keys()
    for word in words:
        key, equals, value = (part.strip() for part in word.partition("="))
        if not equals or not key:
            raise CannotAnswerError(f"{word[:80]!r} is not KEY=VALUE")
        if key not in kinds:
            raise _unknown(key, set(kinds))
        if key in wanted:
            raise CannotAnswerError(f"{key} is given twice")
        if is_secret(key) or is_fixed(key):
            raise CannotAnswerError(f"{key} can't be changed while a broker runs: like all paths, names, addresses, "
                                    "ports, roles and keys of trust, or because it is read only at the start. Change "
                                    "it in the config file, and restart the broker")
        try:
            parse_property(value, kinds[key])
        except ValueError as error:
            raise CannotAnswerError(f"{key}: {error}") from None
        wanted[key] = value
    return wanted


def _unknown(key: str, known: set[str]) -> CannotAnswerError:
    near = nearest_key(key, known)
    return CannotAnswerError(f"unknown config key {key!r}" + (f"; did you mean {near}?" if near else ""))


# ---- changes


@dataclass(frozen=True)
class Change:
    """A key of one broker: its value, and the wanted one. `problem`: why the broker would refuse the change."""

    broker: Broker
    key: str
    before: str | None
    after: str
    problem: str = ""

    @property
    def is_needed(self) -> bool:
        """True if the broker has another value."""
        return not same_value(self.key, self.before, self.after)


def plan(settings: Mapping[Broker, Settings], wanted: Mapping[str, str]) -> list[Change]:
    """Return what would change, for each broker and key."""
    return [Change(broker, key, held.value(key), value, _problem(held, key))
            for broker, held in settings.items() for key, value in wanted.items()]


def _problem(held: Settings, key: str) -> str:
    if refused_keys([key], held.values.get(_BLACK_LIST, "").split(";")):
        return f"the broker's {_BLACK_LIST} names {key}"
    # A broker does not return a key without a value.
    if held.value(key) is None and not (held.is_of_rmqha and key in known_keys()):
        return f"this broker does not know {key}"
    return ""


@dataclass(frozen=True)
class Changed:
    """A change that a broker has made. `is_saved`: its file has the value, and the next start reads it; None: unknown.

    `why` says why it is not saved, or unknown.
    """

    change: Change
    is_saved: bool | None
    file: str = ""
    why: str = ""


def change_settings(admin: ClusterAdmin, changes: Iterable[Change]) -> Outcomes[list[Changed]]:
    """Make the changes, in parallel, and read the settings again. Changes with a problem are not sent.

    A broker counts as failed when it refuses, and when it has another value afterwards.
    """
    by_broker: dict[Broker, list[Change]] = {}
    for each in changes:
        by_broker.setdefault(each.broker, []).append(each)

    def change(broker: Broker) -> list[Changed]:
        todo = by_broker[broker]
        problems = [each.problem for each in todo if each.problem]
        if problems:
            raise CannotAnswerError(f"nothing was changed here: {'; '.join(problems)}")
        who = f"broker {broker.address}"
        admin.asked(who, admin.update_broker_config, broker.address, {each.key: each.after for each in todo})
        held = admin.asked(who, _read, admin, broker)
        wrong = [f"{each.key} is {held.value(each.key)}" for each in todo
                 if not same_value(each.key, held.value(each.key), each.after)]
        if wrong:
            raise CannotAnswerError(f"the broker reported success, but {', '.join(wrong)}")
        return [_changed(each, held) for each in todo]
    return on_each(admin, by_broker, change, 2 * admin.timeout_millis)


def _changed(change: Change, held: Settings) -> Changed:
    file = held.file
    if file is None:
        return Changed(change, None, why="a RocketMQ broker does not report its file; if it can, it writes all its "
                                         "settings there")
    if file.error:
        return Changed(change, False, file.path, f"its file {file.path} can't be read: {file.error}")
    saved = _values_of_file(file).get(change.key)
    if not same_value(change.key, saved, change.after):
        return Changed(change, False, file.path, f"{file.path} " + (
            f"still has {saved}" if saved is not None else "does not have it") + ": see the broker's log")
    if not file.read_at_start:
        return Changed(change, False, file.path, f"{file.path} has it, but the broker was started without -c")
    return Changed(change, True, file.path)


def _values_of_file(file: ConfigFileReport) -> dict[str, str]:
    """Return the values of a file by the keys' current names; a current name takes precedence."""
    values = {file_name(key): value for key, value in file.values.items()}
    return {**values, **{key: value for key, value in file.values.items() if key in values}}


# ---- differences


@dataclass(frozen=True)
class ReplicaDifference:
    """A key with several values. `compared`: "masters", or the slave that differs from its master.

    `expected`: why it may differ; "" when it should not.
    """

    key: str
    compared: str
    values: dict[Broker, str]
    expected: str = ""


@dataclass(frozen=True)
class FileDifference:
    """A key whose running value is not that of the broker's file. None: the broker, or the file, does not have it."""

    broker: Broker
    path: str
    key: str
    running: str | None
    in_file: str | None
    why: str
    expected: bool = False


@dataclass
class Differences:
    """All differences; `unknown` are the brokers that report nothing about their files, with the reason."""

    replicas: list[ReplicaDifference] = field(default_factory=list)
    files: list[FileDifference] = field(default_factory=list)
    unknown: dict[Broker, str] = field(default_factory=dict)

    @property
    def unexpected(self) -> "Differences":
        """The differences without those that are expected."""
        return Differences([each for each in self.replicas if not each.expected],
                           [each for each in self.files if not each.expected], self.unknown)


def differences(settings: Mapping[Broker, Settings], keys: Collection[str] = ()) -> Differences:
    """Compare masters with masters, slaves with their master, and each broker with its file; all keys without `keys`.

    A key that one of two brokers does not have, such as one of rmqha's own, is not compared.
    """
    found = Differences()
    for cluster in sorted({each.cluster for each in settings}):
        members = {broker: held for broker, held in settings.items() if broker.cluster == cluster}
        found.replicas += _replica_differences(members, keys)
    for broker, held in settings.items():
        if held.file is None:
            found.unknown[broker] = "it does not report its file"
        elif held.file.error:
            found.unknown[broker] = (f"its file {held.file.path} can't be read: {held.file.error}"
                                     if held.file.read_at_start else "it was started without a file (-c)")
        else:
            found.files += _file_differences(broker, held, held.file, keys)
    return found


def _replica_differences(settings: Mapping[Broker, Settings], keys: Collection[str]) -> list[ReplicaDifference]:
    masters = [each for each in settings if each.is_master]
    found = _compare("masters", {each: settings[each] for each in masters}, keys, OWN_KEYS)
    by_name = {each.name: each for each in masters}
    for slave in settings:
        if not slave.is_master and slave.name in by_name:
            master = by_name[slave.name]
            found += _compare(f"slave {label(slave)}", {master: settings[master], slave: settings[slave]}, keys,
                              {**OWN_KEYS, **OWN_KEYS_OF_SLAVES})
    return found


def _compare(compared: str, settings: Mapping[Broker, Settings], keys: Collection[str],
             own: Mapping[str, str]) -> list[ReplicaDifference]:
    found = []
    shown = dict.fromkeys(file_name(key) for each in settings.values() for key in each.values)
    for key in shown:
        if keys and key not in keys:
            continue
        held = {broker: each.value(key) for broker, each in settings.items()}
        values = {broker: value for broker, value in held.items() if value is not None}
        first = next(iter(values.values()))
        if any(not same_value(key, first, value) for value in values.values()):
            found.append(ReplicaDifference(key, compared, values, own.get(key, "")))
    return found


def _file_differences(broker: Broker, held: Settings, file: ConfigFileReport,
                      keys: Collection[str]) -> list[FileDifference]:
    in_file = _values_of_file(file)
    changed = {file_name(key) for key in file.changed}
    edited = {file_name(key) for key in file.edited}
    derived = {**_DERIVED_KEYS, **(_OF_MOVING_ROLES if _role_moves(held) else {})}
    found = []
    for key in dict.fromkeys([*in_file, *sorted(changed | edited)]):
        running, saved = held.value(key), in_file.get(key)
        if keys and key not in keys or same_value(key, running, saved):
            continue
        if not file.read_at_start:
            why = "the broker was started without -c and has not read this file"
        elif key in edited:
            why = "the file was edited after the start: the next start reads it"
        elif key in changed:
            why = "changed at run time and not saved: the next start forgets it"
        else:
            why = derived.get(key) or "the command line, the environment or the broker itself overrides the file"
        expected = file.read_at_start and key not in {*edited, *changed} and key in derived
        found.append(FileDifference(broker, file.path, key, running, saved, why, expected))
    return found


def _role_moves(held: Settings) -> bool:
    return "true" in (held.values.get("enableControllerMode"), held.values.get("enableAutoSwitchHA"))
