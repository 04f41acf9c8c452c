"""What is wrong with an expression's text: a character, a token, or its depth."""
from collections.abc import Sequence

from rmqha.filter.expression.mq_filter_exception import FilterError
from rmqha.filter.parser.selector_parser_constants import EOF, TOKEN_IMAGE
from rmqha.filter.parser.token import Token, add_escapes

MAX_DEPTH = 50  # parentheses, NOTs and signs within each other
MAX_LOOKS = 5_000  # operands that are looked at ahead of their turn, behind plus signs
MAX_CHAIN = 200  # comparisons whose left side is a comparison


class TokenMgrError(FilterError):
    """Says where reading stopped.

    Java: org.apache.rocketmq.filter.parser.TokenMgrError (4.9.8)
    """

    java_name = "org.apache.rocketmq.filter.parser.TokenMgrError"

    @staticmethod
    def lexical(line: int, column: int, after: str, char: str | None) -> "TokenMgrError":
        """`char` (None at the end of the text) does not go on with `after`, which began a token."""
        encountered = "<EOF> " if char is None else f'"{add_escapes(char)}" ({ord(char)}), '
        return TokenMgrError(f"Lexical error at line {line}, column {column}.  Encountered: {encountered}"
                             f'after : "{add_escapes(after)}"')


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


class StackOverflowError(FilterError):
    """Java: java.lang.StackOverflowError"""

    # Differs: nesting has a fixed limit, below what the original's stack takes
    java_name = "java.lang.StackOverflowError"
