"""The slow way through a JSON text: fastjson's dialect, one token at a time, without recursion.

Only texts that the standard library refuses come here: those with unquoted or object keys, and broken ones.
"""
import re
from typing import Any

MAX_DEPTH = 512
# Integers hash to themselves: whoever chooses many can choose those that a dict or a set looks for in the same places.
# Those of 16 bits are too few for that.
MAX_WIDE_KEYS = 1024  # numbers that are keys of one object, and not within 0 to 65535

# Possessive wherever a run may be long: nothing is remembered for each character, and nothing tried again. (Groups that
# can fail in their midst are not: Python 3.11.0 to 3.11.4 forget to go back to where such a group began.)
_TOKEN = re.compile(
    r"""[ \t\r\n\f\b]*+(?:
        ([{}\[\],:])                                           # 1 structure
      | "([^"\\]*+(?:\\.[^"\\]*+)*+)"                          # 2 text
      | '([^'\\]*+(?:\\.[^'\\]*+)*+)'                          # 3 text in single quotes
      | ([+-]?\d++)(?![.\w])                                   # 4 integer
      | ([+-]?\d++(?:\.\d*+)?(?:[eE][+-]?\d++)?)(?![\w.])      # 5 number
      | ([A-Za-z_$][\w$]*+)                                    # 6 name
      | (\Z)                                                   # 7 end
    )""", re.VERBOSE | re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(.))", re.DOTALL)
_SURROGATE = re.compile("[\ud800-\udfff]")
_ESCAPES = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r", '"': '"', "'": "'", "\\": "\\", "/": "/", "v": "\v",
            **{str(digit): chr(digit) for digit in range(8)}}
_CONSTANTS = {"true": True, "false": False, "null": None}
_STRUCTURE, _NAME, _END = 1, 6, 7
_LONG = 1 << 63
# What may come next.
_VALUE, _AFTER_VALUE, _KEY, _COLON = range(4)


def brief(value: object, most: int = 50) -> str:
    """A value that was read, for an error: of megabytes nothing is made but their beginning."""
    if isinstance(value, (list, dict)):
        return f"{type(value).__name__} of {len(value)}"
    return f"{value[:most]!r:.{most}}" if isinstance(value, str) else f"{value!r:.{most}}"


class FastjsonError(ValueError):
    """A text that is not JSON, or not of the wanted shape. `position` counts characters.

    Java: com.alibaba.fastjson.JSONException
    """

    def __init__(self, message: str, position: int = 0) -> None:
        super().__init__(f"{message}, pos {position}")
        self.position = position


class FrozenObject(dict[object, object]):
    """An object that is a key of another one, or stands in one. Hashable, so not to be changed.

    Its hash is made once, of the hashes of what it holds: a key pays for its own length, however deep it is.
    """

    __slots__ = ("_hash",)
    _hash: int

    def __hash__(self) -> int:  # type: ignore[override]  # a dict has none
        try:
            return self._hash
        except AttributeError:
            pairs = [(_text_hash(key), _text_hash(item)) for key, item in self.items()]
            self._hash = hash(f"{{{hash(frozenset(pairs))}")
            return self._hash


class FrozenList(tuple[object, ...]):
    """A list that is a key of an object, or stands in one. Its hash is made once."""

    _hash: int

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            self._hash = hash("[" + ",".join([str(_text_hash(item)) for item in self]))
            return self._hash


def _text_hash(value: object) -> int:
    """The hash of a value's text, which nobody can foresee: numbers with equal hashes can be chosen at will.

    It differs for 1 and "1"; else all objects of these two would have one hash.
    """
    return hash(value) if isinstance(value, (FrozenObject, FrozenList)) else hash(repr(value))


def is_wide(number: float) -> bool:
    """Whether a number counts among those of MAX_WIDE_KEYS."""
    return not 0 <= number <= 0xFFFF or type(number) is not int


def parse(text: str, most_wide: int | None = MAX_WIDE_KEYS) -> object:
    """The value of a text in fastjson's dialect; FastjsonError with the position of what is wrong.

    `most_wide`: numbers beyond 16 bits that are keys of one object; None for a text that no stranger has written.
    """
    return _Parser(text, most_wide).run()


class _Parser:
    """A stack of open containers, a pending key for each, and what may come next."""

    def __init__(self, text: str, most_wide: int | None) -> None:
        self.text = text
        self.most_wide = most_wide
        self.position = 0
        self.containers: list[dict[Any, Any] | list[Any]] = []
        self.keys: list[object] = []  # the key a value is awaited for, per container
        self.wide_keys: list[int] = []  # numbers beyond 16 bits among the keys, per container
        self.as_key: list[bool] = []  # the container itself is a key of the one around it
        self.keys_open = 0  # of these; what is closed within one is frozen
        self.expected = _VALUE
        self.result: object = None

    def run(self) -> object:
        """Consume all tokens."""
        while True:
            match = _TOKEN.match(self.text, self.position)
            if match is None:
                raise FastjsonError("syntax error", self.position)
            kind = match.lastindex
            if kind == _END:
                if self.containers or self.expected == _VALUE:
                    raise FastjsonError("unclosed text", len(self.text))
                return self.result
            self.take(kind, match.group(kind))  # type: ignore[arg-type]  # each alternative is a group
            self.position = match.end()

    def take(self, kind: int, token: str) -> None:
        """One token, of any kind but the end."""
        if self.expected == _COLON:
            self.require(kind == _STRUCTURE and token == ":", "expect :")
            self.expected = _VALUE
        elif self.expected == _AFTER_VALUE:
            self.take_after_value(kind, token)
        elif kind == _STRUCTURE:
            self.take_structure(token)
        elif self.expected == _KEY:
            self.set_key(token if kind == _NAME else self.key(kind, token))
        else:
            self.place(self.scalar(kind, token))

    def take_structure(self, token: str) -> None:
        """A bracket where a value or a key may stand."""
        if token == "{" or token == "[":
            self.require(len(self.containers) < MAX_DEPTH, f"more than {MAX_DEPTH} levels")
            self.as_key.append(self.expected == _KEY)
            self.keys_open += self.as_key[-1]
            self.containers.append({} if token == "{" else [])
            self.keys.append(None)
            self.wide_keys.append(0)
            self.expected = _KEY if token == "{" else _VALUE
        elif token == "}" and self.expected == _KEY:
            self.close()
        elif token == "]" and self.containers and isinstance(self.containers[-1], list):
            self.close()
        else:
            self.require(False, f"unexpected {token}")

    def take_after_value(self, kind: int, token: str) -> None:
        """A comma, or the end of the container."""
        self.require(bool(self.containers) and kind == _STRUCTURE, "not close json text")
        inside = self.containers[-1]
        if token == ",":
            self.expected = _KEY if isinstance(inside, dict) else _VALUE
        else:
            self.require(token == ("}" if isinstance(inside, dict) else "]"), f"unexpected {token}")
            self.close()

    def close(self) -> None:
        """The innermost container is complete: it is a value, or a key."""
        container = self.containers.pop()
        self.keys.pop()
        self.wide_keys.pop()
        value = _frozen(container) if self.keys_open else container
        if self.as_key.pop():
            self.keys_open -= 1
            self.set_key(value)
        else:
            self.place(value)

    def place(self, value: object) -> None:
        """A complete value goes into the container around it."""
        self.expected = _AFTER_VALUE
        if not self.containers:
            self.result = value
        elif isinstance(self.containers[-1], dict):
            self.containers[-1][self.keys[-1]] = value
        else:
            self.containers[-1].append(value)

    def set_key(self, key: object) -> None:
        """A complete key waits for its value."""
        self.keys[-1] = key
        self.expected = _COLON

    def key(self, kind: int, token: str) -> object:
        """A text or a number as a key. Integers are a Long's: beyond, any number of them have the same hash."""
        # Differs: fastjson makes a BigInteger of a longer one, and takes any number of numbers as keys
        value = self.scalar(kind, token)
        if isinstance(value, (int, float)):
            self.require(isinstance(value, float) or -_LONG <= value < _LONG, "a key beyond 64 bits")
            if is_wide(value):
                self.wide_keys[-1] += 1
                self.require(self.most_wide is None or self.wide_keys[-1] <= self.most_wide,
                             f"more than {self.most_wide} keys of an object beyond 16 bits")
        return value

    def scalar(self, kind: int, token: str) -> object:
        """The value of a text, a number or a constant."""
        if kind in (2, 3):
            return self.text_of(token) if "\\" in token else token
        if kind == 4:
            return self.integer(token)
        if kind == 5:
            return float(token)
        self.require(token in _CONSTANTS, f"{token:.50} is no value")
        return _CONSTANTS[token]

    def text_of(self, token: str) -> str:
        """The text of a token with escapes."""
        text = _ESCAPE.sub(self.unescape, token)
        if _SURROGATE.search(text) is None:
            return text
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")  # joins the pairs

    def integer(self, token: str) -> int:
        """An int; Python takes 4300 digits."""
        try:
            return int(token)
        except ValueError as error:
            raise FastjsonError(str(error), self.position) from None

    def unescape(self, match: re.Match[str]) -> str:
        """The character of one escape."""
        code = match[1] or match[2]
        if code:
            return chr(int(code, 16))
        self.require(match[3] in _ESCAPES, f"unclosed string : {match[3]}")
        return _ESCAPES[match[3]]

    def require(self, condition: bool, message: str) -> None:
        """Raise FastjsonError at the current token unless `condition`."""
        if not condition:
            raise FastjsonError(f"syntax error, {message}", self.position)


def _frozen(container: dict[Any, Any] | list[Any]) -> FrozenObject | FrozenList:
    """A container in a key, whose own containers are frozen. Its hash is made now: none is made of several levels."""
    frozen = FrozenObject(container) if isinstance(container, dict) else FrozenList(container)
    hash(frozen)
    return frozen
