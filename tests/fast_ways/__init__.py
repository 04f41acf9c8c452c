"""Each fast way of the code beside the plain one: drawn cases, and faults planted on purpose; see way.py.

    python -m tests.fast_ways                          the table: way, condition, plain way, planted faults
    python -m tests.fast_ways --seeds 1000 [--way X]   so many drawn cases of each
"""
