"""A message's properties as an expression sees them."""
from rmqha.filter.expressions import EvaluationContext


class MessageEvaluationContext(EvaluationContext):
    """Java: org.apache.rocketmq.broker.filter.MessageEvaluationContext (4.9.8)"""

    __slots__ = ("_properties",)

    def __init__(self, properties: dict[str, str] | None) -> None:
        self._properties = properties

    def get(self, name: str) -> str | None:
        """A property."""
        return self._properties.get(name) if self._properties is not None else None
