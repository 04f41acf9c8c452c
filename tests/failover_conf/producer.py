"""A plain producer, as a process at a host: `python -m tests.failover_conf.producer NAMESRV TOPIC PERIOD_MS FILE`.

It sends one message after the other, one per period, until it is ended. A message whose send fails is sent again at
once, with another attempt number. Each attempt is a line of the file: message, attempt, when it was sent and when it
was answered (monotonic, in seconds), and the status of the answer, or the error.
"""
import json
import sys
import threading
import time
from itertools import count

from rmqha import Message, Producer

# After a refusal, so that it does not send thousands of times per second.
REFUSED_PAUSE_S = 0.005


def main() -> None:
    """Send until the process is ended."""
    namesrv, topic, period_ms, file = sys.argv[1:]
    pause = threading.Event()  # never set
    with open(file, "a", encoding="ascii", buffering=1) as journal, \
            Producer("failover-conf", namesrv, retry_times_when_send_failed=0) as producer:
        begin = time.monotonic()
        for number in count():
            for attempt in count():
                sent = time.monotonic()
                try:
                    said = producer.send(Message(topic, f"{number}.{attempt}".encode())).send_status.name
                except Exception as error:
                    said = f"{type(error).__name__}: {error.__cause__ or error}"
                journal.write(json.dumps([number, attempt, sent, time.monotonic(), said]) + "\n")
                if said == "SEND_OK":
                    break
                pause.wait(REFUSED_PAUSE_S)
            begin = max(begin + int(period_ms) / 1000, time.monotonic() - 1)
            pause.wait(max(0.0, begin - time.monotonic()))


if __name__ == "__main__":
    main()
