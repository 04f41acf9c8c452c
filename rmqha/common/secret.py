"""A text that must not be shown: a password of a config file."""
import hmac
from typing import NoReturn

HIDDEN = "***"


class Secret:
    """Holds a text and prints as `***`, in logs, in `repr`, formatted or as JSON; `reveal` returns the text.

    Not a str: whoever joins, writes or encodes one by mistake gets an error, not the text.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    @classmethod
    def of(cls, value: "str | Secret | None") -> "Secret | None":
        """`value` as a secret; None stays None."""
        return cls(value) if isinstance(value, str) else value

    def reveal(self) -> str:
        """The text: for whoever logs in with it, or writes it back to the file that it came from."""
        return self._text

    def __bool__(self) -> bool:
        return bool(self._text)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self._text.encode("utf-8", "surrogatepass"),
                                   other._text.encode("utf-8", "surrogatepass"))

    def __hash__(self) -> int:
        return 0  # settings that hold one are keys of sets; another hash would say whether two are the same

    def __repr__(self) -> str:
        return HIDDEN

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret is not pickled: it would be readable in what is written")

    def __copy__(self) -> "Secret":
        return self

    def __deepcopy__(self, _memo: object) -> "Secret":
        return self
