"""Each fast way of the code beside the plain one: drawn cases, and faults planted on purpose; see way.py.

    python -m tests.fast_ways [--way X]                compare, and look for the planted faults
    python -m tests.fast_ways --seeds 1000 [--way X]   the same with so many drawn cases of each
    python -m tests.fast_ways --page                   write docs/reference/fast-ways.md
"""
