"""AND and OR of true, false and NULL."""
from rmqha.filter.expression.expression import BooleanExpression, EvaluationContext


class LogicExpression(BooleanExpression):
    """Operands from left to right; the one value that decides (true for OR, false for AND) ends the evaluation.

    `a OR b OR c`, which the grammar nests to the left, is one expression with three operands: long
    chains need no stack.

    Java: org.apache.rocketmq.filter.expression.LogicExpression (4.9.8)
    """

    __slots__ = ("operands", "_deciding")

    def __init__(self, operands: list[BooleanExpression], deciding: bool) -> None:
        self.operands = operands
        self._deciding = deciding

    @staticmethod
    def create_or(left: BooleanExpression, right: BooleanExpression) -> "LogicExpression":
        """True when one is."""
        return LogicExpression._join(left, right, True)

    @staticmethod
    def create_and(left: BooleanExpression, right: BooleanExpression) -> "LogicExpression":
        """True when both are."""
        return LogicExpression._join(left, right, False)

    @staticmethod
    def _join(left: BooleanExpression, right: BooleanExpression, deciding: bool) -> "LogicExpression":
        if isinstance(left, LogicExpression) and left._deciding is deciding:
            left.operands.append(right)  # `left` is the parser's, and used nowhere else
            return left
        return LogicExpression([left, right], deciding)

    def evaluate(self, context: EvaluationContext) -> bool | None:
        """NULL when an operand is NULL and none decides."""
        deciding, unknown = self._deciding, False
        for operand in self.operands:
            value = operand.evaluate(context)
            if value is deciding:
                return deciding
            if value is None:
                unknown = True
        return None if unknown else not deciding

    @property
    def expression_symbol(self) -> str:
        """The operator, as the original writes it."""
        return "||" if self._deciding else "&&"

    def __str__(self) -> str:
        first, *others = map(str, self.operands)
        return "(" * len(others) + first + "".join(f" {self.expression_symbol} {other})" for other in others)
