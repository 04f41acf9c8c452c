"""Patterns of addresses: one address, a list, a `{}` list, a range with `*` and `-`, or all addresses; IPv4 and IPv6.

The nested classes of Java's factory are classes of this module.
"""
import functools
import ipaddress

from rmqha.acl import acl_files
from rmqha.acl.common import AclException, PlainAccessResource, RemoteAddressStrategy

_EVERYTHING = ("*", "*.*.*.*", "*:*:*:*:*:*:*:*")


def is_valid_inet4_address(text: str | None) -> bool:
    """Return whether a text is an IPv4 address.

    Java: org.apache.commons.validator.routines.InetAddressValidator#isValidInet4Address
    """
    return _parses(text, ipaddress.IPv4Address)


def is_valid_inet6_address(text: str | None) -> bool:
    """Return whether a text is an IPv6 address.

    Java: org.apache.commons.validator.routines.InetAddressValidator#isValidInet6Address
    """
    return _parses(text, ipaddress.IPv6Address)


def _parses(text: str | None, kind: type) -> bool:
    if not text:
        return False
    try:
        kind(text)
    except ValueError:
        return False
    return True


@functools.lru_cache(maxsize=1024)
def _expanded(address: str | None) -> str:
    """Return a client's address in the form for comparison: IPv6 in full; "" when it is not an address."""
    if address is not None and is_valid_inet4_address(address):
        return address
    # Differs: the zone of a link-local address (`%eth0`) is removed; in the original such an address never matches
    address = (address or "").partition("%")[0]
    return acl_files.expand_ip(address, 8) if is_valid_inet6_address(address) and "." not in address else ""


class NullRemoteAddressStrategy:
    """A pattern that matches every address.

    Java: org.apache.rocketmq.acl.plain.RemoteAddressStrategyFactory$NullRemoteAddressStrategy (4.9.8)
    """

    def match(self, _plain_access_resource: PlainAccessResource) -> bool:
        """Return True."""
        return True


class BlankRemoteAddressStrategy:
    """A pattern that matches no address.

    Java: org.apache.rocketmq.acl.plain.RemoteAddressStrategyFactory$BlankRemoteAddressStrategy (4.9.8)
    """

    def match(self, _plain_access_resource: PlainAccessResource) -> bool:
        """Return False."""
        return False


class MultipleRemoteAddressStrategy:
    """A list of addresses. AclException when an element is not an address.

    Java: org.apache.rocketmq.acl.plain.RemoteAddressStrategyFactory$MultipleRemoteAddressStrategy (4.9.8)
    """

    def __init__(self, addresses: list[str]) -> None:
        self._multiple_set = set()
        for netaddress in addresses:
            if is_valid_inet4_address(netaddress):
                self._multiple_set.add(netaddress)
            elif is_valid_inet6_address(netaddress):
                self._multiple_set.add(acl_files.expand_ip(netaddress, 8))
            else:
                raise AclException(f"Netaddress examine Exception netaddress is {netaddress}")

    def match(self, plain_access_resource: PlainAccessResource) -> bool:
        """Return whether the address is in the list."""
        return _expanded(plain_access_resource.white_remote_address) in self._multiple_set


class OneRemoteAddressStrategy:
    """One address. AclException when it is not an address.

    Java: org.apache.rocketmq.acl.plain.RemoteAddressStrategyFactory$OneRemoteAddressStrategy (4.9.8)
    """

    def __init__(self, netaddress: str) -> None:
        if not is_valid_inet4_address(netaddress) and not is_valid_inet6_address(netaddress):
            raise AclException(f"Netaddress examine Exception netaddress is {netaddress}")
        self._netaddress = acl_files.expand_ip(netaddress, 8)

    def match(self, plain_access_resource: PlainAccessResource) -> bool:
        """Return whether it is this address."""
        return self._netaddress == _expanded(plain_access_resource.white_remote_address)


class RangeRemoteAddressStrategy:
    """A pattern with `*` or `from-to` in one part: `192.168.0-7.*`, `10.1.2.3-9`, `5::7:6:1-200:*`.

    The parts after the first such part are ignored. AclException for an invalid pattern.

    Java: org.apache.rocketmq.acl.plain.RemoteAddressStrategyFactory$RangeRemoteAddressStrategy (4.9.8)
    """

    def __init__(self, remote_addr: str) -> None:
        self._head = ""
        self._start = 0
        self._end = 0
        # Of the part that is a range.
        self._index = 0
        self._is_ipv6 = acl_files.is_colon(remote_addr)
        if self._is_ipv6:
            self._take_ipv6(remote_addr)
        else:
            self._take_ipv4(remote_addr)

    def _take_ipv6(self, remote_addr: str) -> None:
        acl_files.ipv6_address_check(remote_addr)
        parts = acl_files.split(remote_addr, ":")
        for index in range(1, len(parts)):
            if self._analysis(parts, index, 16, acl_files.MAX_IPV6_PART):
                acl_files.verify(remote_addr, index - 1)
                self._head = acl_files.v6ip_process(remote_addr)
                self._index = len(acl_files.split(self._head, ":"))
                break
        if self._index == 0:
            raise _no_range(remote_addr)

    def _take_ipv4(self, remote_addr: str) -> None:
        parts = acl_files.split(remote_addr, ".")
        for index in range(1, min(4, len(parts))):
            if self._analysis(parts, index, 10, acl_files.MAX_IPV4_PART):
                acl_files.verify(remote_addr, index - 1)
                self._head = "".join(part.strip() + "." for part in parts[:index])
                self._index = index
                return
        raise _no_range(remote_addr)

    def _analysis(self, parts: list[str], index: int, base: int, maximum: int) -> bool:
        """Read the range from a part; return whether it has one."""
        value = parts[index].strip()
        if value == "*":
            self._start, self._end = 0, maximum
        elif acl_files.is_minus(value):
            bounds = acl_files.split(value, "-")
            if value.startswith("-") or len(bounds) < 2:
                raise AclException(f"RangeRemoteAddressStrategy netaddress examine scope Exception value {value} ")
            self._start, self._end = (acl_files.parse_int(bound, base) for bound in bounds[:2])
            if not 0 <= self._start <= self._end <= maximum:
                raise AclException("RangeRemoteAddressStrategy netaddress examine scope Exception start is "
                                   f"{self._start} , end is {self._end}")
        return self._end > 0

    def match(self, plain_access_resource: PlainAccessResource) -> bool:
        """Return whether the address is in the range."""
        address = _expanded(plain_access_resource.white_remote_address)
        if not address.startswith(self._head) or acl_files.is_colon(address) != self._is_ipv6:
            return False
        parts = address.split(":" if self._is_ipv6 else ".")
        if self._index >= len(parts):
            return False
        return self._start <= int(parts[self._index], 16 if self._is_ipv6 else 10) <= self._end


def _no_range(remote_addr: str) -> AclException:
    # Differs: an empty range such as 0-0, or one with nothing before it such as :1-2:*, is refused here; the original
    # accepts it, and every request then fails
    return AclException(f"Netaddress examine scope Exception netaddress is {remote_addr}")


NULL_NET_ADDRESS_STRATEGY = NullRemoteAddressStrategy()
BLANK_NET_ADDRESS_STRATEGY = BlankRemoteAddressStrategy()


class RemoteAddressStrategyFactory:
    """Makes strategies from texts.

    Java: org.apache.rocketmq.acl.plain.RemoteAddressStrategyFactory (4.9.8)
    """

    def get_remote_address_strategy(self, remote_addr: str | None) -> RemoteAddressStrategy:
        """Return the strategy of a text; a blank text matches no address. AclException for an invalid pattern."""
        if remote_addr is None or not remote_addr.strip():
            return BLANK_NET_ADDRESS_STRATEGY
        if remote_addr in _EVERYTHING:
            return NULL_NET_ADDRESS_STRATEGY
        if remote_addr.endswith("}"):
            return self._braces(remote_addr)
        if acl_files.is_comma(remote_addr):
            return MultipleRemoteAddressStrategy(acl_files.split(remote_addr, ","))
        if acl_files.is_asterisk(remote_addr) or acl_files.is_minus(remote_addr):
            return RangeRemoteAddressStrategy(remote_addr)
        return OneRemoteAddressStrategy(remote_addr)

    @staticmethod
    def _braces(remote_addr: str) -> RemoteAddressStrategy:
        is_ipv6 = acl_files.is_colon(remote_addr)
        parts = acl_files.split(remote_addr, ":" if is_ipv6 else ".")
        if not is_ipv6 and len(parts) < 4:
            raise AclException("MultipleRemoteAddressStrategy has got a/some wrong format IP(s) ")
        last = parts[-1]
        if not last.startswith("{"):
            raise AclException("MultipleRemoteAddressStrategy netaddress examine scope Exception netaddress")
        return MultipleRemoteAddressStrategy(acl_files.get_addresses(remote_addr, last))
