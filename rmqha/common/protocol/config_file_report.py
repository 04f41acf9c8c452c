"""The report of a broker about its config file: an extension of GET_BROKER_CONFIG.

A request with the field `askConfigFile` gets an answer with the field `configFile`, a JSON object. Response code, body
and the other fields are the same with and without it. A broker of RocketMQ ignores the field.
"""
import json

from rmqha.common.lazy_dataclasses import dataclass, field, fields
from rmqha.common.texts import parse_json

ASK_CONFIG_FILE = "askConfigFile"
CONFIG_FILE = "configFile"
# A file that is longer, or has more keys, is not reported: the report has to fit in a header.
MAX_FILE_BYTES = 1 << 18
MAX_KEYS = 2000


@dataclass(frozen=True)
class ConfigFileReport:
    """A broker's config file compared with the running broker; without secret keys.

    `path` is the file that updates are written to, and `read_at_start` whether the broker has read it (option -c).
    `values` are its current keys; empty with an `error`, which says why the file can't be read. `changed` are the keys
    that requests have changed since the start, with their values at the start. `edited` are the keys whose values in
    the file are neither those at the start nor those that requests have written.
    """

    path: str = ""
    read_at_start: bool = False
    error: str = ""
    values: dict[str, str] = field(default_factory=dict)
    changed: dict[str, str] = field(default_factory=dict)
    edited: list[str] = field(default_factory=list)

    def encode(self) -> str:
        """Return the text of the field `configFile`."""
        return json.dumps({item.name: getattr(self, item.name) for item in fields(self)})


def decode_report(text: str | None) -> ConfigFileReport | None:
    """Decode the text of `encode`; None for None, from a broker without this extension. ValueError for anything else.

    Unknown fields are ignored, so that a later version may add some.
    """
    if text is None:
        return None
    told = parse_json(text, "the field configFile")
    if not isinstance(told, dict):
        raise ValueError("the field configFile is not an object")
    known = {item.name: told[item.name] for item in fields(ConfigFileReport) if item.name in told}
    report = ConfigFileReport(**known)
    texts = [report.path, report.error, *_texts(report.values), *_texts(report.changed)]
    texts += report.edited if isinstance(report.edited, list) else [None]
    if not all(isinstance(each, str) for each in texts) or not isinstance(report.read_at_start, bool):
        raise ValueError("the field configFile has a value of a wrong type")
    return report


def _texts(table: object) -> list[object]:
    return [*table.keys(), *table.values()] if isinstance(table, dict) else [None]
