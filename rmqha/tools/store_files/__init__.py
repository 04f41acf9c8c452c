"""Looking at a store on disk, its broker running or not: dump, verify, diff, rebuild, du.

Everything here reads with pread and changes nothing, but `rebuild --apply`.
"""
