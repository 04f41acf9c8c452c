"""Removes secrets from texts and JSON values before they go into a bundle.

A secret is recognized in two ways, and either suffices:

- by its value: everything that a config file or the environment calls a secret is replaced wherever it appears, also
  escaped as in JSON, URLs and base64;
- by its place: after a key such as `secretKey=`, `"password":` or `--token`, in the user part of a URL, after `Bearer`,
  in a PEM block. What follows such a key is removed up to the end of its line: a secret may contain blanks, quotes and
  commas, and a lost end of a line costs less than half a secret.

Message bodies and properties in log lines are removed, too. Account names (access keys) become `<accessKey-1>` and so
on, so that lines about the same account are still recognized. Each line is handled in time linear in its length.
"""
import base64
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import quote

from rmqha.common.java import escape
from rmqha.common.texts import HIDDEN, JsonTextError, parse_json

# Characters of a line; the rest is dropped.
MAX_LINE = 16 * 1024
# A shorter secret is only recognized by its place: it would hide half of a log.
_LEAST, _LEAST_ANYWHERE = 4, 6
_NO_SECRETS = frozenset({"true", "false", "null", "none", "None", HIDDEN, "******", "..."})
# Account names of the shipped plain_acl.yml: they are also the name of the software.
_EXAMPLES = frozenset({"RocketMQ", "rocketmq2", "rocketmq"})
_WORDS = (r"secret|passw(?:or)?d|passphrase|passwd|pwd|token|credential|api[-_. ]?key|access[-_. ]?key|"
          r"private[-_. ]?key|authorization|signature|cookie")
# Each match of _WORDS, and of the patterns for messages, contains one of these in lower case.
_HINTS_OF_KEYS = ("secret", "passw", "passphrase", "pwd", "token", "credential", "api", "access", "private",
                  "authorization", "signature", "cookie")
_HINTS_OF_MESSAGES = ("body", "properties", "message filter error", "tracedata", "'i'", '"i"')
_SECRET_KEY = re.compile(_WORDS, re.IGNORECASE)
_KEY_IN_LINE = re.compile(rf"(?:{_WORDS})[\w.\-\[\] ]{{0,64}}[\"']?\s{{0,8}}(?:=>|[=:])\s{{0,8}}", re.IGNORECASE)
_OPTION_IN_LINE = re.compile(rf"(?<![\w\-])--?[\w.\-]{{0,40}}?(?:{_WORDS})[\w.\-]{{0,40}}\s{{1,8}}", re.IGNORECASE)
_SCHEME_IN_LINE = re.compile(r"\b((?:bearer|basic)\s{1,8})\S{8,}", re.IGNORECASE)
_BODY = re.compile(r"\bbody\s{0,4}[=:]\s{0,4}", re.IGNORECASE)
_PROPERTIES = re.compile(r"\b(?:properties|propertiesString)\s{0,4}[=:]\s{0,4}(?=[{'\"])|Message Filter error, (?=.)"
                         r"|the traceData is (?=.)")
_FIELD = re.compile(r"(['\"](?:i|properties|body)['\"]: )(['\"])")
# Variables of a shell: working directories.
_FOLDERS = ("PWD", "OLDPWD")
_PSEUDONYM = re.compile(r"<accessKey-\d{1,6}>")
# A value that was replaced already, in YAML with quotes.
_REPLACED = re.compile(rf"[\"']?(?:<accessKey-\d{{1,6}}>|{re.escape(HIDDEN)}(?![*\w]))[\"']?")
_PEM_BEGIN, _PEM_END = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY"), "-----END"
_MAX_PEM_LINES = 400
_BETWEEN = r"(?<![A-Za-z0-9_])%s(?![A-Za-z0-9_])"
REMOVED_KEY = "(private key removed)"


def is_secret_key(key: str) -> bool:
    """Return whether the value of a key must not be shown, by the key's name."""
    return _SECRET_KEY.search(key) is not None and key not in _FOLDERS


def is_access_key(key: str) -> bool:
    """Return whether a key names an account: its value is replaced by a pseudonym."""
    return re.sub(r"[^a-z]", "", key.lower()).endswith("accesskey")


class Redactor:
    """Replaces secrets. All secrets are added before the first text is redacted."""

    def __init__(self) -> None:
        # A written form of a secret -> its replacement, and the pattern of a short one, which is replaced as a whole
        # word only.
        self._forms: dict[str, tuple[str, re.Pattern[str] | None]] = {}
        # The longest forms first: a secret may be a part of another one. None: to be sorted again.
        self._sorted: list[tuple[str, str, re.Pattern[str] | None]] | None = None
        self._accounts: dict[str, str] = {}
        # How many texts were changed, for the manifest.
        self.hidden = 0

    def add_secret(self, secret: str) -> None:
        """Hide a text wherever it appears; of several lines, each one."""
        for line in secret.splitlines():
            self._add(line, HIDDEN)

    def add_access_key(self, name: str) -> str:
        """Replace an account's name wherever it appears; return its pseudonym."""
        name = name.strip()
        if name not in self._accounts:
            self._accounts[name] = f"<accessKey-{len(self._accounts) + 1}>"
        if name not in _EXAMPLES:
            self._add(name, self._accounts[name])
        return self._accounts[name]

    def _add(self, secret: str, replacement: str) -> None:
        secret = secret.strip()
        if len(secret) < _LEAST or secret in _NO_SECRETS or _PSEUDONYM.fullmatch(secret):
            return
        for form in _forms(secret):
            if form not in self._forms:
                is_short = len(secret) < _LEAST_ANYWHERE
                self._forms[form] = replacement, re.compile(_BETWEEN % re.escape(form)) if is_short else None
                self._sorted = None

    def harvest(self, text: str) -> None:
        """Learn the secrets of a config file or another text with keys and values, its comments included."""
        for line in text.splitlines():
            for match in _KEY_IN_LINE.finditer(line[:MAX_LINE]):
                said = line[match.end():].strip()
                quoted = line[match.end():_value_at(line, match.end())].strip()
                for part in {each.strip("\"'").strip() for each in (said, quoted, said.partition(" #")[0].strip())}:
                    if not is_access_key(match[0].rstrip(" =:>\"'")):
                        self.add_secret(part)
                    elif len(part) >= _LEAST:
                        self.add_access_key(part)

    # ---- texts

    def text(self, text: str) -> str:
        """Return a text of several lines without secrets. Lines beyond MAX_LINE characters are cut."""
        return "\n".join(self.lines(text.split("\n")))

    def lines(self, lines: Iterable[str]) -> Iterator[str]:
        """Yield lines without secrets, and one line for a private key of several lines."""
        left = 0
        for line in lines:
            if left:
                left -= 1
                if _PEM_END in line:
                    left = 0
                continue
            if _PEM_BEGIN.search(line):
                self.hidden += 1
                begin = _PEM_BEGIN.split(line, maxsplit=1)[0]
                yield self.line(begin) + REMOVED_KEY
                left = 0 if _PEM_END in line else _MAX_PEM_LINES
                continue
            yield self.line(line)

    def line(self, line: str) -> str:
        """Return one line without secrets."""
        if len(line) > MAX_LINE:
            line = f"{line[:MAX_LINE]} ... (cut)"
        result = self._json_line(line) if line.startswith("{") else None
        if result is None:
            result = self._plain(line)
        self.hidden += result != line
        return result

    def _json_line(self, line: str) -> str | None:
        try:
            value = parse_json(line, "the line")
        except JsonTextError:
            return None
        if not isinstance(value, dict):
            return None
        return json.dumps(self.value(value), ensure_ascii=False)

    def _plain(self, line: str) -> str:
        line = self.literal(line)
        lower = line.lower()
        # Most lines have none of these words: looking for each is much faster than one pattern.
        if any(word in lower for word in _HINTS_OF_KEYS):
            line = _replaced(line, _KEY_IN_LINE)
            line = _replaced(line, _OPTION_IN_LINE)
        if "bearer" in lower or "basic" in lower:
            line = _SCHEME_IN_LINE.sub(_hide_word, line)
        if any(word in lower for word in _HINTS_OF_MESSAGES):
            line = _replaced(line, _BODY)
            line = _without_properties(line)
        return " ".join(map(_without_user, line.split(" "))) if "@" in line else line

    def literal(self, text: str) -> str:
        """Return a text without the known secrets."""
        if self._sorted is None:
            self._sorted = [(form, *self._forms[form]) for form in sorted(self._forms, key=lambda form: -len(form))]
        for form, replacement, pattern in self._sorted:
            if form in text:
                text = text.replace(form, replacement) if pattern is None else pattern.sub(replacement, text)
        return text

    # ---- JSON

    def value(self, value: Any, secret: bool = False) -> Any:
        """Return a JSON value without secrets; `secret`: it belongs to a key whose values are hidden."""
        if isinstance(value, dict):
            return {self.literal(str(key)): self._of_key(str(key), inner, secret) for key, inner in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.value(inner, secret) for inner in value]
        if value is None or isinstance(value, bool):
            return value
        if secret:
            return value if value in ("", HIDDEN) else HIDDEN
        if isinstance(value, str):
            return self.text(value)
        return value if self.literal(str(value)) == str(value) else HIDDEN

    def _of_key(self, key: str, value: Any, secret: bool) -> Any:
        if is_access_key(key) and isinstance(value, str) and value:
            return self.add_access_key(value)
        return self.value(value, secret or is_secret_key(key))


def _forms(secret: str) -> set[str]:
    """Return the ways in which a secret may be written."""
    encoded = secret.encode("utf-8", "surrogatepass")
    return {secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1], repr(secret)[1:-1],
            quote(encoded, safe=""), quote(encoded), base64.b64encode(encoded).decode(), escape(secret),
            encoded.decode("latin-1")}


def _value_at(line: str, begin: int) -> int:
    """Return the end of the value at `begin`: its closing quote, or the end of the line."""
    opening = line[begin:begin + 1]
    if opening not in ("'", '"'):
        return len(line)
    at = begin + 1
    while at < len(line):
        if line[at] == "\\":
            at += 2
        elif line[at] == opening:
            return at + 1
        else:
            at += 1
    return len(line)


def _replaced(line: str, pattern: re.Pattern[str]) -> str:
    """Hide what follows the first match, to the end of the line; after a value that was replaced already, of the next.
    """
    at = 0
    while (match := pattern.search(line, at)) is not None:
        begin = match.end()
        known = _REPLACED.match(line, begin)
        if known is None:
            return line[:begin] + HIDDEN if line[begin:].strip() else line
        at = known.end()
    return line


def _hide_word(match: re.Match[str]) -> str:
    return f"{match[1]}{HIDDEN}"


def _without_properties(line: str) -> str:
    """Hide the properties of messages: from the opening bracket to the last closing one."""
    match = _PROPERTIES.search(line)
    if match is not None:
        end = max(line.rfind("}"), line.rfind("'"), line.rfind('"'))
        tail = line[end + 1:] if end >= match.end() and not match[0].startswith("the trace") else ""
        line = f"{line[:match.end()]}{HIDDEN}{tail}"
    parts: list[str] = []
    at = 0
    while (field := _FIELD.search(line, at)) is not None:
        parts += [line[at:field.start(2)], HIDDEN]
        at = _value_at(line, field.start(2))
    return "".join([*parts, line[at:]]) if parts else line


def _without_user(word: str) -> str:
    """Hide user and password of `scheme://user:password@host` and of `user:password@host`."""
    at = word.rfind("@")
    begin = word.find("://") + 3 if "://" in word[:at] else word.find(":", 0, max(at, 0)) + 1
    return word if at < 0 or not begin or begin > at else f"{word[:begin]}{HIDDEN}{word[at:]}"
