#!/bin/sh
# A floating address for the master: add it where the broker is the master, remove it everywhere else. In the broker's
# file:
#   onRoleChange=/etc/rocketmq/vip.sh 10.0.0.100/24 eth0
# The broker adds role, broker name and epoch:
#   vip.sh ADDRESS/PREFIX DEVICE master|slave|none [BROKER_NAME EPOCH]
# It needs ip, and for IPv4 arping (of iputils, BusyBox or Thomas Habets), for IPv6 python3; and the right to change
# addresses and to send raw packets: root, or CAP_NET_ADMIN and CAP_NET_RAW (see systemd/vip.conf).
set -eu

if [ $# -lt 3 ]; then
    echo "usage: vip.sh ADDRESS/PREFIX DEVICE master|slave|none [BROKER_NAME EPOCH]" >&2
    exit 2
fi
address=$1 device=$2 role=$3
ip=${address%/*}

is_here() {
    [ -n "$(ip -o address show dev "$device" to "$ip")" ]
}

# The program that announces an address.
case $ip in
*:*) program=python3 ;;
*) program=arping ;;
esac

# Tell the hosts of this network that the address is here now. Otherwise they send to the previous host for up to a
# minute. The exit codes of arping mean different things in its versions.
announce() {
    if [ $program = python3 ]; then
        announce_ipv6
    elif arping -V 2>&1 | grep -q Habets; then
        arping -q -U -c 1 -i "$device" -S "$ip" "$ip"
    else
        arping -q -U -c 1 -I "$device" "$ip"
    fi || true
}

# An unsolicited neighbour advertisement to all hosts of the link.
announce_ipv6() {
    mac=$(ip -o link show dev "$device" | sed -n 's/.* link\/ether \([0-9a-f:]*\) .*/\1/p')
    python3 - "$ip" "$device" "$mac" <<'END'
import socket, struct, sys
ip, device, mac = sys.argv[1:]
link = socket.if_nametoindex(device)
with socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6) as sock:
    sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, 255)
    sock.bind((ip, 0, 0, link))
    # type, override flag, target, option: link-layer address of the target
    packet = struct.pack("!BBHI16sBB6s", 136, 0, 0, 0x20000000, socket.inet_pton(socket.AF_INET6, ip), 2, 1,
                         bytes.fromhex(mac.replace(":", "")))
    sock.sendto(packet, ("ff02::1", 0, 0, link))
END
}

# In the background, because arping waits for a second after its packet. Three times, because a packet may be lost, and
# Linux may ignore a change of an address within a second of the last one. Not after the address has gone again.
announce_repeatedly() {
    for _ in 1 2 3; do
        is_here || break
        announce &
        sleep 1
    done
    wait
}

case $role in
master)
    case $ip in
    # Without the search for duplicates, which takes a second, and which the previous host might answer.
    *:*) ip address replace "$address" dev "$device" nodad ;;
    *) ip address replace "$address" dev "$device" ;;
    esac
    if ! command -v $program >/dev/null; then
        echo "vip.sh: $ip is added, but cannot be announced: $program is not installed" >&2
        exit 1
    fi
    # In parentheses, because dash would keep the script's own output open.
    (announce_repeatedly) >/dev/null 2>&1 </dev/null &
    ;;
slave|none)
    if is_here; then
        # A slave passes requests on to the new master. Their answers need the address.
        [ "$role" = none ] || sleep 0.3
        ip address del "$address" dev "$device"
    fi
    ;;
*)
    echo "vip.sh: unknown role $role" >&2
    exit 2
    ;;
esac
