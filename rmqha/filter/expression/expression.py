"""What every expression can do."""
from rmqha.filter.expression.evaluation_context import EvaluationContext
from rmqha.filter.expression.java_values import Value


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
