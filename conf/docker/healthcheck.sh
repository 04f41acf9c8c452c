#!/bin/sh
# Exit with 0 if the server of this container (process 1) answers a request on its port, with 1 if it does not.
# Set RMQHA_HEALTH_PORT if the port is not 9876 (name server) or 10911 (broker).
set -eu
case $(tr '\0' ' ' <"${RMQHA_HEALTH_CMDLINE:-/proc/1/cmdline}") in
    *mqnamesrv*) rmqha check server -n "127.0.0.1:${RMQHA_HEALTH_PORT:-9876}" || exit 1 ;;
    *mqbroker*) rmqha check server -b "127.0.0.1:${RMQHA_HEALTH_PORT:-10911}" || exit 1 ;;
    *) echo "no port to check: this container runs a tool" ;;
esac
