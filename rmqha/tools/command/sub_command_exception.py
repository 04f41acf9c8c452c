"""The one error of sub-commands."""


class SubCommandException(Exception):
    """A sub-command failed; its cause is the exception's `__cause__`.

    Java: org.apache.rocketmq.tools.command.SubCommandException (4.9.8)
    """


class JavaException(Exception):
    """Something is wrong with what was given; the text says what. The original throws the base of all exceptions.

    Java: java.lang.Exception
    """
