"""The kinds of subscription expressions.

TAG: `tag1 || tag2`, or `*` or nothing for all. SQL92: AND OR NOT, comparisons, BETWEEN, IN ('a', 'b'), IS [NOT] NULL,
over properties, with strings, numbers, TRUE and FALSE.

Java: org.apache.rocketmq.common.filter.ExpressionType (4.9.8)
"""

SQL92 = "SQL92"
TAG = "TAG"


def is_tag_type(expression_type: str | None) -> bool:
    """Whether a subscription of this type is a list of tags; None and the empty text are."""
    return not expression_type or expression_type == TAG
