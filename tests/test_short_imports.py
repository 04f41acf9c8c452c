"""`from rmqha import Producer`: the available names, their import cost before first use, and their types."""
import ast
import importlib.util
import os
import subprocess
import sys

import pytest

import rmqha
from rmqha.client.consumer.default_lite_pull_consumer import DefaultLitePullConsumer
from rmqha.client.consumer.default_mq_push_consumer import DefaultMQPushConsumer
from rmqha.client.consumer.listeners import ConsumeConcurrentlyStatus
from rmqha.client.producer.default_mq_producer import DefaultMQProducer
from rmqha.client.producer.transaction_mq_producer import TransactionMQProducer
from tests.support.sources import ROOT

USER_PROGRAM = '''
import asyncio

import rmqha
from rmqha import (
    ConsumeFromWhere, ConsumeStatus, Message, MessageExt, Producer, PullConsumer, PushConsumer, SendResult, SendStatus,
    TransactionProducer,
)
from rmqha.aio import AsyncConsumer, AsyncMessage, AsyncProducer


def listener(messages: list[MessageExt]) -> ConsumeStatus:
    return ConsumeStatus.CONSUME_SUCCESS if messages else ConsumeStatus.RECONSUME_LATER


def use() -> SendStatus:
    rmqha.log_to_stderr("INFO")
    with Producer("g", send_msg_timeout=5_000) as producer:
        result: SendResult = producer.send(Message("T", b"x", tags="a"))
    with PushConsumer("g", None, listener, consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET) as push:
        push.subscribe("T", "a || b")
    with PullConsumer("g", auto_commit=False) as pull:
        bodies: list[bytes] = [bytes(message.body) for message in pull.poll()]
        print(bodies)
    print(TransactionProducer("g", check_request_hold_max=10).producer_group)
    return result.send_status


async def use_aio() -> None:
    async with AsyncProducer("g", max_in_flight=10, send_msg_timeout=5_000) as producer:
        results: list[SendResult] = await asyncio.gather(*(producer.send(Message("T", b"x")) for _ in range(3)))
        print(results)
    async with AsyncConsumer("g", topics={"T": "*"}) as consumer:
        async for message in consumer:
            taken: AsyncMessage = message
            taken.ack()
'''
MISTAKES = {
    'Producer("g", send_timeout=5)': "send_timeout",
    'Producer("g", send_msg_timeout="soon")': "send_msg_timeout",
    'Message("T", "text")': "incompatible type",
    'rmqha.Produzer': "Produzer",
}


def in_new_process(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, text=True, capture_output=True, check=True).stdout


def test_short_names_are_javas():
    assert rmqha.Producer is rmqha.DefaultMQProducer is DefaultMQProducer
    assert rmqha.TransactionProducer is rmqha.TransactionMQProducer is TransactionMQProducer
    assert rmqha.PushConsumer is rmqha.DefaultMQPushConsumer is DefaultMQPushConsumer
    assert rmqha.PullConsumer is rmqha.DefaultLitePullConsumer is DefaultLitePullConsumer
    assert rmqha.ConsumeStatus is rmqha.ConsumeConcurrentlyStatus is ConsumeConcurrentlyStatus


def test_import_loads_nothing():
    loaded = in_new_process("import sys; before = set(sys.modules); import rmqha; print(*set(sys.modules) - before)")
    assert loaded.split() == ["rmqha"]


def test_every_name_is_available_and_known_to_type_checkers():
    in_new_process("from rmqha import *; Producer, Message, log_to_stderr, __version__")
    assert sorted(rmqha.__all__) == rmqha.__all__ and set(rmqha.__all__) <= set(dir(rmqha))
    tree = ast.parse((ROOT / "rmqha/__init__.py").read_text("utf-8"))
    told = {name.asname or name.name: (node.module, name.name) for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) for name in node.names}
    assert set(told) | {"__version__"} == set(rmqha.__all__)
    for name, (module, java_name) in told.items():
        assert rmqha._ALIASES.get(name, name) == java_name and rmqha._MODULES[java_name] == module
        assert getattr(rmqha, name) is getattr(importlib.import_module(module), java_name)


def test_unknown_name():
    with pytest.raises(AttributeError, match="module 'rmqha' has no attribute 'Produzer'"):
        _ = rmqha.Produzer
    with pytest.raises(ImportError):
        exec("from rmqha import Produzer")


@pytest.mark.skipif(importlib.util.find_spec("mypy") is None, reason="mypy is not installed (extra dev)")
def test_mypy_accepts_a_correct_program_in_strict_mode_and_finds_its_mistakes(tmp_path):
    program = USER_PROGRAM + "".join(f"\n{line}" for line in MISTAKES) + "\n"
    (tmp_path / "user.py").write_text(program, "utf-8")
    found = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--follow-imports=silent", "--python-version=3.11",
         f"--cache-dir={tmp_path / 'cache'}", "user.py"], cwd=tmp_path, text=True, capture_output=True,
        env={**os.environ, "MYPYPATH": str(ROOT)}, check=False).stdout.splitlines()
    for line, text in MISTAKES.items():
        number = program.splitlines().index(line) + 1
        assert [one for one in found if one.startswith(f"user.py:{number}: error") and text in one], found
    assert len([line for line in found if ": error" in line]) == len(MISTAKES), found
