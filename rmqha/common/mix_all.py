"""Shared names, and conversions between `.properties` texts, config objects and files.

Java: org.apache.rocketmq.common.MixAll (4.9.8)
"""
import ipaddress
import logging
import os
import stat
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

from rmqha.common import java
from rmqha.common.config_keys import config_keys, key_types, parse_property
from rmqha.common.filesystem import open_regular, replace_and_force
from rmqha.common.program import NAMESRV_ADDR_ENV as NAMESRV_ADDR_ENV
from rmqha.common.program import ROCKETMQ_HOME_ENV as ROCKETMQ_HOME_ENV

log = logging.getLogger("RocketmqCommon")

DEFAULT_NAMESRV_ADDR_LOOKUP = "jmenv.tbsite.net"
DEFAULT_NAMESRV_SUBGROUP = "nsaddr"
DEFAULT_PRODUCER_GROUP = "DEFAULT_PRODUCER"
DEFAULT_CONSUMER_GROUP = "DEFAULT_CONSUMER"
TOOLS_CONSUMER_GROUP = "TOOLS_CONSUMER"
SCHEDULE_CONSUMER_GROUP = "SCHEDULE_CONSUMER"
FILTERSRV_CONSUMER_GROUP = "FILTERSRV_CONSUMER"
MONITOR_CONSUMER_GROUP = "__MONITOR_CONSUMER"
CLIENT_INNER_PRODUCER_GROUP = "CLIENT_INNER_PRODUCER"
SELF_TEST_PRODUCER_GROUP = "SELF_TEST_P_GROUP"
SELF_TEST_CONSUMER_GROUP = "SELF_TEST_C_GROUP"
ONS_HTTP_PROXY_GROUP = "CID_ONS-HTTP-PROXY"
CID_ONSAPI_PERMISSION_GROUP = "CID_ONSAPI_PERMISSION"
CID_ONSAPI_OWNER_GROUP = "CID_ONSAPI_OWNER"
CID_ONSAPI_PULL_GROUP = "CID_ONSAPI_PULL"
CID_RMQ_SYS_PREFIX = "CID_RMQ_SYS_"
DEFAULT_CHARSET = "UTF-8"
MASTER_ID = 0
# An extension of rmqha: part of the remark of SERVICE_NOT_AVAILABLE while a controller decides which broker is the
# master. Clients look for this text.
SOON_OVER = "this is automatic and soon over"
# A remark of 5.1.4 too. Nothing was stored.
TOO_FEW_IN_SYNC = "in-sync replicas not enough"
RETRY_GROUP_TOPIC_PREFIX = "%RETRY%"
DLQ_GROUP_TOPIC_PREFIX = "%DLQ%"
REPLY_TOPIC_POSTFIX = "REPLY_TOPIC"
UNIQUE_MSG_QUERY_FLAG = "_UNIQUE_KEY_QUERY"
DEFAULT_TRACE_REGION_ID = "DefaultRegion"
CONSUME_CONTEXT_TYPE = "ConsumeContextType"
CID_SYS_RMQ_TRANS = "CID_RMQ_SYS_TRANS"
REPLY_MESSAGE_FLAG = "reply"
LMQ_PREFIX = "%LMQ%"
MULTI_DISPATCH_QUEUE_SPLITTER = ","

Report = Callable[[str, str, str], None]
"""A callback that gets (key, value, error) for each value that cannot be set."""


def get_ws_addr(domain: str = DEFAULT_NAMESRV_ADDR_LOOKUP, subgroup: str = DEFAULT_NAMESRV_SUBGROUP) -> str:
    """Return the URL of the address server. The port is 8080 unless the domain has one."""
    host = domain if domain.find(":") > 0 else domain + ":8080"
    return f"http://{host}/rocketmq/{subgroup}"


def get_retry_topic(consumer_group: str) -> str:
    """Return the topic of the messages that the group asked to be redelivered."""
    return RETRY_GROUP_TOPIC_PREFIX + consumer_group


def get_reply_topic(cluster_name: str) -> str:
    """Return the topic of the replies within a cluster."""
    return cluster_name + "_" + REPLY_TOPIC_POSTFIX


def is_sys_consumer_group(consumer_group: str) -> bool:
    """Return whether RocketMQ itself uses the group."""
    return consumer_group.startswith(CID_RMQ_SYS_PREFIX)


def get_dlq_topic(consumer_group: str) -> str:
    """Return the topic of the messages that the group failed on too often."""
    return DLQ_GROUP_TOPIC_PREFIX + consumer_group


def broker_vip_channel(is_change: bool, broker_addr: str) -> str:
    """Return the address of the fast port (two below) if `is_change`, else the address itself."""
    if not is_change:
        return broker_addr
    host, _, port = broker_addr.rpartition(":")
    return f"{host}:{int(port) - 2}"


def string2file(text: str, file_name: str, encoding: str = "utf-8") -> None:
    """Replace a file durably; the previous content is kept as `<file>.bak`. Raises OSError.

    At any moment the disk holds the old or the new text under the name. The file keeps its mode.
    """
    # Differs: when a file of settings or tables is replaced, a symbolic link stays, and the file that it leads to is
    # replaced; Java replaces the link by a file
    target = os.path.realpath(file_name) if os.path.islink(file_name) else file_name
    tmp_file = target + ".tmp"
    # Differs: files of settings and tables are replaced with fsync and an atomic rename, where Java deletes the file
    # before it renames the new one. The new file gets the old one's mode: a file that only its owner may read stays so
    mode = stat.S_IMODE(os.stat(target).st_mode) if os.path.exists(target) else None
    string2file_not_safe(text, tmp_file, encoding, mode)
    if mode is not None:
        keep_as(target, file_name + ".bak")
    replace_and_force(tmp_file, target)


def string2file_not_safe(text: str, file_name: str, encoding: str = "utf-8", mode: int | None = None) -> None:
    """Write a file in place and fsync it; missing folders are created. The file may be a pipe or a terminal.

    `mode` is set before a byte is written; None: the default for a new file. Raises OSError.
    """
    os.makedirs(os.path.dirname(os.path.abspath(file_name)), exist_ok=True)
    with open(file_name, "wb") as file:
        if mode is not None:
            os.fchmod(file.fileno(), mode)
        # "replace": one name that cannot be encoded must not prevent all others from being saved.
        file.write(text.encode(encoding, "replace"))
        file.flush()
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            os.fsync(file.fileno())


def keep_as(file_name: str, bak_file: str) -> None:
    """Give a file a second name, replacing any file of that name. OSError."""
    link = bak_file + ".tmp"
    if os.path.lexists(link):
        os.remove(link)
    try:
        os.link(file_name, link)
    except OSError as failure:
        # A file system without hard links.
        log.debug("cannot create a hard link to %s, copying it: %s", file_name, failure)
        string2file_not_safe(file2string(file_name) or "", link, mode=os.stat(file_name).st_mode & 0o777)
    os.replace(link, bak_file)


def file2string(file_name: str) -> str | None:
    """Return the text of a file (UTF-8); None when the file does not exist. Raises OSError, UnicodeDecodeError."""
    try:
        with open(open_regular(file_name), "rb") as file:
            return file.read().decode("utf-8")
    except FileNotFoundError:
        return None


def print_object_properties(logger: logging.Logger, config: Any, only_important_field: bool = False) -> None:
    """Log `key=value` for each (important) key; None prints as an empty text."""
    for item in config_keys(type(config)).values():
        if only_important_field and not item.metadata.get("important"):
            continue
        value = getattr(config, item.name)
        logger.info("%s=%s", item.name, "" if value is None else property_text(value))


def property_text(value: Any) -> str:
    """Return a config value as Java's toString writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.name if isinstance(value, Enum) else str(value)


def properties2string(properties: Mapping[str, str]) -> str:
    """Return `key=value` lines."""
    # Differs: in written properties, characters that would be misread (backslash, line ends, non-ASCII) are escaped;
    # Java writes them raw
    return "".join(f"{java.escape(key, is_key=True)}={java.escape(value)}\n"
                   for key, value in properties.items())


def string2properties(text: str) -> dict[str, str] | None:
    """Return the properties in a text; None when it is malformed."""
    try:
        # Differs: non-ASCII characters in properties are preserved, where Java takes the text's UTF-8 bytes for Latin-1
        return java.loads(text)
    except ValueError as failure:
        log.error("Failed to handle properties: %s", failure)
        return None


def object2properties(config: Any) -> dict[str, str]:
    """Return attribute -> text for all keys with a value, in declaration order."""
    values = ((item.name, getattr(config, item.name)) for item in config_keys(type(config)).values())
    return {name: property_text(value) for name, value in values if value is not None}


def properties2object(properties: Mapping[str, str], config: Any, report: Report | None = None) -> None:
    """Set the attributes that `properties` name; other keys are ignored.

    An invalid value is reported and leaves the attribute unchanged. Without `report` it is silently dropped, as in
    Java.
    """
    types = key_types(type(config))
    for key, item in config_keys(type(config)).items():
        text = properties.get(key)
        if text is None:
            continue
        try:
            setattr(config, item.name, parse_property(text, types[item.name]))
        except ValueError as failure:
            if report is not None:
                report(key, text, str(failure))


def get_local_inet_address() -> list[str]:
    """Return all addresses of all interfaces of this host."""
    # Imported late: it is slow to load, and most commands need no address.
    import psutil

    return [address.address.partition("%")[0] for addresses in psutil.net_if_addrs().values()
            for address in addresses if _is_ip(address.address)]


def get_local_address() -> str:
    """Return the address to advertise to other hosts.

    It is the first IPv4 address that is not 127.0* or 192.168*, else the last IPv4, else the first IPv6, else
    127.0.0.1. The newest interface is checked first; bridges are skipped.

    Java: org.apache.rocketmq.remoting.common.RemotingUtil (4.9.8)
    """
    ipv4: list[str] = []
    ipv6: list[str] = []
    import psutil

    for name, addresses in reversed(psutil.net_if_addrs().items()):
        if os.path.exists(f"/sys/class/net/{name}/bridge"):
            continue
        for text in (address.address for address in addresses if _is_ip(address.address)):
            parsed = ipaddress.ip_address(text.partition("%")[0])
            if not parsed.is_loopback:
                (ipv4 if parsed.version == 4 else ipv6).append(str(parsed))
    for text in ipv4:
        if not text.startswith(("127.0", "192.168")):
            return text
    return ipv4[-1] if ipv4 else ipv6[0] if ipv6 else "127.0.0.1"


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text.partition("%")[0])
    except ValueError:  # a hardware address
        return False
    return True


def human_readable_byte_count(count: int, si: bool) -> str:
    """Return a size as `1.5 GiB`, or as `1.6 GB` with `si`."""
    unit = 1000 if si else 1024
    if count < unit:
        return f"{count} B"
    value, exponent = float(count), 0
    while value >= unit and exponent < 6:
        value, exponent = value / unit, exponent + 1
    prefix = ("kMGTPE" if si else "KMGTPE")[exponent - 1] + ("" if si else "i")
    return f"{value:.1f} {prefix}B"


def is_lmq(lmq_meta_data: str | None) -> bool:
    """Return whether a name is that of a light message queue."""
    return lmq_meta_data is not None and lmq_meta_data.startswith(LMQ_PREFIX)


def deal_file_path(acl_file_path: str) -> str:
    """Return the path without `.`, `..` and doubled separators."""
    return os.path.normpath(acl_file_path)
