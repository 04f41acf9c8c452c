"""A text that the grammar does not know."""
from collections.abc import Sequence

from rmqha.filter.expression.mq_filter_exception import FilterError
from rmqha.filter.parser.selector_parser_constants import EOF, TOKEN_IMAGE
from rmqha.filter.parser.token import Token, add_escapes


class ParseException(FilterError):
    """Says which token is wrong, where, and which ones would do.

    Java: org.apache.rocketmq.filter.parser.ParseException (4.9.8)
    """

    java_name = "org.apache.rocketmq.filter.parser.ParseException"

    @staticmethod
    def unexpected(token: Token, line: int, column: int, expected: Sequence[int]) -> "ParseException":
        """`token` stands where one of the kinds `expected` should."""
        encountered = TOKEN_IMAGE[EOF]
        if token.kind != EOF:
            encountered = f' {TOKEN_IMAGE[token.kind]} "{add_escapes(token.image)} "'
        wanted = "".join(f"{TOKEN_IMAGE[kind]} {'...' if kind != EOF else ''}\n    " for kind in expected)
        one_of = "" if len(expected) == 1 else " one of"
        return ParseException(f'Encountered "{encountered}" at line {line}, column {column}.\n'
                              f"Was expecting{one_of}:\n    {wanted}")
