"""Comparison of each fast path of the code with the plain one: drawn cases, and planted faults; see way.py.

    python -m tests.fast_ways [--way X]                compare, and find the planted faults
    python -m tests.fast_ways --seeds 1000 [--way X]   the same with 1,000 drawn cases of each
    python -m tests.fast_ways --page                   write docs/reference/fast-ways.md
"""
