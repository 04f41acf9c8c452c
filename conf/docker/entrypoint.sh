#!/bin/sh
# Replace this shell with one of rmqha's programs: entrypoint.sh mqnamesrv|mqbroker|mqcontroller|mqadmin|rmqha [OPTIONS].
# The JSON form of CMD passes the options on.
set -eu
case ${1:-} in
    mqnamesrv | mqbroker | mqcontroller | mqadmin | rmqha) exec "$@" ;;
    *)
        echo "$0: give one of mqnamesrv, mqbroker, mqcontroller, mqadmin, rmqha, not '${1:-}'" >&2
        exit 2
        ;;
esac
