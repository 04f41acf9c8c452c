"""What is wrong with an expression, in the original's words: clients get them as an answer's remark."""


class FilterError(Exception):
    """Something that parsing or evaluating met; `java_name` is the class that the original throws."""

    java_name = "java.lang.RuntimeException"

    def describe(self) -> str:
        """Java's toString()."""
        return f"{self.java_name}: {self}" if self.args else self.java_name


class NumberFormatError(FilterError):
    """A text that is not a number of the wanted type.

    Java: java.lang.NumberFormatException
    """

    java_name = "java.lang.NumberFormatException"


class ClassCastError(FilterError):
    """A boolean where the original wants a text.

    Java: java.lang.ClassCastException
    """

    java_name = "java.lang.ClassCastException"


class MQFilterException(Exception):
    """An expression that is not valid. Its text names the cause; `error_message` is general.

    Java: org.apache.rocketmq.filter.expression.MQFilterException (4.9.8)
    """

    def __init__(self, error_message: str, cause: str) -> None:
        super().__init__(cause)
        self.response_code = -1
        self.error_message = error_message
