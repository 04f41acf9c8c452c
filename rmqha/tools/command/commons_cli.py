"""Command lines, parsed and explained like commons-cli 1.2, whose PosixParser RocketMQ's tools use.

`-t Foo`, `-tFoo`, `-topic Foo`, `--topic Foo` and `--topic=Foo` are equivalent; flags may be combined (`-al`); words
that are neither options nor values are ignored; a value may begin with a hyphen unless it is itself an option.
"""
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import overload

from rmqha.common.lazy_dataclasses import dataclass

WIDTH = 110  # columns of the help text
_LEFT_PAD, _DESC_PAD = " ", "   "
_USAGE = "usage: "


class ParseException(Exception):
    """An invalid command line: an unknown option, a missing one, or one without its value."""


class NumberFormatException(ValueError):
    """A text that is not a number where a number is expected.

    Java: java.lang.NumberFormatException
    """

    def __init__(self, text: str) -> None:
        super().__init__(f'For input string: "{text}"')


@dataclass(frozen=True)
class Option:
    """An option: its short and long name (`opt` is None if it has only a long name), and whether it takes a value."""

    opt: str | None
    long_opt: str
    has_arg: bool
    description: str
    required: bool = False

    @property
    def key(self) -> str:
        """The name by which the option is looked up and sorted."""
        return self.opt or self.long_opt


@dataclass(frozen=True)
class OptionGroup:
    """Options that exclude each other; one of them must be given."""

    options: tuple[Option, ...]


def option(opt: str, long_opt: str, description: str, required: bool = False) -> Option:
    """Return an option that takes a value."""
    return Option(opt, long_opt, True, description, required)


def flag(opt: str, long_opt: str, description: str) -> Option:
    """Return an option that takes no value."""
    return Option(opt, long_opt, False, description)


class Options:
    """The options of a command. Of two options with the same name, the later one counts."""

    def __init__(self, items: Iterable[Option | OptionGroup]) -> None:
        self.by_key: dict[str, Option] = {}
        self.group_of: dict[str, OptionGroup] = {}  # by key of the option
        for item in items:
            for each in item.options if isinstance(item, OptionGroup) else (item,):
                self.by_key[each.key] = each
                if isinstance(item, OptionGroup):
                    self.group_of[each.key] = item
        self._by_long = {each.long_opt: each for each in self.by_key.values()}

    def find(self, token: str) -> Option | None:
        """Return the option with a name, given with or without hyphens."""
        name = token.removeprefix("-").removeprefix("-")
        return self.by_key.get(name) or self._by_long.get(name)

    def sorted(self) -> list[Option]:
        """Return the options in the order of the help."""
        return sorted(self.by_key.values(), key=lambda each: each.key.lower())


class CommandLine:
    """The given options, by short or long name."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._given: dict[str, list[str]] = {}  # by key of the option

    def add(self, given: Option, value: str | None) -> None:
        """Add a given option; if it is given twice, the first value counts."""
        self._given.setdefault(given.key, []).extend([] if value is None else [value])

    def has_option(self, name: str) -> bool:
        """Return whether an option was given."""
        found = self._options.find(name)
        return found is not None and found.key in self._given

    def get_option_value(self, name: str) -> str | None:
        """Return an option's value as given, or None."""
        found = self._options.find(name)
        values = self._given.get(found.key) if found is not None else None
        return values[0] if values else None

    @overload
    def text(self, name: str) -> str | None: ...

    @overload
    def text(self, name: str, default: str) -> str: ...

    def text(self, name: str, default: str | None = None) -> str | None:
        """Return an option's value without surrounding blanks; the default when it was not given."""
        value = self.get_option_value(name)
        return default if value is None else value.strip()

    def required(self, name: str) -> str:
        """Return the value, without surrounding blanks, of an option that is known to be given.

        It is known because the option, or one of its group, is required, or because the caller checked `has_option`.
        """
        value = self.text(name)
        if value is None:
            raise ValueError(f"-{name} is missing: it is neither required nor checked with has_option")
        return value

    def integer(self, name: str, default: int = 0, bits: int = 64) -> int:
        """Return an option's value as a signed number of `bits` bits; NumberFormatException when it is not one."""
        text = self.text(name)
        if text is None:
            return default
        value = parse_long(text)
        if not -1 << bits - 1 <= value < 1 << bits - 1:
            raise NumberFormatException(text)
        return value

    def boolean(self, name: str, default: bool = False) -> bool:
        """Return whether an option's value is `true`, in upper or lower case."""
        text = self.text(name)
        return default if text is None else text.lower() == "true"


def parse_long(text: str) -> int:
    """Parse a decimal number like Java's Long.parseLong; NumberFormatException for any other text."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 19 and -1 << 63 <= int(text) < 1 << 63):
        raise NumberFormatException(text)
    return int(text)


def parse(options: Options, args: Sequence[str]) -> CommandLine:
    """Parse the options in `args`; raise ParseException when they are invalid."""
    tokens = list(_flatten(options, args))
    command_line = CommandLine(options)
    selected: dict[OptionGroup, Option] = {}
    position = 0
    while position < len(tokens) and tokens[position] != "--":
        token = tokens[position]
        position += 1
        if not token.startswith("-") or token == "-":
            continue
        given = options.find(token)
        if given is None:
            raise ParseException(f"Unrecognized option: {token}")
        group = options.group_of.get(given.key)
        if group is not None and selected.setdefault(group, given) is not given:
            raise ParseException(f"The option '{given.key}' was specified but an option from this group has already "
                                 f"been selected: '{selected[group].key}'")
        value = None
        if given.has_arg:
            if position == len(tokens) or tokens[position].startswith("-") and options.find(tokens[position]):
                raise ParseException(f"Missing argument for option: {given.key}")
            value = _without_quotes(tokens[position])
            position += 1
        command_line.add(given, value)
    _check_required(options, command_line, selected)
    return command_line


def _check_required(options: Options, command_line: CommandLine, selected: dict[OptionGroup, Option]) -> None:
    missing = [key for key, each in options.by_key.items() if each.required and not command_line.has_option(key)]
    missing += [" | ".join(f"-{each.key}" for each in group.options)
                for group in dict.fromkeys(options.group_of.values()) if group not in selected]
    if missing:
        raise ParseException(f"Missing required option: {', '.join(missing)}")


def _flatten(options: Options, args: Sequence[str]) -> Iterator[str]:
    for token in args:
        if token.startswith("--"):
            name, equals, value = token.partition("=")
            if options.find(name):
                yield from (name, value) if equals else (name,)
            else:
                yield token
        elif token.startswith("-") and len(token) > 2 and not options.find(token):
            yield from _burst(options, token)
        else:
            yield token


def _burst(options: Options, token: str) -> Iterator[str]:
    """Split combined flags, and a value that directly follows its option."""
    for position, char in enumerate(token[1:], 1):
        given = options.find(char) if char != "-" else None
        if given is None:
            yield token
            return
        yield f"-{char}"
        if given.has_arg and position + 1 < len(token):
            yield token[position + 1:]
            return


def _without_quotes(value: str) -> str:
    return value.removeprefix('"').removesuffix('"')


def help_text(app_name: str, options: Options) -> str:
    """Return usage and options as commons-cli's HelpFormatter prints them."""
    lines = _wrapped(_USAGE + app_name + " " + " ".join(_usage_items(options)), len(_USAGE))
    prefixes = [(_LEFT_PAD + _names(each), each.description) for each in options.sorted()]
    column = max(len(prefix) for prefix, _ in prefixes)
    for prefix, description in prefixes:
        lines += _wrapped(prefix.ljust(column) + _DESC_PAD + description, column + len(_DESC_PAD))
    return "".join(f"{line}\n" for line in lines)


def _usage_items(options: Options) -> Iterator[str]:
    done: set[OptionGroup] = set()
    for each in options.sorted():
        group = options.group_of.get(each.key)
        if group is None:
            yield _usage(each) if each.required else f"[{_usage(each)}]"
        elif group not in done:
            done.add(group)
            yield " | ".join(map(_usage, sorted(group.options, key=lambda one: one.key.lower())))
        else:
            # the separator of an option that was printed with its group
            yield ""


def _usage(each: Option) -> str:
    return (f"-{each.opt}" if each.opt else f"--{each.long_opt}") + (" <arg>" if each.has_arg else "")


def _names(each: Option) -> str:
    names = f"-{each.opt},--{each.long_opt}" if each.opt else f"   --{each.long_opt}"
    return names + (" <arg>" if each.has_arg else "")


def _wrapped(text: str, indent: int) -> list[str]:
    return textwrap.wrap(text, WIDTH, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False,
                         expand_tabs=False)
