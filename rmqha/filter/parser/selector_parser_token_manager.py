"""From text to tokens, one at a time: an error behind the last token asked for is never found."""
import re

from rmqha.filter.parser import selector_parser_constants as kinds
from rmqha.filter.parser.parse_errors import TokenMgrError
from rmqha.filter.parser.token import Token

_BLANKS = re.compile(r"[ \t\n\r\f]*+")
_LINE_END = re.compile(r"[\n\r]")
_COMMENT_END = re.compile(r"\*/")
_FLOAT = r"[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+"
_TOKEN = re.compile(rf"(?P<float>{_FLOAT})|(?P<decimal>0|[1-9][0-9]*[lL]?)|(?P<string>'[^']*+'(?:'[^']*+')*)"
                    r"|(?P<word>[a-zA-Z_$][a-zA-Z0-9_$]*)|(?P<sign><>|>=|<=|[=><(),+-])")
_WORDS = {"NOT": kinds.NOT, "AND": kinds.AND, "OR": kinds.OR, "BETWEEN": kinds.BETWEEN, "IN": kinds.IN,
          "TRUE": kinds.TRUE, "FALSE": kinds.FALSE, "NULL": kinds.NULL, "IS": kinds.IS}
_SIGNS = {"=": kinds.EQUAL, "<>": kinds.NOT_EQUAL, ">": kinds.GREATER, ">=": kinds.GREATER_EQUAL, "<": kinds.LESS,
          "<=": kinds.LESS_EQUAL, "(": kinds.LEFT_PARENTHESIS, ",": kinds.COMMA, ")": kinds.RIGHT_PARENTHESIS,
          "+": kinds.PLUS, "-": kinds.MINUS}
_KINDS = {"float": kinds.FLOATING_POINT_LITERAL, "decimal": kinds.DECIMAL_LITERAL, "string": kinds.STRING_LITERAL}
_TAB = 8


class SelectorParserTokenManager:
    """Reads tokens; positions count UTF-16 units, lines and columns from 1.

    Java: org.apache.rocketmq.filter.parser.SelectorParserTokenManager (4.9.8)
    """

    def __init__(self, text: str) -> None:
        self._is_wide = not text.isascii() and any(char > "\uffff" for char in text)
        self._text = to_utf16(text) if self._is_wide else text
        self._at = 0
        self._no_line_end = self._no_comment_end = False  # behind where one was looked for

    def get_next_token(self) -> Token:
        """The next token; EOF again and again at the end. TokenMgrError where none begins."""
        text = self._text
        begin = self._at = self._skip(self._at)
        if begin == len(text):
            return Token(kinds.EOF, "", len(text) - 1)
        match = _TOKEN.match(text, begin)
        if match is None:
            raise self._error(begin)
        self._at = match.end()
        return Token(_kind(match), match[0], begin)

    def _skip(self, at: int) -> int:
        """Where blanks and comments end. That a comment has no end is found out once, not for each that begins."""
        text = self._text
        while True:
            at = _BLANKS.match(text, at).end()  # type: ignore[union-attr]  # no blanks match, too
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
        """Line and column of a character; (0, 0) for -1, the end of an empty text."""
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
        """The text that a string literal means."""
        inner = image[1:-1].replace("''", "'")
        return from_utf16(inner) if self._is_wide else inner

    def _error(self, begin: int) -> TokenMgrError:
        """Why no token begins at `begin`, as the original's automaton meets it."""
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
        return _WORDS.get(match[0].upper(), kinds.ID)
    return _SIGNS[match[0]] if group == "sign" else _KINDS[group]  # type: ignore[index]  # a match has a group


def to_utf16(text: str) -> str:
    """Each character beyond the BMP as its two surrogates."""
    data = text.encode("utf-16-be", "surrogatepass")
    return "".join(chr(high << 8 | low) for high, low in zip(data[::2], data[1::2], strict=True))


def from_utf16(text: str) -> str:
    """The reverse."""
    return text.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "replace")
