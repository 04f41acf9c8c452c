"""Expressions, and the values that they look at, are read in linear time."""
import pytest

from rmqha.common.config_keys import parse_property
from rmqha.filter.expressions import FilterError, MQFilterException, double_value_of
from rmqha.filter.selector_parser import MAX_LENGTH, _parsed, parse
from tests.support.cost import assert_linear

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
def test_text_is_read_as_a_number_in_linear_time(name):
    assert_linear(NUMBERS[name], raising_value_errors(double_value_of, FilterError), 300)
    assert_linear(NUMBERS[name], lambda text: parse_property(text, float), 300)


def test_expression_beyond_the_limit_is_refused():
    longest = "a=1 or " * (MAX_LENGTH // 7 - 1) + "a=1"
    assert parse(longest)
    with pytest.raises(MQFilterException, match="an expression of .* characters, the limit is 65536"):
        parse(longest.ljust(MAX_LENGTH + 1))


def test_plus_signs_within_each_other_are_looked_through_only_so_often():
    parse("+a = 1" + " or +a = 1" * 2000)
    parse("+(" * 20 + "a = 1" + ")" * 20)
    with pytest.raises(MQFilterException, match="StackOverflowError"):
        parse("+(" * 20 + "a = 1" + " or a = 1" * 3000 + ")" * 20)
