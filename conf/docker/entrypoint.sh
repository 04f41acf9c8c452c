#!/bin/sh
# Becomes one of rmqha's programs: entrypoint.sh mqnamesrv|mqbroker|mqcontroller|mqadmin|rmqha [OPTIONS]. JSON form of CMD passes them on.
set -eu
case ${1:-} in
    mqnamesrv | mqbroker | mqcontroller | mqadmin | rmqha) exec "$@" ;;
    *)
        echo "$0: give one of mqnamesrv, mqbroker, mqcontroller, mqadmin, rmqha, not '${1:-}'" >&2
        exit 2
        ;;
esac
