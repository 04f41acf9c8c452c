"""The language a peer is written in."""
from enum import IntEnum


class LanguageCode(IntEnum):
    """The value is the byte of ROCKETMQ headers, the name is the text of JSON headers.

    Java: org.apache.rocketmq.remoting.protocol.LanguageCode (4.9.8)
    """

    JAVA = 0
    CPP = 1
    DOTNET = 2
    PYTHON = 3
    DELPHI = 4
    ERLANG = 5
    RUBY = 6
    OTHER = 7
    HTTP = 8
    GO = 9
    PHP = 10
    OMS = 11
    RUST = 12
