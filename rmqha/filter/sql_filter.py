"""The language SQL92."""
from rmqha.common.filter import expression_type
from rmqha.filter.expression.expression import Expression
from rmqha.filter.filter_spi import FilterSpi
from rmqha.filter.parser import selector_parser


class SqlFilter(FilterSpi):
    """Java: org.apache.rocketmq.filter.SqlFilter (4.9.8)"""

    def compile(self, expr: str) -> Expression:
        """The condition of a text. MQFilterException."""
        return selector_parser.parse(expr)

    def of_type(self) -> str:
        """SQL92."""
        return expression_type.SQL92
