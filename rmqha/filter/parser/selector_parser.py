"""The grammar of expressions, read from left to right.

    or        := and ( OR and )*
    and       := equality ( AND equality )*
    equality  := comparison ( = comparison | <> comparison | IS [NOT] NULL )*
    comparison:= unary ( > unary | >= unary | < unary | <= unary | [NOT] BETWEEN unary AND unary
                       | [NOT] IN ( string , ... ) )*
    unary     := + unary | - unary | NOT unary | TRUE | FALSE | NULL | number | string | name | ( or )

Error texts name what was expected as the original's generated parser does; for that, each place where it chooses is
numbered as there, and remembers at which token it found nothing to its liking. Text behind an expression is ignored.
"""
from functools import lru_cache

from rmqha.filter.expression import constant_expression
from rmqha.filter.expression.comparison_expression import ComparisonExpression
from rmqha.filter.expression.constant_expression import ConstantExpression
from rmqha.filter.expression.expression import BooleanExpression, Expression, PropertyExpression
from rmqha.filter.expression.logic_expression import LogicExpression
from rmqha.filter.expression.mq_filter_exception import FilterError, MQFilterException
from rmqha.filter.expression.unary_expression import UnaryExpression
from rmqha.filter.parser import selector_parser_constants as kinds
from rmqha.filter.parser.look_ahead import LookAhead
from rmqha.filter.parser.parse_errors import MAX_CHAIN, MAX_DEPTH, ParseException, StackOverflowError
from rmqha.filter.parser.selector_parser_token_manager import SelectorParserTokenManager
from rmqha.filter.parser.token import Token

_LITERALS = {kinds.TRUE: constant_expression.TRUE, kinds.FALSE: constant_expression.FALSE,
             kinds.NULL: constant_expression.NULL}
_LITERAL = (kinds.TRUE, kinds.FALSE, kinds.NULL, kinds.DECIMAL_LITERAL, kinds.FLOATING_POINT_LITERAL,
            kinds.STRING_LITERAL)
_ORDER = (kinds.GREATER, kinds.GREATER_EQUAL, kinds.LESS, kinds.LESS_EQUAL)
# What each choice of the grammar can go on with, by the number that it has in the original.
_CHOICES: tuple[tuple[int, ...], ...] = (
    (kinds.OR,),
    (kinds.AND,),
    (kinds.IS, kinds.EQUAL, kinds.NOT_EQUAL),
    (kinds.EQUAL, kinds.NOT_EQUAL),
    (kinds.IS,),
    (kinds.NOT, kinds.BETWEEN, kinds.IN, *_ORDER),
    (kinds.COMMA,),
    (kinds.COMMA,),
    (kinds.BETWEEN, *_ORDER),
    (kinds.IN,),
    (kinds.NOT, *_LITERAL, kinds.ID, kinds.LEFT_PARENTHESIS, kinds.MINUS),
    (*_LITERAL, kinds.ID, kinds.LEFT_PARENTHESIS),
    _LITERAL,
)
# Differs: the original parses whatever fits in a frame
MAX_LENGTH = 1 << 16  # characters
_KEPT_LENGTH = 1 << 12  # characters of a text whose condition is kept
_ANY = -1  # what is asked for when no choice fits


def parse(sql: str) -> BooleanExpression:
    """The condition that a text means. MQFilterException, worded as the original's, when it means none."""
    return _kept(sql) if len(sql) <= _KEPT_LENGTH else _parsed(sql)


def _parsed(sql: str) -> BooleanExpression:
    if len(sql) > MAX_LENGTH:
        raise MQFilterException("Invalid MessageSelector. ",
                                f"an expression of {len(sql)} characters, the limit is {MAX_LENGTH}")
    try:
        return SelectorParser(sql).jms_selector()
    except FilterError as failure:
        raise MQFilterException("Invalid MessageSelector. ", failure.describe()) from failure


_kept = lru_cache(maxsize=100)(_parsed)


class SelectorParser:
    """Parses one text, once.

    Java: org.apache.rocketmq.filter.parser.SelectorParser (4.9.8)
    """

    def __init__(self, sql: str) -> None:
        self._source = SelectorParserTokenManager(sql)
        self._tokens = [Token(kinds.EOF, "", -1)]  # as far as anybody looked; the first stands before the text
        self._token = 0  # the last one consumed
        self._failed_at = [-1] * len(_CHOICES)  # by choice: tokens consumed when it last found nothing
        self._look_ahead = LookAhead(self._kind_at)
        self._depth = 0

    def jms_selector(self) -> BooleanExpression:
        """The whole condition. FilterError."""
        return _as_boolean_expression(self._or_expression())

    def _or_expression(self) -> Expression:
        left = self._and_expression()
        while self._next_is(0):
            self._consume(kinds.OR)
            right = self._and_expression()
            left = LogicExpression.create_or(_as_boolean_expression(left), _as_boolean_expression(right))
        return left

    def _and_expression(self) -> Expression:
        left = self._equality_expression()
        while self._next_is(1):
            self._consume(kinds.AND)
            right = self._equality_expression()
            left = LogicExpression.create_and(_as_boolean_expression(left), _as_boolean_expression(right))
        return left

    def _equality_expression(self) -> Expression:
        left = self._comparison_expression()
        chain = 0
        while self._next_is(2):
            chain += 1
            if chain > MAX_CHAIN:
                raise StackOverflowError
            if self._next_is(3):
                kind = self._consume(self._next_kind()).kind
                right = self._comparison_expression()
                create = (ComparisonExpression.create_equal if kind == kinds.EQUAL
                          else ComparisonExpression.create_not_equal)
                left = create(left, right)
            elif self._ahead(0):
                self._consume(kinds.IS)
                self._consume(kinds.NULL)
                left = ComparisonExpression.create_is_null(left)
            else:
                self._consume(kinds.IS)
                self._consume(kinds.NOT)
                self._consume(kinds.NULL)
                left = ComparisonExpression.create_is_not_null(left)
        return left

    def _comparison_expression(self) -> Expression:
        left = self._unary_expr()
        while self._next_is(5):
            if self._next_is(8):
                left = self._ordered_or_between(left)
            elif self._ahead(1):
                self._consume(kinds.NOT)
                left = self._between(left, is_not=True)
            elif self._next_is(9):
                left = self._in(left, is_not=False)
            elif self._ahead(2):
                self._consume(kinds.NOT)
                left = self._in(left, is_not=True)
            else:
                self._consume(_ANY)
        return left

    def _ordered_or_between(self, left: Expression) -> Expression:
        kind = self._next_kind()
        if kind == kinds.BETWEEN:
            return self._between(left, is_not=False)
        self._consume(kind)
        right = self._unary_expr()
        if kind == kinds.GREATER:
            return ComparisonExpression.create_greater_than(left, right)
        if kind == kinds.GREATER_EQUAL:
            return ComparisonExpression.create_greater_than_equal(left, right)
        if kind == kinds.LESS:
            return ComparisonExpression.create_less_than(left, right)
        return ComparisonExpression.create_less_than_equal(left, right)

    def _between(self, left: Expression, is_not: bool) -> Expression:
        self._consume(kinds.BETWEEN)
        low = self._unary_expr()
        self._consume(kinds.AND)
        high = self._unary_expr()
        if is_not:
            return ComparisonExpression.create_not_between(left, low, high)
        return ComparisonExpression.create_between(left, low, high)

    def _in(self, left: Expression, is_not: bool) -> Expression:
        self._consume(kinds.IN)
        self._consume(kinds.LEFT_PARENTHESIS)
        elements = [self._string_litteral()]
        while self._next_is(7 if is_not else 6):
            self._consume(kinds.COMMA)
            elements.append(self._string_litteral())
        self._consume(kinds.RIGHT_PARENTHESIS)
        return ComparisonExpression.create_in_filter(left, elements, is_not)

    def _unary_expr(self) -> Expression:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise StackOverflowError
        try:
            if self._ahead(3):
                self._consume(kinds.PLUS)
                return self._unary_expr()
            if not self._next_is(10):
                self._consume(_ANY)
            kind = self._next_kind()
            if kind == kinds.MINUS:
                self._consume(kind)
                return UnaryExpression.create_negate(self._unary_expr())
            if kind == kinds.NOT:
                self._consume(kind)
                return UnaryExpression.create_not(_as_boolean_expression(self._unary_expr()))
            return self._primary_expr(kind)
        finally:
            self._depth -= 1

    def _primary_expr(self, kind: int) -> Expression:
        if kind == kinds.LEFT_PARENTHESIS:
            self._consume(kind)
            left = self._or_expression()
            self._consume(kinds.RIGHT_PARENTHESIS)
            return left
        if kind == kinds.STRING_LITERAL:
            return ConstantExpression(self._string_litteral())
        image = self._consume(kind).image
        if kind == kinds.ID:
            return PropertyExpression(image)
        if kind == kinds.DECIMAL_LITERAL:
            return ConstantExpression.create_from_decimal(image)
        return ConstantExpression.create_float(image) if kind == kinds.FLOATING_POINT_LITERAL else _LITERALS[kind]

    def _string_litteral(self) -> str:
        return self._source.string_of(self._consume(kinds.STRING_LITERAL).image)

    def _kind_at(self, index: int) -> int:
        while len(self._tokens) <= index:
            self._tokens.append(self._source.get_next_token())
        return self._tokens[index].kind

    def _next_kind(self) -> int:
        return self._kind_at(self._token + 1)

    def _next_is(self, choice: int) -> bool:
        if self._next_kind() in _CHOICES[choice]:
            return True
        self._failed_at[choice] = self._token
        return False

    def _ahead(self, place: int) -> bool:
        return self._look_ahead.is_ahead(place, self._token)

    def _consume(self, kind: int) -> Token:
        if self._next_kind() != kind:
            raise self._generate_parse_exception(kind)
        self._token += 1
        return self._tokens[self._token]

    def _generate_parse_exception(self, kind: int) -> ParseException:
        wanted = {kind} if kind != _ANY else set()
        for choice, failed_at in enumerate(self._failed_at):
            if failed_at == self._token:
                wanted.update(_CHOICES[choice])
        expected = sorted(wanted)
        expected += self._look_ahead.repeated(self._token, expected)
        token = self._tokens[self._token + 1]
        return ParseException.unexpected(token, *self._source.position(token.begin), expected)


def _as_boolean_expression(value: Expression) -> BooleanExpression:
    if isinstance(value, BooleanExpression):
        return value
    if isinstance(value, PropertyExpression):
        return UnaryExpression.create_boolean_cast(value)
    raise ParseException(f"Expression will not result in a boolean value: {value}")
