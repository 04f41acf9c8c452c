"""A piece of an expression's text."""
from typing import NamedTuple

_ESCAPES = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", '"': '\\"', "'": "\\'", "\\": "\\\\",
            "\0": ""}


class Token(NamedTuple):
    """Its kind, its text, and where it begins (index of the UTF-16 unit).

    Java: org.apache.rocketmq.filter.parser.Token (4.9.8)
    """

    kind: int
    image: str
    begin: int


def add_escapes(text: str) -> str:
    """`text` as error texts show it: as in a Java literal."""
    return "".join(_ESCAPES.get(char, char if " " <= char <= "~" else f"\\u{ord(char):04x}") for char in text)
