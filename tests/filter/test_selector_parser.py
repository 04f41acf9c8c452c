"""Expressions: what they say of messages, and that nothing breaks them. Equality with Java: test_beside_java."""
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rmqha.broker.expression_message_filter import MessageEvaluationContext
from rmqha.filter import selector_parser
from rmqha.filter import selector_parser as filter_factory
from rmqha.filter.expressions import EmptyEvaluationContext, FilterError, MQFilterException
from tests.filter.expressions import EXPRESSIONS, MESSAGES


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


def test_text_that_is_no_number_is_an_error_of_the_comparison():
    with pytest.raises(FilterError, match='NumberFormatException: For input string: "x"'):
        value("a > 3", a="x")
    with pytest.raises(FilterError, match="It's illegal to compare string by '>=', '>', '<', '<='. lv=x, rv=3"):
        value("a > b", a="x", b="3")


def test_error_says_where_and_what_was_expected():
    with pytest.raises(MQFilterException) as error:
        selector_parser.parse("a is not 3")
    assert str(error.value) == (
        'org.apache.rocketmq.filter.parser.ParseException: Encountered " <DECIMAL_LITERAL> "3 "" at line 1, column '
        '10.\nWas expecting:\n    "NULL" ...\n    ')
    assert error.value.error_message == "Invalid MessageSelector. "


def test_long_chains_need_no_stack():
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
    assert value("a = now", a="5", now="5") is True  # in a text it is a property


def test_only_sql92_is_known():
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
