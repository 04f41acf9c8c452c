#!/bin/sh
# Exit code 0 when the server of this container (process 1) answers a request at its port, 1 when it does not.
# RMQHA_HEALTH_PORT: its port, when that is not 9876 (name server) or 10911 (broker).
set -eu
case $(tr '\0' ' ' <"${RMQHA_HEALTH_CMDLINE:-/proc/1/cmdline}") in
    *mqnamesrv*) rmqha check server -n "127.0.0.1:${RMQHA_HEALTH_PORT:-9876}" || exit 1 ;;
    *mqbroker*) rmqha check server -b "127.0.0.1:${RMQHA_HEALTH_PORT:-10911}" || exit 1 ;;
    *) echo "a tool, which has no port" ;;
esac
