"""A request or response, and its encoding.

A frame: `length` int32 of what follows | header mark int32: serialize type in the top byte, header length in the other
three | header | body.

A decoded command owns its memory (the body is copied once, out of the read buffer), so it can be kept and passed to
other threads.
"""
import itertools
import json
import os
import struct
from collections.abc import Callable, Sequence
from types import NoneType
from typing import TypeVar

from rmqha.common.java import CURRENT_VERSION, int32
from rmqha.common.protocol.command_custom_header import CommandCustomHeader
from rmqha.remoting.exception import RemotingCommandException
from rmqha.remoting.protocol import fastjson, header_codec
from rmqha.remoting.protocol.fastjson import FastjsonError, brief, quote
from rmqha.remoting.protocol.header_codec import (
    LanguageCode,
    SerializeType,
    ordered,
    plan_of,
    rocketmq_protocol_decode,
    rocketmq_protocol_encode,
)

try:
    import orjson
except ImportError:
    orjson = None

HeaderT = TypeVar("HeaderT", bound=CommandCustomHeader)
Buffer = bytes | bytearray | memoryview

SERIALIZE_TYPE_ENV = "ROCKETMQ_SERIALIZE_TYPE"
RPC_TYPE_RESPONSE = 1 << 0
RPC_ONEWAY = 1 << 1
# Differs: the header of a command is limited in length and fields, and its values are texts. 4.9 accepts headers of up
# to 16 MiB with any number of fields, and with objects for values; parsing such a header would block the reading thread
# for seconds
MAX_HEADER_LENGTH = 1 << 20
# A longer header must be standard JSON, and its fields must be texts.
MAX_DIALECT_LENGTH = 1 << 14
# The most elements of a header. Shorter headers, in bytes, are not counted because they can't have more.
MAX_HEADER_ELEMENTS = 1 << 16
_JSON_MARKS = b"{[,:\\"

_FRAME_START = struct.Struct(">ii")
_MARK = struct.Struct(">I")
_LANGUAGES: dict[object, LanguageCode] = {**{code.name: code for code in LanguageCode},
                                          **{int(code): code for code in LanguageCode}}
# Reading an enum's member takes 0.2 us.
_JSON, _ROCKETMQ, _JAVA = SerializeType.JSON, SerializeType.ROCKETMQ, LanguageCode.JAVA
_SECRET = frozenset({"secretKey", "SecretKey", "Signature", "SecurityToken"})  # names of fields
_JAVA_PAIR = f'"language":"{_JAVA.name}",'
_decoder = json.JSONDecoder(strict=False, parse_constant=fastjson.refuse_constant)
_scan_json = _decoder.scan_once  # type: ignore[attr-defined]  # missing in its stub
# Process-wide, as in Java: an opaque is unique among all clients of the process.
_request_id = itertools.count()


def _configured_serialize_type() -> SerializeType:
    name = os.environ.get(SERIALIZE_TYPE_ENV, "").strip()
    if name and name not in SerializeType.__members__:
        raise RuntimeError(f"parser specified protocol error. protocol={name}")
    return SerializeType[name] if name else SerializeType.JSON


SERIALIZE_TYPE_CONFIG_IN_THIS_SERVER = _configured_serialize_type()


def create_new_request_id() -> int:
    """Return the next opaque of this process, an int32.

    Java: org.apache.rocketmq.remoting.protocol.RemotingCommand#createNewRequestId (4.9.8)
    """
    return int32(next(_request_id))


class RemotingCommand:
    """A request or a response. The attributes are the fields of the protocol.

    `ext_fields` are the texts of the received custom header; `custom_header` is the one to be sent. An unknown language
    becomes None.

    Java: org.apache.rocketmq.remoting.protocol.RemotingCommand (4.9.8)
    """

    __slots__ = ("code", "language", "version", "opaque", "flag", "remark", "ext_fields", "custom_header", "body",
                 "serialize_type", "file_region", "release_region", "header_length")

    def __init__(self, code: int = 0, flag: int = 0, remark: str | None = None, opaque: int = 0,
                 custom_header: CommandCustomHeader | None = None) -> None:
        self.code = code
        self.language: LanguageCode | None = _JAVA
        self.version = CURRENT_VERSION
        self.opaque = opaque
        self.flag = flag
        self.remark = remark
        self.ext_fields: dict[str, str] | None = None
        self.custom_header = custom_header
        self.body: bytes | memoryview | None = None
        self.serialize_type = SERIALIZE_TYPE_CONFIG_IN_THIS_SERVER
        self.file_region: Sequence[Buffer] | None = None  # sent instead of `body`, without copying
        self.release_region: Callable[[], None] | None = None
        self.header_length = 0  # bytes of the received header

    @staticmethod
    def create_request_command(code: int, custom_header: CommandCustomHeader | None = None) -> "RemotingCommand":
        """Return a request with a new opaque."""
        return RemotingCommand(code, opaque=create_new_request_id(), custom_header=custom_header)

    @staticmethod
    def create_response_command(code: int = header_codec.SYSTEM_ERROR,
                                remark: str | None = "not set any response code",
                                custom_header: CommandCustomHeader | type[CommandCustomHeader] | None = None,
                                ) -> "RemotingCommand":
        """Return a response. Its opaque is set when it is sent. A header class means an empty header."""
        if isinstance(custom_header, type):
            custom_header = custom_header()
        return RemotingCommand(code, RPC_TYPE_RESPONSE, remark, custom_header=custom_header)

    @staticmethod
    def decode(frame: Buffer) -> "RemotingCommand":
        """Return the command in a frame without its length field.

        Raises RemotingCommandException if a length is wrong, the serialize type unknown, or the header malformed.
        """
        length = len(frame)
        if length < 4:
            raise RemotingCommandException(f"decode error, frame of {length} bytes")
        (mark,) = _MARK.unpack_from(frame)
        end = 4 + (mark & 0xFFFFFF)
        if end > length or end > MAX_HEADER_LENGTH + 4:
            raise RemotingCommandException(f"decode error, bad header length: {end - 4}")
        kind = mark >> 24
        if kind == _JSON:
            command = _decode_json(frame[4:end])
        elif kind == _ROCKETMQ:
            command = _decode_rocketmq(bytes(frame[4:end]))
        else:
            raise RemotingCommandException(f"decode error, unknown serialize type: {kind}")
        command.header_length = end - 4
        if end < length:
            command.body = bytes(frame[end:])
        return command

    @property
    def is_response_type(self) -> bool:
        """True for a response."""
        return self.flag & RPC_TYPE_RESPONSE != 0

    @property
    def is_oneway_rpc(self) -> bool:
        """True for a request that expects no response."""
        return self.flag & RPC_ONEWAY != 0

    def mark_response_type(self) -> None:
        """Mark the command as a response."""
        self.flag |= RPC_TYPE_RESPONSE

    def mark_oneway_rpc(self) -> None:
        """Mark the command as a request that expects no response."""
        self.flag |= RPC_ONEWAY

    def add_ext_field(self, key: str, value: str) -> None:
        """Add a field to those of the custom header."""
        if self.ext_fields is None:
            self.ext_fields = {}
        self.ext_fields[key] = value

    def decode_command_custom_header(self, cls: type[HeaderT]) -> HeaderT:
        """Return the received custom header. RemotingCommandException if a needed field is missing or invalid."""
        return plan_of(cls).decode(self.ext_fields or {})  # type: ignore[return-value]  # a `cls`

    def make_custom_header_to_net(self) -> None:
        """Copy the custom header's fields into `ext_fields`, for hooks that sign them."""
        if self.custom_header is not None:
            texts = plan_of(type(self.custom_header)).texts(self.custom_header)
            self.ext_fields = {**self.ext_fields, **texts} if self.ext_fields else texts

    def set_file_region(self, buffers: Sequence[Buffer], release: Callable[[], None] | None = None) -> None:
        """Send `buffers` as the body without copying. `release` is called once, when they are sent or dropped."""
        self.file_region = buffers
        self.release_region = release

    def encode(self) -> bytes:
        """Return the whole frame with its length field. A file region is copied into it."""
        body = b"".join(self.file_region) if self.file_region is not None else self.body
        return self.encode_header(len(body)) + body if body else self.encode_header(0)

    def encode_header(self, body_length: int | None = None) -> bytes:
        """Return the frame up to its body. `body_length` (bytes) is by default that of `body` or the file region."""
        if body_length is None:
            body_length = self.body_length
        kind = self.serialize_type
        if kind == _JSON:
            header = _utf8(self._header_json())
        else:
            header = self._header_rocketmq()
        if len(header) > 0xFFFFFF:
            raise RemotingCommandException(f"header of {len(header)} bytes")
        mark = int(kind) << 24 | len(header)
        return _FRAME_START.pack(4 + len(header) + body_length, mark) + header

    @property
    def body_length(self) -> int:
        """The number of bytes of the body or the file region."""
        if self.file_region is not None:
            return sum(map(len, self.file_region))
        return len(self.body) if self.body is not None else 0

    def _header_json(self) -> str:
        """Return the fields in alphabetical order, as fastjson writes them."""
        header, ext = self.custom_header, self.ext_fields
        if header is None:
            inside = ext and _json_pairs(ordered(ext))
        elif ext:
            inside = _json_pairs(ordered({**ext, **plan_of(type(header)).texts(header)}))
        else:
            inside = plan_of(type(header)).json(header)
        ext_part = f'"extFields":{{{inside or ""}}},' if header is not None or ext is not None else ""
        remark = "" if self.remark is None else f'"remark":{quote(self.remark)},'
        language = (_JAVA_PAIR if self.language is _JAVA
                    else "" if self.language is None else f'"language":"{self.language.name}",')
        return (f'{{"code":{self.code},{ext_part}"flag":{self.flag},{language}"opaque":{self.opaque},{remark}'
                f'"serializeTypeCurrentRPC":"JSON","version":{self.version}}}')

    def _header_rocketmq(self) -> bytes:
        header, ext = self.custom_header, self.ext_fields or {}
        language = LanguageCode.OTHER if self.language is None else self.language
        pairs: list[tuple[str, str]] = []
        if header is not None:
            plan = plan_of(type(header))
            texts = plan.texts(header)
            if plan.fast_names is None:
                ext = {**ext, **texts}
            else:
                pairs = [(name, texts[name]) for name in plan.fast_names if name in texts]
        return rocketmq_protocol_encode(self.code, language, self.version, self.opaque, self.flag, self.remark,
                                        pairs + ordered(ext))

    def __repr__(self) -> str:
        language = None if self.language is None else self.language.name
        # Differs: the text of a command, which may be logged, omits everything that could be used to impersonate a user
        fields = self.ext_fields and {name: "..." if name in _SECRET else value
                                      for name, value in self.ext_fields.items()}
        return (f"RemotingCommand [code={self.code}, language={language}, version={self.version}, "
                f"opaque={self.opaque}, flag(B)={self.flag:b}, remark={self.remark}, extFields={fields}, "
                f"serializeTypeCurrentRPC={self.serialize_type.name}]")


def _json_pairs(pairs: list[tuple[str, str]]) -> str:
    texts = [text for pair in pairs if pair[1] is not None for text in pair]
    together = "".join(texts)
    if together.isascii() and together.isprintable() and '"' not in together and "\\" not in together:
        return ",".join([f'"{name}":"{value}"' for name, value in pairs if value is not None])
    return ",".join([f"{quote(name)}:{quote(value)}" for name, value in pairs if value is not None])


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:  # half a surrogate pair, which Java writes as `?`
        return text.encode("utf-8", "replace")


def _decode_json(header: Buffer) -> RemotingCommand:
    try:
        if len(header) > MAX_HEADER_ELEMENTS:
            _check_elements(bytes(header))
        fields = _loads_header(header)
        if len(header) > fastjson.MAX_DEPTH:
            _check_depth(bytes(header), fields)
        if type(fields) is not dict:
            raise RemotingCommandException("decode error, header is not a JSON object")
        get = fields.get
        command = RemotingCommand.__new__(RemotingCommand)
        command.code = _int_field(get("code"))
        command.flag = _int_field(get("flag"))
        command.opaque = _int_field(get("opaque"))
        command.version = _int_field(get("version"))
        remark = get("remark")
        command.remark = (remark if remark is None or type(remark) is str
                          else _text(_exact(remark, header, "remark"), len(header)))
        command.ext_fields = _ext_fields(get("extFields"), header)
        language = get("language", "JAVA")
        if isinstance(language, (str, NoneType)) or isinstance(language, int) and language in _LANGUAGES:
            command.language = _LANGUAGES.get(language)
        else:
            raise FastjsonError(f"parse enum {brief(language)} error")
    except FastjsonError as error:
        raise RemotingCommandException(f"decode error, {error}") from None
    command.serialize_type = _JSON
    command.custom_header = command.body = command.file_region = command.release_region = None
    return command


def _loads_header(header: Buffer) -> object:
    """Return the header's fields. The fast parsers accept only plain JSON; a short header may be in the dialect."""
    if orjson is None:
        return _loads_without_orjson(header)
    try:
        return orjson.loads(header)
    except orjson.JSONDecodeError:  # the other parsers accept more, or report what is wrong
        return _loads_without_orjson(header)


def _loads_without_orjson(header: Buffer) -> object:
    text = fastjson.encodable(str(header, "utf-8", "replace").strip(" \t\r\n"))
    try:
        value, end = _scan_json(text, 0)
        if end == len(text):
            return value
        refused: Exception = FastjsonError("not close json text", end)
    except (StopIteration, ValueError, RecursionError) as error:
        refused = error
    if len(text) > MAX_DIALECT_LENGTH:
        raise RemotingCommandException(f"decode error, header is not JSON: {refused}")
    value = fastjson.loads(text)
    ext = value.get("extFields") if isinstance(value, dict) else None
    # Only the dialect has names that are not texts.
    if isinstance(ext, dict) and not all(isinstance(name, str) for name in ext):
        raise FastjsonError("illegal identifier in extFields")
    return value


def _int_field(value: object) -> int:
    """Return an int32. As in fastjson, absent, null and empty mean 0, and numbers may be in quotes."""
    if type(value) is not int:
        if value in (None, "", "null", "NULL"):
            return 0
        if not isinstance(value, (str, float, bool)):
            raise FastjsonError(f"parseInt error, {type(value).__name__}")
        try:
            value = int(value)
        except (ValueError, OverflowError):
            raise FastjsonError(f"parseInt error, {brief(value)}") from None
    if -0x8000_0000 <= value <= 0x7FFF_FFFF:
        return value
    raise FastjsonError("parseInt error, out of range")


def _check_elements(header: bytes) -> None:
    elements = len(header) - len(header.translate(None, _JSON_MARKS))
    if elements > MAX_HEADER_ELEMENTS:
        raise RemotingCommandException(f"decode error, header with {elements} elements")


def _check_depth(header: bytes, fields: object) -> None:
    """Refuse too many levels, because each parser and each version of Python has a different limit of its own."""
    if header.count(b"{") + header.count(b"[") > fastjson.MAX_DEPTH:
        fastjson.check_depth(fields)


def _text(value: object, header_length: int) -> str:
    """Return the text of any value, as fastjson converts it."""
    if isinstance(value, str):
        return value
    if isinstance(value, (dict, list)) and header_length > MAX_DIALECT_LENGTH:
        raise FastjsonError(f"syntax error, expect a text, actual {type(value).__name__}")
    return fastjson.dumps(value)


def _exact(value: object, header: Buffer, name: str) -> object:
    """Return a field that holds more than texts, parsed again: orjson reads integers above 64 bits as floats."""
    return value if orjson is None else _loads_without_orjson(header)[name]  # type: ignore[index]  # it has that field


def _ext_fields(value: object, header: Buffer) -> dict[str, str] | None:
    """Return texts by name. Other values become their text; null is left out."""
    if type(value) is dict:
        for item in value.values():
            if type(item) is not str:
                exact: dict[str, object]
                exact = _exact(value, header, "extFields")  # type: ignore[assignment]  # a dict again
                return {name: _text(item, len(header)) for name, item in exact.items() if item is not None}
        return value
    if value is None:
        return None
    raise FastjsonError(f"syntax error, expect {{, actual {type(value).__name__}, fieldName extFields")


def _decode_rocketmq(header: bytes) -> RemotingCommand:
    fixed, remark, ext_fields = rocketmq_protocol_decode(header)
    command = RemotingCommand(fixed[0], fixed[4], remark, fixed[3])
    command.language = _LANGUAGES.get(fixed[1])
    command.version = fixed[2]
    command.ext_fields = ext_fields
    command.serialize_type = _ROCKETMQ
    return command
