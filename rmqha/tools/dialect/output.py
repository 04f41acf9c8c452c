"""What commands print: JSON, YAML, tables that fit any script, times for people and for programs."""
import json
import math
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence, Set
from datetime import UTC, datetime
from typing import Any

import click

_INDENT = "  "
_PLAIN_KEY = re.compile(r"[A-Za-z_][\w.-]*", re.ASCII)
_YAML_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})  # of YAML 1.1
_NOT_IN_YAML = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")  # JSON leaves them as they are


def put(text: str, err: bool = False) -> None:
    """One line to standard output, or to standard error; whatever it has that is no Unicode is a `?`."""
    click.echo(text.encode("utf-8", "replace").decode(), err=err)


def to_json(value: Any) -> str:
    """One line of JSON, whatever bytes a store has in its texts."""
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace").decode()


def to_yaml(value: Any) -> str:
    """A YAML document of what `to_json` takes: blocks, and texts in JSON's quotes, which are YAML's too."""
    return "\n".join(_yaml_lines(json.loads(to_json(value))))


def emit(value: Any, output: str) -> None:
    """A value for programs: a line of JSON, or a YAML document with its `---`."""
    put(to_json(value) if output == "json" else f"---\n{to_yaml(value)}")


def _yaml_lines(value: Any) -> Iterator[str]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            if isinstance(inner, (dict, list)) and inner:
                yield f"{_yaml_key(key)}:"
                yield from (_INDENT + line for line in _yaml_lines(inner))
            else:
                yield f"{_yaml_key(key)}: {_yaml_scalar(inner)}"
    elif isinstance(value, list) and value:
        for inner in value:
            lines = list(_yaml_lines(inner))
            yield f"- {lines[0]}"
            yield from (_INDENT + line for line in lines[1:])
    else:
        yield _yaml_scalar(value)


def _yaml_key(key: str) -> str:
    is_plain = _PLAIN_KEY.fullmatch(key) and key.lower() not in _YAML_WORDS
    return key if is_plain else _yaml_scalar(key)


def _yaml_scalar(value: Any) -> str:
    if isinstance(value, float):
        return _yaml_float(value)
    return _NOT_IN_YAML.sub(lambda char: f"\\u{ord(char[0]):04x}", json.dumps(value, ensure_ascii=False))


def _yaml_float(value: float) -> str:
    """A number for YAML 1.1, too, which takes `1e-05` and `1e+16` for texts: it wants a dot before the exponent, and a
    sign in it."""
    if not math.isfinite(value):
        return ".nan" if math.isnan(value) else ".inf" if value > 0 else "-.inf"
    text = repr(value)
    mantissa, e, exponent = text.partition("e")
    if "." not in mantissa:
        mantissa += ".0"
    if not e:
        return mantissa
    return f"{mantissa}e{exponent if exponent[0] in '+-' else '+' + exponent}"


# ---- tables


def display_width(text: str) -> int:
    """Columns that a text takes on a terminal: two for the wide characters of East Asia, none for combining ones."""
    if text.isascii():
        return len(text)
    return sum(_width(char) for char in text)


def _width(char: str) -> int:
    if unicodedata.combining(char) or unicodedata.category(char) in ("Cf", "Me", "Mn"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def padded(text: str, width: int, right: bool = False) -> str:
    """A text with blanks up to a width on the terminal."""
    blanks = " " * (width - display_width(text))
    return blanks + text if right else text + blanks


def render_table(headings: Sequence[str], rows: Sequence[Sequence[str]], right_aligned: Set[str]) -> str:
    """A table as text: headings, a line, rows; columns as wide as their widest cell."""
    widths = [max(display_width(row[column]) for row in (headings, *rows)) for column in range(len(headings))]
    lines = [headings, tuple("-" * width for width in widths), *rows]
    return "\n".join(
        "  ".join(padded(cell, width, heading in right_aligned)
                  for cell, width, heading in zip(line, widths, headings)).rstrip() for line in lines)


def put_facts(facts: Mapping[str, str]) -> None:
    """Print names and what they are, one a line."""
    width = max(map(display_width, facts), default=0)
    for name, said in facts.items():
        put(f"{click.style(padded(name, width), bold=True)}  {said}")


# ---- texts


def cell(text: str) -> str:
    """A text from a store as it may be shown on a terminal: control characters are escaped."""
    return text if text.isprintable() else "".join(
        char if char.isprintable() else f"\\u{ord(char):04x}" for char in text)


def iso_time(timestamp: int) -> str | None:
    """ms as ISO 8601 with the local offset; None when it is beyond the calendar."""
    try:
        return datetime.fromtimestamp(timestamp / 1000, UTC).astimezone().isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return None


def percentiles(values: Sequence[float], points: Sequence[float] = (50, 90, 99, 99.9)) -> dict[str, float]:
    """`p50` ... and the greatest, of values in any order; the nearest rank. Empty when there are none."""
    ranked = sorted(values)
    if not ranked:
        return {}
    found = {f"p{point:g}": ranked[min(int(len(ranked) * point / 100), len(ranked) - 1)] for point in points}
    return {**found, "max": ranked[-1]}
