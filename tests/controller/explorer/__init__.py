"""A model of replicas, controllers and the network between them, which takes every path that its bounds allow.

    frozen     objects of rmqha as values
    rules      the decisions that the model calls: those of rmqha, perhaps with one planted fault
    model      the whole state, the possible events, and the invariants
    search     all states within bounds, or long walks; the trace to a violation
    planted    faults that the search must find
"""
