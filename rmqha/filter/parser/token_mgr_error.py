"""A character that begins no token."""
from rmqha.filter.expression.mq_filter_exception import FilterError
from rmqha.filter.parser.token import add_escapes


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
