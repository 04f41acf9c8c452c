"""What the broker wants of a filter language."""
from rmqha.filter.expression.expression import Expression


class FilterSpi:
    """Java: org.apache.rocketmq.filter.FilterSpi (4.9.8)"""

    def compile(self, expr: str) -> Expression:
        """The expression of a text. MQFilterException."""
        raise NotImplementedError

    def of_type(self) -> str:
        """The expression type that it is for."""
        raise NotImplementedError
