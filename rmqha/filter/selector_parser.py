"""A parser of SQL92 filters, from text to an expression, with the error messages of RocketMQ's parser.

`SelectorParserTokenManager` reads one token at a time, so an error after the last requested token is never found.
`LookAhead` decides, without consuming tokens, where one token is not enough:

    place 0   IS NULL             two tokens decide
    place 1   NOT BETWEEN ...     two tokens
    place 2   NOT IN ...          two tokens
    place 3   + unary             all of it must match

After such a look the original's error texts repeat some of the expected tokens, depending on how far earlier looks
went. `_Call` and `repeated` keep the same records as the generated parser, so that the texts are equal.

`SelectorParser` implements this grammar, from left to right:

    or        := and ( OR and )*
    and       := equality ( AND equality )*
    equality  := comparison ( = comparison | <> comparison | IS [NOT] NULL )*
    comparison:= unary ( > unary | >= unary | < unary | <= unary | [NOT] BETWEEN unary AND unary
                       | [NOT] IN ( string , ... ) )*
    unary     := + unary | - unary | NOT unary | TRUE | FALSE | NULL | number | string | name | ( or )

Error texts list the expected tokens as the generated parser does: each choice of the grammar has the same number as
there, and records the token at which none of its alternatives matched. Text after a complete expression is ignored.

`FilterSpi`, `get`: the filter languages.

Java: org.apache.rocketmq.filter.parser.SelectorParserConstants (4.9.8)
Java: org.apache.rocketmq.filter.FilterFactory (4.9.8)
"""
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType

from rmqha.common import subscriptions
from rmqha.common.lazy_dataclasses import dataclass
from rmqha.common.lazy_tuples import NamedTuple
from rmqha.filter import expressions
from rmqha.filter.expressions import (
    BooleanExpression,
    ComparisonExpression,
    ConstantExpression,
    Expression,
    FilterError,
    LogicExpression,
    MQFilterException,
    PropertyExpression,
    UnaryExpression,
)

_ESCAPES = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", '"': '\\"', "'": "\\'", "\\": "\\\\",
            "\0": ""}


class Token(NamedTuple):
    """A token: its kind, its text, and its beginning (index of the UTF-16 unit).

    Java: org.apache.rocketmq.filter.parser.Token (4.9.8)
    """

    kind: int
    image: str
    begin: int


def add_escapes(text: str) -> str:
    """Return `text` as error texts show it: escaped as in a Java literal."""
    return "".join(_ESCAPES.get(char, char if " " <= char <= "~" else f"\\u{ord(char):04x}") for char in text)


EOF = 0
LINE_COMMENT = 6
BLOCK_COMMENT = 7
NOT = 8
AND = 9
OR = 10
BETWEEN = 11
IN = 12
TRUE = 13
FALSE = 14
NULL = 15
IS = 16
DECIMAL_LITERAL = 17
FLOATING_POINT_LITERAL = 18
EXPONENT = 19
STRING_LITERAL = 20
ID = 21
EQUAL = 22
NOT_EQUAL = 23
GREATER = 24
GREATER_EQUAL = 25
LESS = 26
LESS_EQUAL = 27
LEFT_PARENTHESIS = 28
COMMA = 29
RIGHT_PARENTHESIS = 30
PLUS = 31
MINUS = 32

TOKEN_IMAGE = (
    "<EOF>", '" "', '"\\t"', '"\\n"', '"\\r"', '"\\f"', "<LINE_COMMENT>", "<BLOCK_COMMENT>", '"NOT"', '"AND"', '"OR"',
    '"BETWEEN"', '"IN"', '"TRUE"', '"FALSE"', '"NULL"', '"IS"', "<DECIMAL_LITERAL>", "<FLOATING_POINT_LITERAL>",
    "<EXPONENT>", "<STRING_LITERAL>", "<ID>", '"="', '"<>"', '">"', '">="', '"<"', '"<="', '"("', '","', '")"', '"+"',
    '"-"')


MAX_DEPTH = 50  # nested parentheses, NOTs and signs
# Operands that the lookahead examines after plus signs.
MAX_LOOKS = 5_000
# Comparisons whose left side is a comparison.
MAX_CHAIN = 200


class TokenMgrError(FilterError):
    """An error of the tokenizer, with the place where it stopped.

    Java: org.apache.rocketmq.filter.parser.TokenMgrError (4.9.8)
    """

    java_name = "org.apache.rocketmq.filter.parser.TokenMgrError"

    @staticmethod
    def lexical(line: int, column: int, after: str, char: str | None) -> "TokenMgrError":
        """Return the error for `char` (None at the end of the text), which must not follow `after`, a token's start."""
        encountered = "<EOF> " if char is None else f'"{add_escapes(char)}" ({ord(char)}), '
        return TokenMgrError(f"Lexical error at line {line}, column {column}.  Encountered: {encountered}"
                             f'after : "{add_escapes(after)}"')


class ParseException(FilterError):
    """A syntax error, with the unexpected token, its place, and the tokens that were expected.

    Java: org.apache.rocketmq.filter.parser.ParseException (4.9.8)
    """

    java_name = "org.apache.rocketmq.filter.parser.ParseException"

    @staticmethod
    def unexpected(token: Token, line: int, column: int, expected: Sequence[int]) -> "ParseException":
        """Return the error for `token`, in a place where one of the kinds `expected` was expected."""
        encountered = TOKEN_IMAGE[EOF]
        if token.kind != EOF:
            encountered = f' {TOKEN_IMAGE[token.kind]} "{add_escapes(token.image)} "'
        wanted = "".join(f"{TOKEN_IMAGE[kind]} {'...' if kind != EOF else ''}\n    " for kind in expected)
        one_of = "" if len(expected) == 1 else " one of"
        return ParseException(f'Encountered "{encountered}" at line {line}, column {column}.\n'
                              f"Was expecting{one_of}:\n    {wanted}")


class StackOverflowError(FilterError):
    """Java: java.lang.StackOverflowError"""

    # Differs: the nesting of a filter expression has a fixed limit, which is lower than that of the original's stack
    java_name = "java.lang.StackOverflowError"


_BLANKS = re.compile(r"[ \t\n\r\f]*+")
_LINE_END = re.compile(r"[\n\r]")
_COMMENT_END = re.compile(r"\*/")
_FLOAT = r"[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+"
_TOKEN = (rf"(?P<float>{_FLOAT})|(?P<decimal>0|[1-9][0-9]*[lL]?)|(?P<string>'[^']*+'(?:'[^']*+')*)"
          r"|(?P<word>[a-zA-Z_$][a-zA-Z0-9_$]*)|(?P<sign><>|>=|<=|[=><(),+-])")
_WORDS = {"NOT": NOT, "AND": AND, "OR": OR, "BETWEEN": BETWEEN, "IN": IN,
          "TRUE": TRUE, "FALSE": FALSE, "NULL": NULL, "IS": IS}
_SIGNS = {"=": EQUAL, "<>": NOT_EQUAL, ">": GREATER, ">=": GREATER_EQUAL, "<": LESS,
          "<=": LESS_EQUAL, "(": LEFT_PARENTHESIS, ",": COMMA, ")": RIGHT_PARENTHESIS,
          "+": PLUS, "-": MINUS}
_KINDS = {"float": FLOATING_POINT_LITERAL, "decimal": DECIMAL_LITERAL, "string": STRING_LITERAL}
_TAB = 8


class SelectorParserTokenManager:
    """The tokenizer. Positions count UTF-16 units, lines and columns start at 1.

    Java: org.apache.rocketmq.filter.parser.SelectorParserTokenManager (4.9.8)
    """

    def __init__(self, text: str) -> None:
        self._is_wide = not text.isascii() and any(char > "\uffff" for char in text)
        self._text = to_utf16(text) if self._is_wide else text
        # Compiled late: most brokers never get an SQL filter.
        self._match = re.compile(_TOKEN).match
        self._at = 0
        # No further line end, or end of a comment, in the rest of the text.
        self._no_line_end = self._no_comment_end = False

    def get_next_token(self) -> Token:
        """Return the next token; at the end always EOF. TokenMgrError where no token begins."""
        text = self._text
        begin = self._at = self._skip(self._at)
        if begin == len(text):
            return Token(EOF, "", len(text) - 1)
        match = self._match(text, begin)
        if match is None:
            raise self._error(begin)
        self._at = match.end()
        return Token(_kind(match), match[0], begin)

    def _skip(self, at: int) -> int:
        """Return the end of the blanks and comments that begin at `at`.

        The lack of a comment's end is remembered, so that many unclosed comments do not take quadratic time.
        """
        text = self._text
        while True:
            at = _BLANKS.match(text, at).end()  # type: ignore[union-attr]  # it matches an empty text too
            if text.startswith("--", at) and not self._no_line_end:
                end = _LINE_END.search(text, at)
                self._no_line_end = end is None
            elif text.startswith("/*", at) and not self._no_comment_end:
                end_at = text.find("*/", at + 2)
                self._no_comment_end = end_at < 0
                end = None if end_at < 0 else _COMMENT_END.match(text, end_at)
            else:
                return at
            if end is None:
                return at
            at = end.end()

    def position(self, index: int) -> tuple[int, int]:
        """Return line and column of a character; (0, 0) for -1, the end of an empty text."""
        line, column, previous = min(1, index + 1), 0, ""
        for char in self._text[:index + 1]:
            if previous == "\n" or (previous == "\r" and char != "\n"):
                line, column = line + 1, 0
            column += 1
            if char == "\t":
                column += (_TAB - (column - 1) % _TAB) - 1
            previous = char
        return line, column

    def string_of(self, image: str) -> str:
        """Return the value of a string literal."""
        inner = image[1:-1].replace("''", "'")
        return from_utf16(inner) if self._is_wide else inner

    def _error(self, begin: int) -> TokenMgrError:
        """Return the error for a place where no token begins, as the original's automaton reports it."""
        text, read = self._text, 1
        first = text[begin]
        if first == "'" or text.startswith("/*", begin):
            read = len(text) - begin
            is_cut_off = True
        elif first in "./":
            read = min(2, len(text) - begin)
            is_cut_off = begin + read == len(text)
        else:
            is_cut_off = begin + 1 == len(text)
        last = begin + read - 1
        line, column = self.position(last)
        if not is_cut_off:
            return TokenMgrError.lexical(line, column, text[begin:last] if read > 1 else "", text[last])
        line, column = (line + 1, 0) if text[last] in "\n\r" else (line, column + 1)
        return TokenMgrError.lexical(line, column, text[begin:] if read > 1 else "", None)


def _kind(match: re.Match[str]) -> int:
    group = match.lastgroup
    if group == "word":
        return _WORDS.get(match[0].upper(), ID)
    return _SIGNS[match[0]] if group == "sign" else _KINDS[group]  # type: ignore[index]  # a match has a group


def to_utf16(text: str) -> str:
    """Replace each character beyond the BMP by its two surrogates."""
    data = text.encode("utf-16-be", "surrogatepass")
    return "".join(chr(high << 8 | low) for high, low in zip(data[::2], data[1::2], strict=True))


def from_utf16(text: str) -> str:
    """Reverse `to_utf16`."""
    return text.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "replace")


_NO_LIMIT = (1 << 31) - 1
_LIMITS = (2, 2, 2, _NO_LIMIT)
_MOST_EXPECTED = 100
_LITERAL_KINDS = (STRING_LITERAL, DECIMAL_LITERAL, FLOATING_POINT_LITERAL, TRUE, FALSE,
             NULL)
_ORDER = (GREATER, GREATER_EQUAL, LESS, LESS_EQUAL)

_Scan = Callable[[], bool]


@dataclass
class _Call:
    """A record of one look: the token before it, its limit in tokens, and the last consumed token for which it counts.
    """

    gen: int = 0
    first: int = 0
    limit: int = 0


class _Decided(Exception):
    """Raised when as many tokens as the look needs have matched."""


class LookAhead:
    """The lookahead over the token kinds that `kind_at(index)` returns; indices count consumed tokens.

    Java: org.apache.rocketmq.filter.parser.SelectorParser#jj_scan_token (4.9.8)
    """

    def __init__(self, kind_at: Callable[[int], int]) -> None:
        self._kind_at = kind_at
        self._calls = [[_Call()] for _ in _LIMITS]
        self._scans: tuple[_Scan, ...] = (self._is_null, self._not_between, self._not_in, self._plus)
        self._scan_at = self._last_at = self._left = 0
        self._depth = self._looks = 0
        # While expected tokens are collected: the last consumed token.
        self._rescan_from: int | None = None
        self._expected: list[int] = []
        self._expected_end = 0
        self._entries: list[int] = []

    def is_ahead(self, place: int, token: int) -> bool:
        """Return whether the construct of `place` follows the consumed token `token`."""
        self._begin(token, _LIMITS[place])
        try:
            return self._scans[place]()
        except _Decided:
            return True
        finally:
            self._save(place, token)

    def _begin(self, token: int, limit: int) -> None:
        self._left, self._depth = limit, 0
        self._last_at = self._scan_at = token

    def _save(self, place: int, token: int) -> None:
        calls, limit = self._calls[place], _LIMITS[place]
        call = next((one for one in calls if one.gen <= token), None)
        if call is None:
            call = _Call()
            calls.append(call)
        call.gen, call.first, call.limit = token + limit - self._left, token, limit

    def repeated(self, token: int, expected: list[int]) -> list[int]:
        """Return the `expected` kinds that the error text repeats, after the consumed token `token`."""
        self._rescan_from = token
        self._expected, self._expected_end, self._entries = [0] * _MOST_EXPECTED, 0, list(expected)
        for place, calls in enumerate(self._calls):
            try:
                for call in calls:
                    if call.gen > token:
                        self._begin(call.first, call.limit)
                        self._scans[place]()
            except _Decided:
                continue
        self._add_error_token(0, 0)
        self._rescan_from = None
        return self._entries[len(expected):]

    def _add_error_token(self, kind: int, position: int) -> None:
        if position >= _MOST_EXPECTED:
            return
        if position == self._expected_end + 1:
            self._expected[self._expected_end] = kind
            self._expected_end += 1
        elif self._expected_end:
            # The original compares sequences of several tokens with single ones only, so it never names them.
            if self._expected_end == 1 and self._expected[0] in self._entries:
                self._entries.append(self._expected[0])
            if position:
                self._expected[position - 1] = kind
                self._expected_end = position

    def _token(self, kind: int) -> bool:
        is_new = self._scan_at == self._last_at
        self._scan_at += 1
        if is_new:
            self._left -= 1
            self._last_at = self._scan_at
        found = self._kind_at(self._scan_at)
        if self._rescan_from is not None and self._scan_at >= self._rescan_from:
            self._add_error_token(kind, self._scan_at - self._rescan_from)
        if found != kind:
            return False
        if self._left == 0 and self._scan_at == self._last_at:
            raise _Decided
        return True

    def _first_of(self, *scans: _Scan) -> bool:
        at = self._scan_at
        for scan in scans:
            self._scan_at = at
            if scan():
                return True
        return False

    def _many(self, scan: _Scan) -> bool:
        at = self._scan_at
        while scan():
            at = self._scan_at
        self._scan_at = at
        return True

    def _is_null(self) -> bool:
        return self._token(IS) and self._token(NULL)

    def _is_not_null(self) -> bool:
        return self._token(IS) and self._token(NOT) and self._token(NULL)

    def _between(self) -> bool:
        return (self._token(BETWEEN) and self._unary() and self._token(AND) and self._unary())

    def _not_between(self) -> bool:
        return self._token(NOT) and self._between()

    def _in(self) -> bool:
        return (self._token(IN) and self._token(LEFT_PARENTHESIS) and self._token(STRING_LITERAL)
                and self._many(lambda: self._token(COMMA) and self._token(STRING_LITERAL))
                and self._token(RIGHT_PARENTHESIS))

    def _not_in(self) -> bool:
        return self._token(NOT) and self._in()

    def _plus(self) -> bool:
        return self._token(PLUS) and self._unary()

    def _unary(self) -> bool:
        self._depth += 1
        self._looks += 1
        if self._depth > MAX_DEPTH or self._looks > MAX_LOOKS:
            raise StackOverflowError
        fits = self._first_of(
            self._plus, lambda: self._token(MINUS) and self._unary(),
            lambda: self._token(NOT) and self._unary(),
            *(lambda kind=kind: self._token(kind) for kind in (*_LITERAL_KINDS, ID)), self._parenthesized)
        self._depth -= 1
        return fits

    def _parenthesized(self) -> bool:
        return self._token(LEFT_PARENTHESIS) and self._or() and self._token(RIGHT_PARENTHESIS)

    def _or(self) -> bool:
        return self._and() and self._many(lambda: self._token(OR) and self._and())

    def _and(self) -> bool:
        return self._equality() and self._many(lambda: self._token(AND) and self._equality())

    def _equality(self) -> bool:
        return self._comparison() and self._many(lambda: self._first_of(
            lambda: self._token(EQUAL) and self._comparison(),
            lambda: self._token(NOT_EQUAL) and self._comparison(), self._is_null, self._is_not_null))

    def _comparison(self) -> bool:
        return self._unary() and self._many(lambda: self._first_of(
            *(lambda kind=kind: self._token(kind) and self._unary() for kind in _ORDER),
            self._between, self._not_between, self._in, self._not_in))


_LITERALS = {TRUE: expressions.TRUE, FALSE: expressions.FALSE,
             NULL: expressions.NULL}
_LITERAL = (TRUE, FALSE, NULL, DECIMAL_LITERAL, FLOATING_POINT_LITERAL,
            STRING_LITERAL)
# The tokens that can follow at each choice of the grammar, by the choice's number in the original.
_CHOICES: tuple[tuple[int, ...], ...] = (
    (OR,),
    (AND,),
    (IS, EQUAL, NOT_EQUAL),
    (EQUAL, NOT_EQUAL),
    (IS,),
    (NOT, BETWEEN, IN, *_ORDER),
    (COMMA,),
    (COMMA,),
    (BETWEEN, *_ORDER),
    (IN,),
    (NOT, *_LITERAL, ID, LEFT_PARENTHESIS, MINUS),
    (*_LITERAL, ID, LEFT_PARENTHESIS),
    _LITERAL,
)
# Differs: an expression has at most MAX_LENGTH characters; the original parses any that fits in a frame.
MAX_LENGTH = 1 << 16

# Longest text in characters whose condition is cached.
_KEPT_LENGTH = 1 << 12
# The kind to consume when no choice matches: it fails, with the expected tokens of all choices.
_ANY = -1


def parse(sql: str) -> BooleanExpression:
    """Parse a text to a condition. MQFilterException, with the original's text, when it is not valid."""
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
        # All tokens read so far, after a dummy token before the text.
        self._tokens = [Token(EOF, "", -1)]
        # Index of the last consumed one.
        self._token = 0
        # For each choice, the last consumed token when none of its alternatives matched.
        self._failed_at = [-1] * len(_CHOICES)
        self._look_ahead = LookAhead(self._kind_at)
        self._depth = 0

    def jms_selector(self) -> BooleanExpression:
        """Parse the whole condition. FilterError."""
        return _as_boolean_expression(self._or_expression())

    def _or_expression(self) -> Expression:
        left = self._and_expression()
        while self._next_is(0):
            self._consume(OR)
            right = self._and_expression()
            left = LogicExpression.create_or(_as_boolean_expression(left), _as_boolean_expression(right))
        return left

    def _and_expression(self) -> Expression:
        left = self._equality_expression()
        while self._next_is(1):
            self._consume(AND)
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
                create = (ComparisonExpression.create_equal if kind == EQUAL
                          else ComparisonExpression.create_not_equal)
                left = create(left, right)
            elif self._ahead(0):
                self._consume(IS)
                self._consume(NULL)
                left = ComparisonExpression.create_is_null(left)
            else:
                self._consume(IS)
                self._consume(NOT)
                self._consume(NULL)
                left = ComparisonExpression.create_is_not_null(left)
        return left

    def _comparison_expression(self) -> Expression:
        left = self._unary_expr()
        while self._next_is(5):
            if self._next_is(8):
                left = self._ordered_or_between(left)
            elif self._ahead(1):
                self._consume(NOT)
                left = self._between(left, is_not=True)
            elif self._next_is(9):
                left = self._in(left, is_not=False)
            elif self._ahead(2):
                self._consume(NOT)
                left = self._in(left, is_not=True)
            else:
                self._consume(_ANY)
        return left

    def _ordered_or_between(self, left: Expression) -> Expression:
        kind = self._next_kind()
        if kind == BETWEEN:
            return self._between(left, is_not=False)
        self._consume(kind)
        right = self._unary_expr()
        if kind == GREATER:
            return ComparisonExpression.create_greater_than(left, right)
        if kind == GREATER_EQUAL:
            return ComparisonExpression.create_greater_than_equal(left, right)
        if kind == LESS:
            return ComparisonExpression.create_less_than(left, right)
        return ComparisonExpression.create_less_than_equal(left, right)

    def _between(self, left: Expression, is_not: bool) -> Expression:
        self._consume(BETWEEN)
        low = self._unary_expr()
        self._consume(AND)
        high = self._unary_expr()
        if is_not:
            return ComparisonExpression.create_not_between(left, low, high)
        return ComparisonExpression.create_between(left, low, high)

    def _in(self, left: Expression, is_not: bool) -> Expression:
        self._consume(IN)
        self._consume(LEFT_PARENTHESIS)
        elements = [self._string_litteral()]
        while self._next_is(7 if is_not else 6):
            self._consume(COMMA)
            elements.append(self._string_litteral())
        self._consume(RIGHT_PARENTHESIS)
        return ComparisonExpression.create_in_filter(left, elements, is_not)

    def _unary_expr(self) -> Expression:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise StackOverflowError
        try:
            if self._ahead(3):
                self._consume(PLUS)
                return self._unary_expr()
            if not self._next_is(10):
                self._consume(_ANY)
            kind = self._next_kind()
            if kind == MINUS:
                self._consume(kind)
                return UnaryExpression.create_negate(self._unary_expr())
            if kind == NOT:
                self._consume(kind)
                return UnaryExpression.create_not(_as_boolean_expression(self._unary_expr()))
            return self._primary_expr(kind)
        finally:
            self._depth -= 1

    def _primary_expr(self, kind: int) -> Expression:
        if kind == LEFT_PARENTHESIS:
            self._consume(kind)
            left = self._or_expression()
            self._consume(RIGHT_PARENTHESIS)
            return left
        if kind == STRING_LITERAL:
            return ConstantExpression(self._string_litteral())
        image = self._consume(kind).image
        if kind == ID:
            return PropertyExpression(image)
        if kind == DECIMAL_LITERAL:
            return ConstantExpression.create_from_decimal(image)
        return ConstantExpression.create_float(image) if kind == FLOATING_POINT_LITERAL else _LITERALS[kind]

    def _string_litteral(self) -> str:
        return self._source.string_of(self._consume(STRING_LITERAL).image)

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


class FilterSpi:
    """Java: org.apache.rocketmq.filter.FilterSpi (4.9.8)"""

    def compile(self, expr: str) -> Expression:
        """Compile a text to an expression. MQFilterException."""
        raise NotImplementedError

    def of_type(self) -> str:
        """Return the expression type of this language."""
        raise NotImplementedError


class SqlFilter(FilterSpi):
    """Java: org.apache.rocketmq.filter.SqlFilter (4.9.8)"""

    def compile(self, expr: str) -> Expression:
        """Compile a text to a condition. MQFilterException."""
        return parse(expr)

    def of_type(self) -> str:
        """Return SQL92."""
        return subscriptions.SQL92


# Differs: the languages of filter expressions are fixed; in the original, programs that embed it can register more
FILTER_SPI_HOLDER: Mapping[str | None, FilterSpi] = MappingProxyType({spi.of_type(): spi for spi in (SqlFilter(),)})


def get(expression_type: str | None) -> FilterSpi | None:
    """Return the language of an expression type; None for an unknown type."""
    return FILTER_SPI_HOLDER.get(expression_type)
