"""SQL92 expressions: their values for messages, in linear time; Bloom filters; and the comparison of both with the
original's."""
import os
import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rmqha.broker.expression_message_filter import MessageEvaluationContext
from rmqha.common.config_keys import parse_property
from rmqha.filter import selector_parser
from rmqha.filter import selector_parser as filter_factory
from rmqha.filter.bloom_filter import BitsArray, BloomFilter, BloomFilterData, murmur3_128_low
from rmqha.filter.expressions import EmptyEvaluationContext, FilterError, MQFilterException, double_value_of
from rmqha.filter.selector_parser import MAX_LENGTH, _parsed, parse
from tests.filter.expressions import EXPRESSIONS, MESSAGES
from tests.support.watch import assert_linear

# Expressions: their values for messages, and arbitrary input. Equality with Java is tested below.


def value(sql, **properties):
    return selector_parser.parse(sql).evaluate(MessageEvaluationContext(properties))


@pytest.mark.parametrize("sql, expected", [
    ("a = 3", True), ("a <> 3", False), ("a > 2.5", True), ("a > b", False), ("a BETWEEN 3 AND 4", True),
    ("a NOT BETWEEN 3 AND 4", False), ("a IN ('3', 'x')", True), ("a NOT IN ('3', 'x')", False), ("a = '3'", True),
    ("a IS NULL", False), ("nothing IS NULL", True), ("nothing IS NOT NULL", False), ("nothing = 3", None),
    ("nothing > 3", None), ("nothing IN ('x')", None), ("NOT nothing = 3", None), ("nothing = 3 OR a = 3", True),
    ("nothing = 3 AND a = 4", False), ("nothing = 3 AND a = 3", None), ("nothing = 3 OR a = 4", None),
    ("a = -3 OR - b < 0", None), ("a = 3 AND b = 4 -- what follows\n AND b = 4", True), ("A = 3", None), ("a", False),
    ("TRUE", True), ("a = 3 garbage", True), ("(a = 3 AND (b = 5 OR b = 4))", True), ("a = 'it''s'", False),
])
def test_value_of_an_expression(sql, expected):
    assert value(sql, a="3", b="4") is expected


def test_text_that_is_not_a_number_is_an_error_of_the_comparison():
    with pytest.raises(FilterError, match='NumberFormatException: For input string: "x"'):
        value("a > 3", a="x")
    with pytest.raises(FilterError, match="It's illegal to compare string by '>=', '>', '<', '<='. lv=x, rv=3"):
        value("a > b", a="x", b="3")


def test_error_names_the_place_and_the_expected_token():
    with pytest.raises(MQFilterException) as error:
        selector_parser.parse("a is not 3")
    assert str(error.value) == (
        'org.apache.rocketmq.filter.parser.ParseException: Encountered " <DECIMAL_LITERAL> "3 "" at line 1, column '
        '10.\nWas expecting:\n    "NULL" ...\n    ')
    assert error.value.error_message == "Invalid MessageSelector. "


def test_long_chains_do_not_exhaust_the_stack():
    sql = " OR ".join(f"a = {number}" for number in range(5_000))
    expression = selector_parser.parse(sql)
    assert expression.evaluate(MessageEvaluationContext({"a": "4999"})) is True
    assert expression.evaluate(EmptyEvaluationContext()) is None
    assert str(expression).endswith("|| (a == 4999))")


@pytest.mark.parametrize("sql", ["(" * 5000 + "a", "NOT " * 5000 + "a", "- " * 5000 + "a = 1", "+ " * 5000 + "a",
                                 "+ " + "(" * 5000 + "a", " = ".join(["a"] * 5000)])
def test_deep_nesting_is_refused(sql):
    with pytest.raises(MQFilterException, match="java.lang.StackOverflowError"):
        selector_parser.parse(sql)


def test_now_is_a_property_like_any_other():
    # In a text it is a property.
    assert value("a = now", a="5", now="5") is True


def test_only_sql92_is_supported():
    assert filter_factory.get("SQL92").of_type() == "SQL92"
    assert filter_factory.get("TAG") is None and filter_factory.get(None) is None


PIECES = st.sampled_from(["a", "b", "not", "and", "or", "between", "in", "null", "is", "1", "2.5", "'x'", "=", "<>",
                          ">", "<=", "(", ",", ")", "+", "-", "--", "/*", "*/", "'", "\n", "1e999", "\U0001F600", "ß"])


@given(st.one_of(st.text(), st.lists(PIECES, max_size=30).map(" ".join), st.lists(PIECES, max_size=30).map("".join),
                 st.sampled_from(EXPRESSIONS)),
       st.one_of(st.sampled_from(MESSAGES), st.dictionaries(st.sampled_from(["a", "b"]), st.text(max_size=5))))
@example("a > 1 and a < '\ud800'", {"a": "\ud800"})
def test_any_text_is_an_expression_or_an_error(sql, properties):
    try:
        expression = selector_parser.parse(sql)
    except MQFilterException as error:
        assert str(error).startswith(("org.apache.rocketmq.filter.parser.", "java.lang."))
        return
    assert isinstance(str(expression), str)
    try:
        assert expression.evaluate(MessageEvaluationContext(properties)) in (True, False, None)
    except FilterError as error:
        assert error.describe().startswith("java.lang.")


# Expressions, and the values that they use, are read in linear time.

GROWING = {
    "operands": lambda n: " or ".join(["a=1"] * n),
    "list": lambda n: "a in (" + ",".join(["'x'"] * n) + ")",
    "minus signs": lambda n: "- " * n,
    "comments without an end of line": lambda n: "a = " + "- --" * 40 + "x" * n * 10,
    "comments without an end": lambda n: "a = 1 or /* " * n,
    "many short comments": lambda n: "/*x*/--y\n" * n + "a=1",
    "quotes": lambda n: "a='" + "''" * n * 5,
    "text without an end": lambda n: "a='" + "x" * n * 5,
    "digits": lambda n: "a=" + "1" * n * 10,
    "digits behind a point": lambda n: "a=1." + "1" * n * 10 + "x",
    "error at the end": lambda n: "a=1 or " * n + "@",
    "operand missing at the end": lambda n: "a=1 or " * n + "or",
    "characters beyond the BMP": lambda n: "a='\U0001f600' or " * n + "a=1",
}
NUMBERS = {
    "digits": lambda n: "1" * n * 10 + "x", "hexadecimal digits": lambda n: "0x" + "1" * n * 10 + "x",
    "digits and a point": lambda n: "1" * n * 10 + "." + "1" * n * 10 + "x",
    "exponent": lambda n: "1e" + "1" * n * 10 + "x",
}


def raising_value_errors(read, *errors):
    def wrapped(text):
        try:
            read(text)
        except errors as error:
            raise ValueError from error
    return wrapped


@pytest.mark.parametrize("name", GROWING)
def test_expression_is_parsed_in_linear_time(name):
    assert_linear(GROWING[name], raising_value_errors(_parsed, MQFilterException), 400)


@pytest.mark.parametrize("name", NUMBERS)
def test_number_is_read_from_a_text_in_linear_time(name):
    assert_linear(NUMBERS[name], raising_value_errors(double_value_of, FilterError), 300)
    assert_linear(NUMBERS[name], lambda text: parse_property(text, float), 300)


def test_expression_beyond_the_limit_is_refused():
    longest = "a=1 or " * (MAX_LENGTH // 7 - 1) + "a=1"
    assert parse(longest)
    with pytest.raises(MQFilterException, match="an expression of .* characters, the limit is 65536"):
        parse(longest.ljust(MAX_LENGTH + 1))


def test_nested_plus_signs_are_scanned_a_bounded_number_of_times():
    parse("+a = 1" + " or +a = 1" * 2000)
    parse("+(" * 20 + "a = 1" + ")" * 20)
    with pytest.raises(MQFilterException, match="StackOverflowError"):
        parse("+(" * 20 + "a = 1" + " or a = 1" * 3000 + ")" * 20)


# Bit arrays and Bloom filters. Equality with Java's bits is tested below.


@given(st.lists(st.integers(0, 111)), st.lists(st.integers(0, 111)))
def test_bits_that_were_set_are_set(to_set, to_clear):
    bits = BitsArray.create(112)
    for position in to_set:
        bits.set_bit(position, True)
    for position in to_clear:
        bits.set_bit(position, False)
    expected = set(to_set) - set(to_clear)
    assert {position for position in range(112) if bits.get_bit(position)} == expected
    copy = BitsArray.of(bytes(bits.bytes))
    assert (copy.bytes, copy.bit_length) == (bits.bytes, 112)
    assert str(copy).replace("\n", "")[::-1] == "".join("1" if position in expected else "0" for position in range(112))


@pytest.mark.parametrize("position", [-1, 16, 1000])
def test_bit_outside_is_refused(position):
    with pytest.raises(ValueError, match="BitPos is"):
        BitsArray.create(16).get_bit(position)
    with pytest.raises(ValueError, match="BitPos is"):
        BitsArray.create(16).set_bit(position, True)
    with pytest.raises(ValueError, match="Bytes is empty"):
        BitsArray.of(b"")


@given(st.lists(st.text(), max_size=20))
def test_added_name_is_a_hit(names):
    bloom = BloomFilter.create_by_fn(20, 32)
    bits = BitsArray.create(bloom.m)
    for name in names:
        bloom.hash_to(bloom.generate(name), bits)
    assert all(bloom.is_hit(bloom.generate(name), bits) for name in names)


def test_sizes_follow_error_rate_and_count():
    assert str(BloomFilter.create_by_fn(20, 32)) == "f: 20, n: 32, k: 3, m: 112"
    for f, n in ((0, 1), (100, 1), (20, 0)):
        with pytest.raises(ValueError):
            BloomFilter.create_by_fn(f, n)


def test_data_of_another_filter_is_refused():
    bloom = BloomFilter.create_by_fn(20, 32)
    for data in (None, BloomFilterData(104, [1, 2, 3]), BloomFilterData(112, [1]), BloomFilterData(112, None)):
        assert not bloom.is_valid(data)
        with pytest.raises(ValueError, match="may not belong to this filter"):
            bloom.is_hit(data, BitsArray.create(112))
    with pytest.raises(ValueError, match="is not equal to 112"):
        bloom.is_hit(bloom.generate("x"), BitsArray.create(104))


def test_hash_of_empty_input_is_zero():
    assert murmur3_128_low(b"") == 0


# Expressions in the original's filter module and in ours: the same errors, texts and values.

JAVA_PIECES = ("a", "b", "not", "and", "or", "between", "in", "true", "false", "null", "is", "1", "2.5", "'x'", "'1'",
               "=",
          "<>", ">", ">=", "<", "<=", "(", ",", ")", "+", "-", "a = 1", "a is null", "b not in ('x')",
          "a between 1 and 2", "--", "@", "\n", "\t", "/* */", "3L", "'")
COUNT = int(os.environ.get("RMQHA_SQL_TEXTS", "2000"))


def ours(sql: str) -> dict:
    """Return our module's result for an expression in the form of the driver's answer."""
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
    """Return (expression, Java's answer, ours) for each difference."""
    return [(sql, theirs, mine) for sql, theirs in zip(expressions, javas(driver, expressions), strict=True)
            if theirs != (mine := ours(sql))]


@pytest.mark.java
def test_expressions_of_the_table_agree_with_java(java_driver):
    assert differences(java_driver, list(EXPRESSIONS)) == []


@pytest.mark.java
def test_random_expressions_agree_with_java(java_driver):
    choose = random.Random(4)
    expressions = [" ".join(choose.choices(JAVA_PIECES, k=choose.randrange(12))) for _ in range(COUNT)]
    assert differences(java_driver, expressions)[:1] == []


@pytest.mark.java
@pytest.mark.parametrize("f, n", [(20, 32), (10, 128), (1, 1), (99, 7)])
def test_bloom_filter_bits_agree_with_java(java_driver, f, n):
    names = ["", "g#t", "group#topic", "x" * 15, "x" * 16, "x" * 17, "x" * 100, "größe#名\U0001F600"]
    theirs = java_driver.submit("bloom", f=f, n=n, names=names).result()
    ours = BloomFilter.create_by_fn(f, n)
    assert (ours.m, ours.k) == (theirs["m"], theirs["k"])
    assert [ours.calc_bit_positions(name) for name in names] == theirs["bits"]
