"""The filter languages there are.

Java: org.apache.rocketmq.filter.FilterFactory (4.9.8)
"""
from collections.abc import Mapping
from types import MappingProxyType

from rmqha.common import subscriptions
from rmqha.filter.expression.expression import Expression
from rmqha.filter.parser import selector_parser


class FilterSpi:
    """Java: org.apache.rocketmq.filter.FilterSpi (4.9.8)"""

    def compile(self, expr: str) -> Expression:
        """The expression of a text. MQFilterException."""
        raise NotImplementedError

    def of_type(self) -> str:
        """The expression type that it is for."""
        raise NotImplementedError


class SqlFilter(FilterSpi):
    """Java: org.apache.rocketmq.filter.SqlFilter (4.9.8)"""

    def compile(self, expr: str) -> Expression:
        """The condition of a text. MQFilterException."""
        return selector_parser.parse(expr)

    def of_type(self) -> str:
        """SQL92."""
        return subscriptions.SQL92


# Differs: the languages are fixed; the original lets programs that embed it register more
FILTER_SPI_HOLDER: Mapping[str | None, FilterSpi] = MappingProxyType({spi.of_type(): spi for spi in (SqlFilter(),)})


def get(expression_type: str | None) -> FilterSpi | None:
    """The language of an expression type, None for an unknown one."""
    return FILTER_SPI_HOLDER.get(expression_type)
