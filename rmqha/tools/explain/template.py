"""Patterns of texts: literal pieces with named gaps, matched in time that is linear in the line.

`{file} is followed by {other} instead of {due}` matches any line that contains these pieces in this order. There are no
regular expressions, so no line, however long or hostile, makes a match slow: each piece is searched once, from the end
of the previous one. The leftmost place of each piece is always right, because a gap may hold any text.
"""
import re
from string import Formatter

# A value that is longer is cut: it is shown to people.
MAX_VALUE = 200
WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]+", re.ASCII)


def normal(text: str) -> str:
    """Return a text with single blanks between its words, as patterns are written."""
    return " ".join(text.split())


class Template:
    """A pattern. `names` has a name for each gap; `pieces` the literals before, between and after the gaps."""

    __slots__ = ("names", "pieces", "score", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        pieces, names = [""], []
        for literal, name, spec, _conversion in Formatter().parse(normal(text)):
            pieces[-1] += literal
            if name is not None:
                if spec or not name.isidentifier():
                    raise ValueError(f"{text!r}: a gap is written as {{name}}")
                names.append(name)
                pieces.append("")
        if not any(pieces) or not all(pieces[1:-1]):
            raise ValueError(f"{text!r}: there must be text, also between two gaps")
        self.names, self.pieces = tuple(names), tuple(pieces)
        # The longer the matching text, the more specific the match.
        self.score = sum(map(len, pieces))

    def match(self, line: str) -> dict[str, str] | None:
        """Return the values of the gaps, or None. `line` is `normal`.

        A gap at the beginning gets the word before the first piece, and one at the end the rest of the line.
        """
        values: dict[str, str] = {}
        end = 0
        for number, piece in enumerate(self.pieces):
            at = line.find(piece, end) if piece or number else 0
            if at < 0:
                return None
            if number == 1 and not self.pieces[0]:
                values[self.names[0]] = _last_word(line[:at])
            elif number:
                last = number == len(self.pieces) - 1 and not piece
                values[self.names[number - 1]] = _cut(line[end:] if last else line[end:at])
            end = at + len(piece)
        return values

    def words(self) -> list[str]:
        """Return the words that each matching line contains as words: those that touch no gap."""
        found: list[str] = []
        for number, piece in enumerate(self.pieces):
            for match in WORD.finditer(piece):
                touches_left = match.start() == 0 and number > 0
                touches_right = match.end() == len(piece) and number < len(self.pieces) - 1
                if not touches_left and not touches_right:
                    found.append(match[0])
        return found

    def example(self, value: str = "x1") -> str:
        """Return a line that matches."""
        return self.pieces[0] + "".join(value + piece for piece in self.pieces[1:])


def _last_word(text: str) -> str:
    return _cut(text[-MAX_VALUE:].rstrip().rpartition(" ")[2])


def _cut(text: str) -> str:
    text = text if len(text) <= MAX_VALUE else f"{text[:MAX_VALUE]}..."
    return text.strip()
