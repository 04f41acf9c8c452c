"""A model of replicas, controllers and what lies between them, which takes every turn that its bounds allow.

    frozen     objects of rmqha as values
    rules      the decisions that the model asks: those of rmqha, or with one fault planted
    model      the state of all, what may happen next, and what must hold
    search     all states within bounds, or long walks; a trace of what went wrong
    planted    faults that must be found
"""
