"""The C++ client of RocketMQ (through its Python wheel), in a separate process, because a crash of native code ends its
process.

Run as `python -m tests.support.cpp_client`, with one JSON object on the standard input; the answer is one JSON object.
Its log goes to $HOME/logs/rocketmq-cpp.
"""
import ctypes
import importlib.util
import json
import os
import subprocess
import sys
import threading
import traceback
from pathlib import Path

from tests.support.wait import wait_until

_ROOT = Path(__file__).resolve().parents[2]
_DEADLINE_S = 75


def why_unavailable() -> str | None:
    """Return why the C++ client can't run here, or None if it can."""
    if importlib.util.find_spec("rocketmq") is None:
        return "the wheel rocketmq-client-python is not installed (it is made for Linux on x86-64)"
    library = Path(importlib.util.find_spec("rocketmq").origin).parent / "librocketmq.so"
    try:
        ctypes.CDLL(str(library))
    except OSError as error:
        return f"the C++ client does not load: {error}"
    return None


def run(folder: Path, **command: object) -> dict:
    """Carry out a command (see `send`, `receive`, `transact`) in a process with `folder` as its home."""
    folder.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.cpp_client"], input=json.dumps(command), capture_output=True, text=True,
        cwd=_ROOT, env={**os.environ, "HOME": str(folder)}, timeout=_DEADLINE_S + 30, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    assert done.returncode == 0 and lines, f"code {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
    return json.loads(lines[-1])


def _message(topic: str, one: dict):
    from rocketmq.client import Message
    message = Message(topic)
    message.set_body(one["body"])
    if one.get("tags"):
        message.set_tags(one["tags"])
    if one.get("keys"):
        message.set_keys(one["keys"])
    for name, value in one.get("properties", {}).items():
        message.set_property(name, value)
    if one.get("delayLevel"):
        message.set_delay_time_level(one["delayLevel"])
    return message


def _sent(send, *given):
    """Return the result of `send(*given)`, retried while another thread of the client connects to the broker.

    A send then gives up immediately, and reports that there is no route, although the client has just received one.
    Nothing was sent, so it can be retried.
    """
    from rocketmq.exceptions import ProducerException

    def attempt():
        try:
            return send(*given)
        except ProducerException as error:
            if "No route info of this topic" not in str(error):
                raise
            return None
    return wait_until(attempt, _DEADLINE_S * 1000, "a connection of the C++ client")


def send(command: dict) -> dict:
    """Send `messages` to `topic`, in order if `shardingKey` is given; return [status, id, queue offset] of each."""
    from rocketmq.client import Producer
    producer = Producer(command["group"], orderly=command.get("orderly", False), timeout=20_000)
    producer.set_namesrv_addr(command["namesrv"])
    producer.start()
    results = []
    for one in command["messages"]:
        message = _message(command["topic"], one)
        if "shardingKey" in one:
            result = _sent(producer.send_orderly_with_sharding_key, message, one["shardingKey"])
        else:
            result = _sent(producer.send_sync, message)
        results.append([result.status.name, result.msg_id, result.offset])
        message.destroy()
    producer.shutdown()
    return {"results": results}


def transact(command: dict) -> dict:
    """Send half messages that commit if their body begins with "c", and otherwise roll back."""
    from rocketmq.client import TransactionMQProducer, TransactionStatus

    def decide(message, *_user_args):
        return TransactionStatus.COMMIT if message.body.startswith(b"c") else TransactionStatus.ROLLBACK

    producer = TransactionMQProducer(command["group"], decide, timeout=20_000)
    producer.set_namesrv_addr(command["namesrv"])
    producer.start()
    results = []
    for one in command["messages"]:
        result = _sent(producer.send_message_in_transaction, _message(command["topic"], one), decide)
        results.append([result.status.name, result.msg_id, result.offset])
    producer.shutdown()
    return {"results": results}


def receive(command: dict) -> dict:
    """Consume messages of `topic` until `until` have arrived; return the fields of each. The first `failFirst` are
    requested again."""
    from rocketmq.client import ConsumeStatus, PushConsumer
    seen: list[dict] = []
    enough = threading.Event()
    lock = threading.Lock()

    def listener(message):
        with lock:
            seen.append({
                "topic": message.topic, "body": message.body.decode(), "tags": (message.tags or b"").decode(),
                "keys": (message.keys or b"").decode(), "id": message.id, "queueId": message.queue_id,
                "queueOffset": message.queue_offset, "reconsumeTimes": message.reconsume_times})
            if len(seen) >= command["until"]:
                enough.set()
            is_refused = len(seen) <= command.get("failFirst", 0)
        return ConsumeStatus.RECONSUME_LATER if is_refused else ConsumeStatus.CONSUME_SUCCESS

    consumer = PushConsumer(command["group"], orderly=command.get("orderly", False))
    consumer.set_namesrv_addr(command["namesrv"])
    consumer.subscribe(command["topic"], listener, command.get("expression", "*"))
    consumer.start()
    enough.wait(_DEADLINE_S)
    consumer.shutdown()
    with lock:
        return {"messages": list(seen)}


def main() -> None:
    """Serve one command. The process ends without the library's destructors, which may hang, even after an error."""
    code = 1
    try:
        command = json.loads(sys.stdin.read())
        answer = {"send": send, "transact": transact, "receive": receive}[command["cmd"]](command)
        sys.stdout.write("\n" + json.dumps(answer) + "\n")
        code = 0
    except Exception:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
