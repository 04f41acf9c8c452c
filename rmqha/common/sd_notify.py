"""Telling systemd how a service of Type=notify does, as sd_notify(3): a datagram to $NOTIFY_SOCKET.

    start --READY=1--> systemd <--WATCHDOG=1-- the waiting thread, while `lives` says so (WatchdogSec=)
    stop  --STOPPING=1-->

Started by anybody else, a server has no such socket, and nothing is sent.
"""
import logging
import os
import socket
from collections.abc import Callable

from rmqha.common.stop_signal import StopSignal

log = logging.getLogger("RocketmqCommon")

SOCKET_ENV = "NOTIFY_SOCKET"
WATCHDOG_ENV = "WATCHDOG_USEC"
WATCHDOG_PID_ENV = "WATCHDOG_PID"

_PINGS = 2  # in the time that systemd waits for one
_US = 1_000_000


def notify(*assignments: str) -> bool:
    """Send `READY=1`, `STATUS=...`; False when nobody wants to know, or can be told.

    A failure is logged only: a service that works must not end because of it.
    """
    address = os.environ.get(SOCKET_ENV, "")
    if not address:
        return False
    if address.startswith("@"):  # an abstract one
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.sendto("\n".join(assignments).encode("utf-8", "replace"), address)
    except OSError as error:
        log.warning("systemd can't be told %s at %s: %s", assignments[0], address, error)
        return False
    return True


def ready(status: str) -> None:
    """The service serves; `status` is what `systemctl status` shows."""
    notify("READY=1", f"STATUS={status}")


def stopping() -> None:
    """The service ends in good order; how long that may take is TimeoutStopSec's."""
    notify("STOPPING=1", "STATUS=stopping")


def watchdog_s() -> float | None:
    """How often systemd wants to hear that this process lives; None when it does not."""
    if os.environ.get(WATCHDOG_PID_ENV, str(os.getpid())) != str(os.getpid()):
        return None  # meant for another process, which started this one
    text = os.environ.get(WATCHDOG_ENV, "")
    try:
        return int(text) / _US if text and int(text) > 0 else None
    except ValueError:
        log.warning("%s=%s is no number of microseconds", WATCHDOG_ENV, text)
        return None


def wait(stop: StopSignal, lives: Callable[[float], bool]) -> None:
    """Wait for `stop`; meanwhile tell the watchdog, if there is one, that the service lives, as long as that is so.

    `lives`: called with the seconds that it may take; False, and nothing is told, so that systemd may start anew.
    """
    limit_s = watchdog_s()
    if limit_s is None:
        stop.wait()
        return
    pause_s = limit_s / _PINGS / 2  # a look may take as long as the pause before it
    while not stop.wait(pause_s):
        if lives(pause_s):
            notify("WATCHDOG=1")
        else:
            log.error("the watchdog isn't told that the service lives: its threads don't answer within %.1f s", pause_s)
