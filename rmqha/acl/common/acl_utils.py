"""What is signed, addresses as texts, and the hook of tools.yml.

Java: org.apache.rocketmq.acl.common.AclUtils (4.9.8)
"""
import logging
import re

from rmqha.acl.common import acl_constants, acl_yaml
from rmqha.acl.common.acl_client_rpc_hook import AclClientRPCHook
from rmqha.acl.common.acl_exception import AclException
from rmqha.acl.common.session_credentials import SessionCredentials

log = logging.getLogger("RocketmqCommon")

MAX_IPV4_PART = 255
MAX_IPV6_PART = 0xFFFF
_INTEGERS = {10: re.compile(r"[+-]?[0-9]{1,9}"), 16: re.compile(r"[+-]?[0-9a-fA-F]{1,7}")}


def ipv6_address_check(netaddress: str) -> None:
    """AclException when `*` is not at the end of an IPv6 pattern, or `-` not in the last part before it."""
    asterisk, minus = netaddress.find("*"), netaddress.find("-")
    if asterisk > -1 and asterisk != len(netaddress) - 1:
        raise scope_exception(netaddress)
    if minus > -1:
        colon = netaddress.rfind(":")
        if asterisk > -1:
            colon = netaddress.rfind(":", 0, max(colon, 0))
        if minus <= colon:
            raise scope_exception(netaddress)


def v6ip_process(netaddress: str) -> str:
    """The fixed parts of an IPv6 pattern, expanded."""
    asterisk, minus = is_asterisk(netaddress), is_minus(netaddress)
    head, _, _ = netaddress.rpartition(":")
    if asterisk and minus:
        return expand_ip(head.rpartition(":")[0], 6)
    if not asterisk and not minus:
        return expand_ip(netaddress, 8)
    return expand_ip(head, 7)


def verify(netaddress: str, index: int) -> None:
    """AclException unless the first `index` parts are numbers in range."""
    if not is_scope(netaddress, index):
        raise scope_exception(netaddress)


def get_addresses(netaddress: str, partial_address: str) -> list[str]:
    """The addresses of `1.2.3.{4,5}`, whose last part is `partial_address`."""
    address = netaddress[:netaddress.index("{")]
    return [address + part for part in split(partial_address[1:-1], ",")]


def is_scope(netaddress: str, index: int) -> bool:
    """Whether the first `index` parts of an address are numbers in range."""
    if is_colon(netaddress):
        return is_ipv6_scope(split(expand_ip(netaddress, 8), ":"), index)
    parts = split(netaddress, ".")
    return len(parts) == 4 and all(0 <= parse_int(part.strip(), 10) <= MAX_IPV4_PART for part in parts[:index])


def is_ipv6_scope(parts: list[str], index: int) -> bool:
    """Whether the first `index` parts are hexadecimal numbers of 16 bits."""
    try:
        return len(parts) >= index and all(0 <= parse_int(part, 16) <= MAX_IPV6_PART for part in parts[:index])
    except AclException:
        return False


def is_colon(netaddress: str) -> bool:
    """Whether it looks like an IPv6 address."""
    return ":" in netaddress


def is_asterisk(text: str) -> bool:
    """Whether it has a `*`."""
    return "*" in text


def is_comma(text: str) -> bool:
    """Whether it has a `,`."""
    return "," in text


def is_minus(text: str) -> bool:
    """Whether it has a `-`."""
    return "-" in text


def expand_ip(netaddress: str, part: int) -> str:
    """An IPv6 address with all of its `part` parts, four upper-case digits each; an IPv4 address stays as it is."""
    netaddress = netaddress.upper()
    padding = part - netaddress.count(":")
    if padding > 0:
        netaddress = netaddress.replace("::", ":" * (1 + padding))
    return ":".join(text.rjust(4, "0") for text in netaddress.split(":")) if netaddress else ""


def split(text: str, separator: str) -> list[str]:
    """The parts that are not empty.

    Java: org.apache.commons.lang3.StringUtils#split
    """
    return [part for part in text.split(separator) if part]


def parse_int(text: str, base: int) -> int:
    """A number in an address. AclException when it is not a number."""
    # Differs: what is no number is an AclException that shows it, in place of a NumberFormatException
    if not _INTEGERS[base].fullmatch(text):
        raise AclException(f"Netaddress examine scope Exception: {text!r} is no number")
    return int(text, base)


def scope_exception(netaddress: str) -> AclException:
    """An address pattern that is wrong."""
    return AclException(f"Netaddress examine scope Exception netaddress is {netaddress}")


def get_acl_rpc_hook(file_name: str) -> AclClientRPCHook | None:
    """The hook that signs with accessKey and secretKey of a file as conf/tools.yml; None, and a warning, without."""
    try:
        data = acl_yaml.get_yaml_data_object(file_name)
        access_key = acl_yaml.text_of((data or {}).get(acl_constants.CONFIG_ACCESS_KEY))
        secret_key = acl_yaml.text_of((data or {}).get(acl_constants.CONFIG_SECRET_KEY))
    except AclException as error:
        log.error("Convert yaml file to data object error, %s", error)
        return None
    if not data:
        log.warning("Cannot find conf file :%s, acl isn't be enabled.", file_name)
        return None
    if not access_key or not access_key.strip() or not secret_key or not secret_key.strip():
        log.warning("AccessKey or secretKey is blank, the acl is not enabled.")
        return None
    return AclClientRPCHook(SessionCredentials(access_key, secret_key))
