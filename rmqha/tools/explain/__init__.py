"""`rmqha explain`: the meaning of a line of a log, an error or a code, and what to do.

    known/*: tables of Entry --> Catalog: an index of words --> explain(line) --> Match, best first
    a log --> LineReader: bounded lines --> Summary: which entries, how often, first and last time
"""
