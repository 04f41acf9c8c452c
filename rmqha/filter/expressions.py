"""SQL92 filters as trees of expressions, evaluated over a message's properties.

- `FilterError` and its subclasses, `MQFilterException`: errors in the words of the original, because clients receive
  them as an answer's remark.
- `Value`, `compare`, `same`: the values of expressions, and how Java converts and compares them. None, bool, str and
  float represent themselves; `Integer` and `Long` are distinct types because a text is converted to the type of the
  other operand.
- `Expression` and its subclasses: properties, literals, operators with one operand, AND and OR in three-valued logic
  (true, false, NULL), and comparisons. An `EvaluationContext` provides the values of properties.

NULL. A property that a message lacks is NULL (None), and a condition is true, false or NULL. A message is delivered
only if the condition is true: NULL does not deliver, and neither does NOT of NULL.

    operation              result with NULL
    NOT x, -x              NULL
    x AND y                false if one is false, else NULL: the false operand decides, whatever the other would be
    x OR y                 true if one is true, else NULL
    x < y, >, <=, >=       NULL if an operand is NULL
    x BETWEEN a AND b      as x >= a AND x <= b; NOT BETWEEN as x < a OR x > b
    x IN (...)             NULL if x is NULL or not a text; also for NOT IN
    x IS NULL              true if x is NULL, else false; IS NOT NULL is its negation
    x = y                  NULL if x is NULL, false if only y is NULL, true if both are; x <> y is its negation

So `color <> 'red'` does not deliver a message without a color: write `color IS NULL OR color <> 'red'`. A two-valued
evaluation, in which a comparison with NULL is false, would deliver it, because NOT turns false into true. Every
operator must therefore pass NULL on, and only the top, `BooleanExpression.matches`, turns it into "not delivered".

The last line is not SQL: in SQL `=` with a NULL on either side is NULL. Here `'red' = color` is false for a message
without a color and so `'red' <> color` delivers it, unlike `color <> 'red'`. The original behaves like this, because
it implements IS NULL as `=` with the literal NULL on the right. Consumers rely on the results, and a bloom filter may
have stored them, so the asymmetry stays.
"""
import re
from collections.abc import Callable
from enum import Enum
from typing import Any

from rmqha.common import util_all
from rmqha.common.java import int32, int64


class FilterError(Exception):
    """An error in parsing or evaluation; `java_name` is the class that the original throws."""

    java_name = "java.lang.RuntimeException"

    def describe(self) -> str:
        """Return the error as Java's toString() does."""
        return f"{self.java_name}: {self}" if self.args else self.java_name


class NumberFormatError(FilterError):
    """A text that is not a number of the required type.

    Java: java.lang.NumberFormatException
    """

    java_name = "java.lang.NumberFormatException"


class ClassCastError(FilterError):
    """A boolean where the original requires a text.

    Java: java.lang.ClassCastException
    """

    java_name = "java.lang.ClassCastException"


class MQFilterException(Exception):
    """An invalid expression. Its text names the cause; `error_message` is a general message.

    Java: org.apache.rocketmq.filter.expression.MQFilterException (4.9.8)
    """

    def __init__(self, error_message: str, cause: str) -> None:
        super().__init__(cause)
        self.response_code = -1
        self.error_message = error_message


MAX_DOUBLE = 1.7976931348623157e308
MIN_DOUBLE = 4.9e-324

_WHOLE = re.compile(r"[+-]?\d{1,400}\Z").match
# Digits are matched possessively, without backtracking: the text is a message property, which may be long.
_DOUBLE = re.compile(r"([+-]?(?:NaN|Infinity|(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?))[fFdD]?\Z").match
_HEX_DOUBLE = re.compile(r"([+-]?0[xX](?:[0-9a-fA-F]++(?:\.[0-9a-fA-F]*+)?|\.[0-9a-fA-F]++)[pP][+-]?[0-9]++)[fFdD]?\Z"
                         ).match
_BLANKS = "".join(map(chr, range(33)))


class Integer(int):
    """A signed 32-bit integer.

    Java: java.lang.Integer
    """


class Long(int):
    """A signed 64-bit integer.

    Java: java.lang.Long
    """


Value = None | bool | str | float | Integer | Long


def _whole_value_of(text: str, bits: int) -> int:
    limit = 1 << bits - 1
    if _WHOLE(text) is None or not -limit <= (value := int(text)) < limit:
        raise NumberFormatError(f'For input string: "{text}"')
    return value


def integer_value_of(text: str) -> Integer:
    """Parse like Java's Integer.valueOf; NumberFormatError."""
    return Integer(_whole_value_of(text, 32))


def long_value_of(text: str) -> Long:
    """Parse like Java's Long.valueOf; NumberFormatError."""
    return Long(_whole_value_of(text, 64))


def double_value_of(text: str) -> float:
    """Parse like Java's Double.valueOf; NumberFormatError."""
    stripped = text.strip(_BLANKS)
    match = _DOUBLE(stripped)
    if match is not None:
        return float(match[1])
    match = _HEX_DOUBLE(stripped)
    if match is not None:
        try:
            return float.fromhex(match[1])
        except OverflowError:
            return float("-inf" if stripped[0] == "-" else "inf")
    raise NumberFormatError(f'For input string: "{stripped}"' if stripped else "empty String")


def compare(left: Value, right: Value) -> int:
    """Compare two values as Java does: negative, 0 or positive. A text is converted to the type of the other value.

    -1 for types that cannot be compared. FilterError for a text that cannot be converted.
    """
    if type(left) is type(right):
        return _compare_same(left, right)
    try:
        if isinstance(left, bool):
            if isinstance(right, str):
                raise ClassCastError("class java.lang.Boolean cannot be cast to class java.lang.String (java.lang."
                                     "Boolean and java.lang.String are in module java.base of loader 'bootstrap')")
            return -1
        if isinstance(left, str):
            return _compare_same(_convert(left, right), right)
        if isinstance(right, str):
            return _compare_same(left, _convert(right, left))
    except NumberFormatError as failure:
        raise FilterError(failure.describe()) from failure
    if isinstance(right, bool):
        return -1
    if isinstance(left, float) or isinstance(right, float):
        return _compare_same(float(left), float(right))  # type: ignore[arg-type]  # callers do not compare NULL
    return _compare_same(int(left), int(right))  # type: ignore[arg-type]  # callers do not compare NULL


def _convert(text: str, like: Value) -> Value:
    if isinstance(like, bool):
        return text.lower() == "true"
    if isinstance(like, float):
        return double_value_of(text)
    return integer_value_of(text) if isinstance(like, Integer) else long_value_of(text)


def _compare_same(left: Any, right: Any) -> int:  # of one Java class
    if isinstance(left, str):
        left, right = left.encode("utf-16-be", "surrogatepass"), right.encode("utf-16-be", "surrogatepass")
    elif isinstance(left, float):
        left, right = _order_of_double(left), _order_of_double(right)
    return (left > right) - (left < right)  # type: ignore[no-any-return]  # the difference of two bools


def _order_of_double(value: float) -> tuple[bool, float, bool]:
    """Return a key that sorts as Double.compareTo: -0.0 below 0.0, NaN above everything."""
    if value != value:
        return True, 0.0, True
    return False, value, value != 0 or str(value) == "0.0"


def same(left: Value, right: Value) -> bool:
    """Return whether two values are equal by Java's equals, which includes the type."""
    return type(left) is type(right) and _compare_same(left, right) == 0


def value_text(value: Value) -> str:
    """Format like Java's String.valueOf."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return double_text(value) if isinstance(value, float) else str(value)


def double_text(value: float) -> str:
    """Format like Java's Double.toString."""
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        text = repr(value)
        return text if "e" not in text else f"{value:.17f}".rstrip("0")
    if abs(value) == 5e-324:
        return "4.9E-324" if value > 0 else "-4.9E-324"
    sign, digits = ("-" if value < 0 else ""), repr(abs(value))
    mantissa, _, exponent = digits.partition("e")
    whole, _, fraction = mantissa.partition(".")
    fraction = "" if fraction == "0" else fraction
    power = int(exponent or 0) + len(whole) - 1
    significant = (whole + fraction).lstrip("0")
    if whole.strip("0") == "":
        power = int(exponent or 0) - (len(fraction) - len(fraction.lstrip("0")) + 1)
    significant = significant.rstrip("0") or "0"
    return f"{sign}{significant[0]}.{significant[1:] or '0'}E{power}"


class EvaluationContext:
    """Java: org.apache.rocketmq.filter.expression.EvaluationContext (4.9.8)"""

    def get(self, name: str) -> Any:
        """Return the value of a name; None for NULL."""
        raise NotImplementedError


class EmptyEvaluationContext(EvaluationContext):
    """A context in which no name has a value.

    Java: org.apache.rocketmq.filter.expression.EmptyEvaluationContext (4.9.8)
    """

    def get(self, name: str) -> Any:
        """Return None."""
        return None


class Expression:
    """A node of the tree, evaluated against properties. Immutable once built, so threads may share it.

    Java: org.apache.rocketmq.filter.expression.Expression (4.9.8)
    """

    def evaluate(self, context: EvaluationContext) -> Value:
        """Return the value; None for NULL. FilterError when the types do not fit."""
        raise NotImplementedError


class BooleanExpression(Expression):
    """An expression whose value is true, false or NULL.

    Java: org.apache.rocketmq.filter.expression.BooleanExpression (4.9.8)
    """

    def matches(self, context: EvaluationContext) -> bool:
        """Return whether the value is true. NULL does not match."""
        return self.evaluate(context) is True


class PropertyExpression(Expression):
    """A property, whose value is a text, or NULL when the message lacks it.

    Java: org.apache.rocketmq.filter.expression.PropertyExpression (4.9.8)
    """

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def evaluate(self, context: EvaluationContext) -> Value:
        """Return the property's text."""
        return context.get(self.name)  # type: ignore[no-any-return]  # contexts hold such values

    def __str__(self) -> str:
        return self.name


class ConstantExpression(Expression):
    """A literal: a number or a text.

    Java: org.apache.rocketmq.filter.expression.ConstantExpression (4.9.8)
    """

    __slots__ = ("_value",)

    def __init__(self, value: Value) -> None:
        self._value = value

    @staticmethod
    def create_from_decimal(text: str) -> "ConstantExpression":
        """Return the literal of a whole number, with or without a trailing `l` or `L`; FilterError beyond 64 bits."""
        value = long_value_of(text[:-1] if text[-1] in "lL" else text)
        return ConstantExpression(Integer(value) if -(1 << 31) <= value < 1 << 31 else Long(value))

    @staticmethod
    def create_float(text: str) -> "ConstantExpression":
        """Return the literal of a number with fraction or exponent. As in the original, 0.0 is refused as too small."""
        value = double_value_of(text)
        if value > MAX_DOUBLE:
            raise FilterError(f"{text} is greater than {double_text(MAX_DOUBLE)}")
        if value < MIN_DOUBLE:
            raise FilterError(f"{text} is less than {double_text(MIN_DOUBLE)}")
        return ConstantExpression(value)

    def evaluate(self, context: EvaluationContext) -> Value:
        """Return the literal's value."""
        return self._value

    @property
    def value(self) -> Value:
        """Return the literal's value."""
        return self._value

    def __str__(self) -> str:
        value = self.value
        if value is None:
            return "NULL"
        if isinstance(value, bool):
            return "TRUE" if value else "FALSE"
        return encode_string(value) if isinstance(value, str) else value_text(value)


class NowExpression(ConstantExpression):
    """The time of evaluation in ms since the epoch.

    Java: org.apache.rocketmq.filter.expression.NowExpression (4.9.8)
    """

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__("now")

    def evaluate(self, context: EvaluationContext) -> Value:
        """Return the current time in ms since the epoch."""
        return self.value

    @property
    def value(self) -> Value:
        """Return the current time in ms since the epoch."""
        return Long(util_all.current_time_millis())


class BooleanConstantExpression(ConstantExpression, BooleanExpression):
    """A literal TRUE, FALSE or NULL.

    Java: org.apache.rocketmq.filter.expression.BooleanConstantExpression (4.9.8)
    """

    __slots__ = ()


NULL = BooleanConstantExpression(None)
TRUE = BooleanConstantExpression(True)
FALSE = BooleanConstantExpression(False)


def encode_string(text: str) -> str:
    """Return a text as a literal of an expression."""
    return "'" + text.replace("'", "''") + "'"


class UnaryType(Enum):
    """Java: org.apache.rocketmq.filter.constant.UnaryType (4.9.8)"""

    NEGATE = "NEGATE"
    IN = "IN"
    NOT = "NOT"
    BOOLEANCAST = "BOOLEANCAST"
    LIKE = "LIKE"


class UnaryExpression(Expression):
    """An operator with one operand, on its right.

    Java: org.apache.rocketmq.filter.expression.UnaryExpression (4.9.8)
    """

    __slots__ = ("right",)
    unary_type: UnaryType
    expression_symbol = ""

    def __init__(self, right: Expression) -> None:
        self.right = right

    @staticmethod
    def create_negate(right: Expression) -> "UnaryExpression":
        """Return `-x`."""
        return _Negate(right)

    @staticmethod
    def create_in_expression(right: PropertyExpression, elements: list[str], is_not: bool) -> "UnaryInExpression":
        """Return `x IN (...)`, or `x NOT IN (...)` with `is_not`."""
        return UnaryInExpression(right, elements, is_not)

    @staticmethod
    def create_not(right: BooleanExpression) -> BooleanExpression:
        """Return `NOT x`."""
        return _Not(right)

    @staticmethod
    def create_boolean_cast(right: Expression) -> BooleanExpression:
        """Return a condition that is true if a property's value is the boolean true."""
        return _BooleanCast(right)

    def __str__(self) -> str:
        return f"({self.expression_symbol} {self.right})"


class _Negate(UnaryExpression):
    __slots__ = ()
    unary_type = UnaryType.NEGATE
    expression_symbol = "-"

    def evaluate(self, context: EvaluationContext) -> Value:
        value = self.right.evaluate(context)
        if isinstance(value, Integer):
            return Integer(int32(-value))
        if isinstance(value, Long):
            return Long(int64(-value))
        return -value if isinstance(value, float) else None


class _Not(UnaryExpression, BooleanExpression):
    __slots__ = ()
    unary_type = UnaryType.NOT
    expression_symbol = "NOT"

    def evaluate(self, context: EvaluationContext) -> bool | None:
        value = self.right.evaluate(context)
        return None if value is None else not value


class _BooleanCast(UnaryExpression, BooleanExpression):
    __slots__ = ()
    unary_type = UnaryType.BOOLEANCAST

    def evaluate(self, context: EvaluationContext) -> bool | None:
        value = self.right.evaluate(context)
        return None if value is None else value is True

    def __str__(self) -> str:
        return str(self.right)


class UnaryInExpression(UnaryExpression, BooleanExpression):
    """A test whether a property is one of several texts.

    Java: org.apache.rocketmq.filter.expression.UnaryInExpression (4.9.8)
    """

    __slots__ = ("in_list", "is_not", "_in_set")
    unary_type = UnaryType.IN

    def __init__(self, right: PropertyExpression, elements: list[str], is_not: bool) -> None:
        super().__init__(right)
        self.in_list = elements
        self.is_not = is_not
        self._in_set = frozenset(elements)

    def evaluate(self, context: EvaluationContext) -> bool | None:
        """Return the result; NULL for a property that is absent or not a text."""
        value = self.right.evaluate(context)
        return (value in self._in_set) is not self.is_not if isinstance(value, str) else None

    @property
    def expression_symbol(self) -> str:  # type: ignore[override]  # the only one that varies
        """The operator's text."""
        return "NOT IN" if self.is_not else "IN"

    def __str__(self) -> str:
        return f"{self.right} {self.expression_symbol} ( {', '.join(self.in_list)} )"


class LogicExpression(BooleanExpression):
    """AND or OR of several operands, evaluated from left to right.

    The first operand with the deciding value (true for OR, false for AND) ends the evaluation. `a OR b OR c`, which the
    grammar nests to the left, is one expression with three operands, so that long chains need no stack.

    Java: org.apache.rocketmq.filter.expression.LogicExpression (4.9.8)
    """

    __slots__ = ("operands", "_deciding")

    def __init__(self, operands: list[BooleanExpression], deciding: bool) -> None:
        self.operands = operands
        self._deciding = deciding

    @staticmethod
    def create_or(left: BooleanExpression, right: BooleanExpression) -> "LogicExpression":
        """Return `left OR right`."""
        return LogicExpression._join(left, right, True)

    @staticmethod
    def create_and(left: BooleanExpression, right: BooleanExpression) -> "LogicExpression":
        """Return `left AND right`."""
        return LogicExpression._join(left, right, False)

    @staticmethod
    def _join(left: BooleanExpression, right: BooleanExpression, deciding: bool) -> "LogicExpression":
        if isinstance(left, LogicExpression) and left._deciding is deciding:
            # Only the parser has a reference to `left`, so it may still be changed.
            left.operands.append(right)
            return left
        return LogicExpression([left, right], deciding)

    def evaluate(self, context: EvaluationContext) -> bool | None:
        """Return the deciding value if an operand has it; else NULL if an operand is NULL; else the other value."""
        deciding, unknown = self._deciding, False
        for operand in self.operands:
            value = operand.evaluate(context)
            if value is deciding:
                return deciding
            if value is None:
                unknown = True
        return None if unknown else not deciding

    @property
    def expression_symbol(self) -> str:
        """The operator's text, as in the original."""
        return "||" if self._deciding else "&&"

    def __str__(self) -> str:
        first, *others = map(str, self.operands)
        return "(" * len(others) + first + "".join(f" {self.expression_symbol} {other})" for other in others)


_AS_BOOLEAN: dict[str, Callable[[int], bool]] = {
    ">": lambda answer: answer > 0,
    ">=": lambda answer: answer >= 0,
    "<": lambda answer: answer < 0,
    "<=": lambda answer: answer <= 0,
}


class ComparisonExpression(BooleanExpression):
    """A comparison of two expressions. The text of a property is converted to the type of the other side.

    Java: org.apache.rocketmq.filter.expression.ComparisonExpression (4.9.8)
    """

    __slots__ = ("left", "right", "expression_symbol", "_as_boolean")

    def __init__(self, left: Expression, right: Expression, symbol: str) -> None:
        self.left = left
        self.right = right
        self.expression_symbol = symbol
        self._as_boolean = _AS_BOOLEAN.get(symbol)

    @staticmethod
    def create_between(value: Expression, left: Expression, right: Expression) -> BooleanExpression:
        """Return `value BETWEEN left AND right`; FilterError for two literals in the wrong order."""
        if isinstance(left, ConstantExpression) and isinstance(right, ConstantExpression):
            low, high = left.value, right.value
            if low is None or high is None:
                raise FilterError("Illegal values of between, values can not be null!")
            if compare(high, low) < 0:
                raise FilterError(f"Illegal values of between, left value({value_text(low)}) must less than or equal "
                                  f"to right value({value_text(high)})")
        return LogicExpression.create_and(ComparisonExpression.create_greater_than_equal(value, left),
                                          ComparisonExpression.create_less_than_equal(value, right))

    @staticmethod
    def create_not_between(value: Expression, left: Expression, right: Expression) -> BooleanExpression:
        """Return `value NOT BETWEEN left AND right`. The order of literals is not checked."""
        return LogicExpression.create_or(ComparisonExpression.create_less_than(value, left),
                                         ComparisonExpression.create_greater_than(value, right))

    @staticmethod
    def create_in_filter(left: Expression, elements: list[str], is_not: bool = False) -> BooleanExpression:
        """Return `left IN (elements)`, or NOT IN with `is_not`. FilterError unless `left` is a property."""
        if not isinstance(left, PropertyExpression):
            raise FilterError(f"Expected a property for In expression, got: {left}")
        return UnaryExpression.create_in_expression(left, elements, is_not)

    @staticmethod
    def create_is_null(left: Expression) -> BooleanExpression:
        """Return `left IS NULL`."""
        return _Equal(left, NULL)

    @staticmethod
    def create_is_not_null(left: Expression) -> BooleanExpression:
        """Return `left IS NOT NULL`."""
        return UnaryExpression.create_not(_Equal(left, NULL))

    @staticmethod
    def create_not_equal(left: Expression, right: Expression) -> BooleanExpression:
        """Return `left <> right`."""
        return UnaryExpression.create_not(ComparisonExpression.create_equal(left, right))

    @staticmethod
    def create_equal(left: Expression, right: Expression) -> BooleanExpression:
        """Return `left = right`."""
        check_equal_operand(left)
        check_equal_operand(right)
        _check_equal_operand_compatability(left, right)
        return _Equal(left, right)

    @staticmethod
    def create_greater_than(left: Expression, right: Expression) -> BooleanExpression:
        """Return `left > right`."""
        return _ordered(left, right, ">")

    @staticmethod
    def create_greater_than_equal(left: Expression, right: Expression) -> BooleanExpression:
        """Return `left >= right`."""
        return _ordered(left, right, ">=")

    @staticmethod
    def create_less_than(left: Expression, right: Expression) -> BooleanExpression:
        """Return `left < right`."""
        return _ordered(left, right, "<")

    @staticmethod
    def create_less_than_equal(left: Expression, right: Expression) -> BooleanExpression:
        """Return `left <= right`."""
        return _ordered(left, right, "<=")

    def evaluate(self, context: EvaluationContext) -> bool | None:
        """Return the result; NULL when a side is NULL. Two texts are compared as numbers."""
        left = self.left.evaluate(context)
        if left is None:
            return None
        right = self.right.evaluate(context)
        if right is None:
            return None
        if isinstance(left, str) and isinstance(right, str):
            left, right = self._numbers(left, right)
        return self._as_boolean(compare(left, right))  # type: ignore[misc]  # subclasses without one override evaluate

    @staticmethod
    def _numbers(left: str, right: str) -> tuple[float, float]:
        try:
            return double_value_of(left), double_value_of(right)
        except FilterError as failure:
            raise FilterError("It's illegal to compare string by '>=', '>', '<', '<='. "
                              f"lv={left}, rv={right}") from failure

    def __str__(self) -> str:
        return f"({self.left} {self.expression_symbol} {self.right})"


class _Equal(ComparisonExpression):
    __slots__ = ()

    def __init__(self, left: Expression, right: Expression) -> None:
        super().__init__(left, right, "==")

    def evaluate(self, context: EvaluationContext) -> bool | None:
        left: Value = self.left.evaluate(context)
        right: Value = self.right.evaluate(context)
        if left is None or right is None:
            if left is right:
                return True
            return None if left is None else False
        return same(left, right) or compare(left, right) == 0


def _ordered(left: Expression, right: Expression, symbol: str) -> BooleanExpression:
    check_less_than_operand(left)
    check_less_than_operand(right)
    return ComparisonExpression(left, right, symbol)


def check_less_than_operand(expression: Expression) -> None:
    """Raise FilterError unless an expression has an order: a number, or a value that may convert to one."""
    if isinstance(expression, ConstantExpression):
        if isinstance(expression.value, (int, float)) and not isinstance(expression.value, bool):
            return
        raise FilterError(f"Value '{expression}' cannot be compared.")
    if isinstance(expression, BooleanExpression):
        raise FilterError(f"Value '{expression}' cannot be compared.")


def check_equal_operand(expression: Expression) -> None:
    """Raise FilterError for the literal NULL, which only IS may compare."""
    if isinstance(expression, ConstantExpression) and expression.value is None:
        raise FilterError(f"'{expression}' cannot be compared.")


def _check_equal_operand_compatability(left: Expression, right: Expression) -> None:
    if isinstance(left, ConstantExpression) and isinstance(right, ConstantExpression) \
            and isinstance(left, BooleanExpression) and not isinstance(right, BooleanExpression):
        raise FilterError(f"'{left}' cannot be compared with '{right}'")
