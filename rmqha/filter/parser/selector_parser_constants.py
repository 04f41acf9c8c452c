"""Token kinds and how error texts call them.

Java: org.apache.rocketmq.filter.parser.SelectorParserConstants (4.9.8)
"""

EOF = 0
LINE_COMMENT = 6
BLOCK_COMMENT = 7
NOT = 8
AND = 9
OR = 10
BETWEEN = 11
IN = 12
TRUE = 13
FALSE = 14
NULL = 15
IS = 16
DECIMAL_LITERAL = 17
FLOATING_POINT_LITERAL = 18
EXPONENT = 19
STRING_LITERAL = 20
ID = 21
EQUAL = 22
NOT_EQUAL = 23
GREATER = 24
GREATER_EQUAL = 25
LESS = 26
LESS_EQUAL = 27
LEFT_PARENTHESIS = 28
COMMA = 29
RIGHT_PARENTHESIS = 30
PLUS = 31
MINUS = 32

TOKEN_IMAGE = (
    "<EOF>", '" "', '"\\t"', '"\\n"', '"\\r"', '"\\f"', "<LINE_COMMENT>", "<BLOCK_COMMENT>", '"NOT"', '"AND"', '"OR"',
    '"BETWEEN"', '"IN"', '"TRUE"', '"FALSE"', '"NULL"', '"IS"', "<DECIMAL_LITERAL>", "<FLOATING_POINT_LITERAL>",
    "<EXPONENT>", "<STRING_LITERAL>", "<ID>", '"="', '"<>"', '">"', '">="', '"<"', '"<="', '"("', '","', '")"', '"+"',
    '"-"')
