#!/bin/sh
# Exit with 0 if the server of this container (process 1) answers a request on its port, with 1 if it does not.
# Set RMQHA_HEALTH_PORT if the port is not 9876 (name server), 10911 (broker) or 9878 (controller).
set -euf
program=
# The server is the first word with a server's name. Other words may contain such a name, as `-n mqnamesrv:9876` does.
for word in $(tr '\0' '\n' <"${RMQHA_HEALTH_CMDLINE:-/proc/1/cmdline}"); do
    case ${word##*/} in
        mqnamesrv | mqbroker | mqcontroller) program=${word##*/} && break ;;
    esac
done
case $program in
    mqnamesrv) rmqha check server -n "127.0.0.1:${RMQHA_HEALTH_PORT:-9876}" || exit 1 ;;
    mqbroker) rmqha check server -b "127.0.0.1:${RMQHA_HEALTH_PORT:-10911}" || exit 1 ;;
    # 1 is a warning about the group, for example that another controller is missing
    mqcontroller) env -u NAMESRV_ADDR rmqha check controller -a "127.0.0.1:${RMQHA_HEALTH_PORT:-9878}" ||
        [ $? -eq 1 ] || exit 1 ;;
    *) echo "no port to check: this container runs a tool" ;;
esac
