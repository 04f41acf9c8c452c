"""Where an expression's names get their values from."""
from typing import Any


class EvaluationContext:
    """Java: org.apache.rocketmq.filter.expression.EvaluationContext (4.9.8)"""

    def get(self, name: str) -> Any:
        """The value of a name, None when there is none."""
        raise NotImplementedError

    def key_values(self) -> dict[str, Any] | None:
        """All names with their values; a copy."""
        raise NotImplementedError


class EmptyEvaluationContext(EvaluationContext):
    """No name has a value.

    Java: org.apache.rocketmq.filter.expression.EmptyEvaluationContext (4.9.8)
    """

    def get(self, name: str) -> Any:
        """None."""
        return None

    def key_values(self) -> dict[str, Any] | None:
        """None."""
        return None
