#!/bin/sh
# keepalived's check whether the broker of this host is the master: exit code 0 if it is, 1 if it is not.
#   check-master.sh http://127.0.0.1:5557/master 10.0.0.100
#
# keepalived starts a check once per second at most. That is slow for a failover, so one run watches the broker for most
# of a second, and ends as soon as the answer changes: on the host that has the address, when the broker is no longer the
# master; on the others, when it becomes the master. The host that has the address asks twice before it gives it up, so
# that one slow answer does not move it.
set -u

page=$1 address=$2

is_master() {
    if command -v curl >/dev/null; then
        curl --silent --fail --output /dev/null --max-time 0.5 "$page"
    else
        wget -q -t 1 -T 1 -O /dev/null "$page"
    fi
}

# True if is_master ended with the code $1 because the page answers with an error: the broker is not the master.
is_answered() {
    if command -v curl >/dev/null; then [ "$1" = 22 ]; else [ "$1" = 8 ]; fi
}

if [ -n "$(ip -o address show to "$address")" ]; then
    for pause in 0.2 0.2 0.2 0; do
        is_master || is_master || {
            # A former master passes requests on, and its answers leave from this address.
            ! is_answered $? || sleep 0.3
            exit 1
        }
        sleep "$pause"
    done
    exit 0
fi
for pause in 0.2 0.2 0.2 0.2 0; do
    is_master && exit 0
    sleep "$pause"
done
exit 1
