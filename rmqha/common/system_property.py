"""Java's system properties, as they reach a process that is not a JVM.

`-Dname=value` in JAVA_OPT or JAVA_OPT_EXT, where the original's start scripts take it from, as they concatenate them:
the last one wins. Else the environment variable of the property's name in capitals with underscores:
`rocketmq.serialize.type` is ROCKETMQ_SERIALIZE_TYPE, `tls.server.keyPath` is TLS_SERVER_KEYPATH.
"""
import os
import shlex
from typing import overload

JAVA_OPTIONS = ("JAVA_OPT", "JAVA_OPT_EXT")


@overload
def get_property(name: str, default: str) -> str: ...


@overload
def get_property(name: str, default: None = None) -> str | None: ...


def get_property(name: str, default: str | None = None) -> str | None:
    """The property's value; `default` when it is not set.

    Java: java.lang.System#getProperty
    """
    flag = f"-D{name}"
    for variable in reversed(JAVA_OPTIONS):
        for option in reversed(_words(os.environ.get(variable, ""))):
            if option == flag or option.startswith(flag + "="):
                return option[len(flag) + 1:]
    return os.environ.get(name.upper().replace(".", "_"), default)


def parse_boolean(text: str | None) -> bool:
    """True for `true` in any capitals, False for all else.

    Java: java.lang.Boolean#parseBoolean
    """
    return text is not None and text.lower() == "true"


def _words(options: str) -> list[str]:
    try:
        return shlex.split(options)
    except ValueError:  # an open quote: as the shell's plain word splitting has it
        return options.split()
