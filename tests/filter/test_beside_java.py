"""Expressions by the original's filter module and by ours: the same errors, texts and values."""
import os
import random

import pytest

from rmqha.broker.expression_message_filter import MessageEvaluationContext
from rmqha.filter import selector_parser
from rmqha.filter.bloom_filter import BloomFilter
from rmqha.filter.expressions import FilterError, MQFilterException
from tests.filter.expressions import EXPRESSIONS, MESSAGES

pytestmark = pytest.mark.java

PIECES = ("a", "b", "not", "and", "or", "between", "in", "true", "false", "null", "is", "1", "2.5", "'x'", "'1'", "=",
          "<>", ">", ">=", "<", "<=", "(", ",", ")", "+", "-", "a = 1", "a is null", "b not in ('x')",
          "a between 1 and 2", "--", "@", "\n", "\t", "/* */", "3L", "'")
COUNT = int(os.environ.get("RMQHA_SQL_TEXTS", "2000"))


def ours(sql: str) -> dict:
    """What our module says of an expression, in the form of the driver's answer."""
    try:
        expression = selector_parser.parse(sql)
    except MQFilterException as error:
        return {"error": str(error)}
    return {"text": str(expression), "values": [value_of(expression, message) for message in MESSAGES]}


def value_of(expression, message: dict[str, str]):
    try:
        return expression.evaluate(MessageEvaluationContext(message))
    except FilterError as error:
        return error.describe()


def javas(driver, expressions: list[str]) -> list[dict]:
    return driver.submit("sqlEvaluate", expressions=expressions, messages=list(MESSAGES)).result()["answers"]


def differences(driver, expressions: list[str]) -> list[tuple]:
    """(expression, Java's answer, ours) where they differ."""
    return [(sql, theirs, mine) for sql, theirs in zip(expressions, javas(driver, expressions), strict=True)
            if theirs != (mine := ours(sql))]


def test_table_of_expressions(java_driver):
    assert differences(java_driver, list(EXPRESSIONS)) == []


def test_any_pieces_of_expressions(java_driver):
    choose = random.Random(4)
    expressions = [" ".join(choose.choices(PIECES, k=choose.randrange(12))) for _ in range(COUNT)]
    assert differences(java_driver, expressions)[:1] == []


@pytest.mark.parametrize("f, n", [(20, 32), (10, 128), (1, 1), (99, 7)])
def test_bits_of_bloom_filters(java_driver, f, n):
    names = ["", "g#t", "group#topic", "x" * 15, "x" * 16, "x" * 17, "x" * 100, "größe#名\U0001F600"]
    theirs = java_driver.submit("bloom", f=f, n=n, names=names).result()
    ours = BloomFilter.create_by_fn(f, n)
    assert (ours.m, ours.k) == (theirs["m"], theirs["k"])
    assert [ours.calc_bit_positions(name) for name in names] == theirs["bits"]
