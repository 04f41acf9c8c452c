"""Inspecting a store on disk, with or without a running broker: dump, verify, diff, rebuild, repair, du.

All commands read with pread and change nothing, except `rebuild --apply` and `repair --apply`.
"""
