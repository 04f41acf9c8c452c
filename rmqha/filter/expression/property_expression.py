"""A property's name."""
from rmqha.filter.expression.evaluation_context import EvaluationContext
from rmqha.filter.expression.expression import Expression
from rmqha.filter.expression.java_values import Value


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
