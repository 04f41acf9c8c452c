"""The filter languages there are.

Java: org.apache.rocketmq.filter.FilterFactory (4.9.8)
"""
from collections.abc import Mapping
from types import MappingProxyType

from rmqha.filter.filter_spi import FilterSpi
from rmqha.filter.sql_filter import SqlFilter

# Differs: the languages are fixed; the original lets programs that embed it register more
FILTER_SPI_HOLDER: Mapping[str | None, FilterSpi] = MappingProxyType({spi.of_type(): spi for spi in (SqlFilter(),)})


def get(expression_type: str | None) -> FilterSpi | None:
    """The language of an expression type, None for an unknown one."""
    return FILTER_SPI_HOLDER.get(expression_type)
