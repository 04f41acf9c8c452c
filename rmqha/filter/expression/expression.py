"""What every expression can do, where its names get their values from, and such a name."""
from typing import Any

from rmqha.filter.expression.java_values import Value


class EvaluationContext:
    """Java: org.apache.rocketmq.filter.expression.EvaluationContext (4.9.8)"""

    def get(self, name: str) -> Any:
        """The value of a name, None when there is none."""
        raise NotImplementedError


class EmptyEvaluationContext(EvaluationContext):
    """No name has a value.

    Java: org.apache.rocketmq.filter.expression.EmptyEvaluationContext (4.9.8)
    """

    def get(self, name: str) -> Any:
        """None."""
        return None


class Expression:
    """Evaluated against properties. Never changed once made, so threads may share it.

    Java: org.apache.rocketmq.filter.expression.Expression (4.9.8)
    """

    def evaluate(self, context: EvaluationContext) -> Value:
        """The value, None for SQL's NULL. FilterError where values don't fit."""
        raise NotImplementedError


class BooleanExpression(Expression):
    """Its value is true, false or NULL.

    Java: org.apache.rocketmq.filter.expression.BooleanExpression (4.9.8)
    """

    def matches(self, context: EvaluationContext) -> bool:
        """Whether the value is true."""
        return self.evaluate(context) is True


class PropertyExpression(Expression):
    """The value of a property: a text, or NULL.

    Java: org.apache.rocketmq.filter.expression.PropertyExpression (4.9.8)
    """

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def evaluate(self, context: EvaluationContext) -> Value:
        """The property's text."""
        return context.get(self.name)  # type: ignore[no-any-return]  # contexts hold such values

    def __str__(self) -> str:
        return self.name
