"""Who may connect to the replication port. Pure."""
import ipaddress


class AllowedPeers:
    """The addresses and networks of haAllowedPeers, separated by "," or ";"; nothing given lets everybody in.

    ValueError, which names the key and the entry, when one is neither.
    """

    def __init__(self, text: str | None) -> None:
        self._networks = []
        for entry in (text or "").replace(";", ",").split(","):
            entry = entry.strip()
            if not entry:
                continue
            try:
                self._networks.append(ipaddress.ip_network(entry, strict=False))
            except ValueError as error:
                raise ValueError(f"haAllowedPeers: {entry!r} is no address and no network such as 10.0.0.0/8: {error}"
                                 ) from None

    def allows(self, host: str) -> bool:
        """Whether a peer at the address `host` may stay. One that is no address may only where all may."""
        if not self._networks:
            return True
        try:
            address = ipaddress.ip_address(host.strip("[]").partition("%")[0])
        except ValueError:
            return False
        mapped = getattr(address, "ipv4_mapped", None)
        return any((mapped or address) in network or address in network for network in self._networks)
