"""Which state of a table a slave has, so that a master of ours sends it only when it has another one.

Two fields of ours. A slave asks with the version that it was told last, or with nothing yet; the master tells its own,
and leaves the body out when it is the same one. An original master does not know the field, tells none, and sends all;
an original slave does not ask.
"""
KNOWN = "knownTableVersion"  # of a request: "" when none is known
TOLD = "tableVersion"  # of its answer
