"""Where one token does not decide: looking ahead, without consuming.

    place 0   IS NULL             two tokens decide
    place 1   NOT BETWEEN ...     two tokens
    place 2   NOT IN ...          two tokens
    place 3   + unary             all of it must fit

The original's error texts repeat some of the expected tokens after such a look, depending on how far earlier looks
went; the book-keeping for that (`_Call`, `repeated`) is the generated parser's, so that the texts come out the same.
"""
from collections.abc import Callable
from dataclasses import dataclass

from rmqha.filter.parser import selector_parser_constants as kinds
from rmqha.filter.parser.parse_errors import MAX_DEPTH, MAX_LOOKS, StackOverflowError

_NO_LIMIT = (1 << 31) - 1
_LIMITS = (2, 2, 2, _NO_LIMIT)
_MOST_EXPECTED = 100
_LITERALS = (kinds.STRING_LITERAL, kinds.DECIMAL_LITERAL, kinds.FLOATING_POINT_LITERAL, kinds.TRUE, kinds.FALSE,
             kinds.NULL)
_ORDER = (kinds.GREATER, kinds.GREATER_EQUAL, kinds.LESS, kinds.LESS_EQUAL)

_Scan = Callable[[], bool]


@dataclass
class _Call:
    """One look: where it began, with which limit, and up to which consumed token it counts."""

    gen: int = 0
    first: int = 0
    limit: int = 0


class _Decided(Exception):
    """As many tokens as decide did fit."""


class LookAhead:
    """Looks ahead over the token kinds that `kind_at(index)` gives; indices count consumed tokens.

    Java: org.apache.rocketmq.filter.parser.SelectorParser#jj_scan_token (4.9.8)
    """

    def __init__(self, kind_at: Callable[[int], int]) -> None:
        self._kind_at = kind_at
        self._calls = [[_Call()] for _ in _LIMITS]
        self._scans: tuple[_Scan, ...] = (self._is_null, self._not_between, self._not_in, self._plus)
        self._scan_at = self._last_at = self._left = 0
        self._depth = self._looks = 0
        self._rescan_from: int | None = None  # the last consumed token while expected tokens are collected
        self._expected: list[int] = []
        self._expected_end = 0
        self._entries: list[int] = []

    def is_ahead(self, place: int, token: int) -> bool:
        """Whether what belongs to `place` comes after consumed token `token`."""
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
        """Which of the `expected` kinds the error text names again, after consumed token `token`."""
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
            # sequences of several tokens are compared with single ones only, and so never named
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
        return self._token(kinds.IS) and self._token(kinds.NULL)

    def _is_not_null(self) -> bool:
        return self._token(kinds.IS) and self._token(kinds.NOT) and self._token(kinds.NULL)

    def _between(self) -> bool:
        return (self._token(kinds.BETWEEN) and self._unary() and self._token(kinds.AND) and self._unary())

    def _not_between(self) -> bool:
        return self._token(kinds.NOT) and self._between()

    def _in(self) -> bool:
        return (self._token(kinds.IN) and self._token(kinds.LEFT_PARENTHESIS) and self._token(kinds.STRING_LITERAL)
                and self._many(lambda: self._token(kinds.COMMA) and self._token(kinds.STRING_LITERAL))
                and self._token(kinds.RIGHT_PARENTHESIS))

    def _not_in(self) -> bool:
        return self._token(kinds.NOT) and self._in()

    def _plus(self) -> bool:
        return self._token(kinds.PLUS) and self._unary()

    def _unary(self) -> bool:
        self._depth += 1
        self._looks += 1
        if self._depth > MAX_DEPTH or self._looks > MAX_LOOKS:
            raise StackOverflowError
        fits = self._first_of(
            self._plus, lambda: self._token(kinds.MINUS) and self._unary(),
            lambda: self._token(kinds.NOT) and self._unary(),
            *(lambda kind=kind: self._token(kind) for kind in (*_LITERALS, kinds.ID)), self._parenthesized)
        self._depth -= 1
        return fits

    def _parenthesized(self) -> bool:
        return self._token(kinds.LEFT_PARENTHESIS) and self._or() and self._token(kinds.RIGHT_PARENTHESIS)

    def _or(self) -> bool:
        return self._and() and self._many(lambda: self._token(kinds.OR) and self._and())

    def _and(self) -> bool:
        return self._equality() and self._many(lambda: self._token(kinds.AND) and self._equality())

    def _equality(self) -> bool:
        return self._comparison() and self._many(lambda: self._first_of(
            lambda: self._token(kinds.EQUAL) and self._comparison(),
            lambda: self._token(kinds.NOT_EQUAL) and self._comparison(), self._is_null, self._is_not_null))

    def _comparison(self) -> bool:
        return self._unary() and self._many(lambda: self._first_of(
            *(lambda kind=kind: self._token(kind) and self._unary() for kind in _ORDER),
            self._between, self._not_between, self._in, self._not_in))
