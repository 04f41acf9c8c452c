"""Killing a store at named points, and what must hold after it.

A process kills itself with SIGKILL. That loses what the process has in its memory and keeps the page cache: everything
that reached a map or a file is there after it, in the order in which it was written. What a loss of power would take
(pages that were never forced to the disk) is not tried here.

    points.py    the points by name, and how each is planted from outside: nothing in rmqha knows of them
    workload.py  what the processes do: put until killed; open, check and close
    harness.py   processes without the cost of starting Python each time, and the rounds over the points
    __main__.py  many seeds: python -m tests.faults --seeds 20
"""
