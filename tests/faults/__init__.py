"""Faults, and the invariants that must hold after them.

Faults of one store, killed at named points: a process kills itself with SIGKILL. It loses its memory and keeps the
page cache: everything that was written to a map or a file survives, in the order in which it was written.

    points.py   the points by name, and how each is planted from outside: the code of rmqha does not know them
    harness.py  the work of the processes, forked to save the start of Python, and the rounds over the points

Faults of a master and its slave, whole brokers under load, either of which may be the real RocketMQ:

    campaign.py        many lives of many kinds in parallel, from one seed
    pair.py            the pair, consumer offsets, the base class of faults, and the final check of a life;
                       pair_broker.py: one broker, with C libraries preloaded
    senders.py         the load; drawn_messages.py: the messages
    verdict.py         the invariants after each cycle, of a log as the oracle reads it
    process_faults.py  kill -9 and SIGTERM, at any moment and at named points; SIGSTOP; port probes, and no load
    link_faults.py     cuts of the network (network.py: namespaces); delays, single bytes, torn frames; peers that lie
    machine_faults.py  loss of power (loop devices), failing and slow fsyncs, full file systems, torn logs, wall clocks
                       that jump, no descriptors left
    planted.py         brokers with a planted fault, which must be found

__main__.py has the long campaigns. Faults that a machine cannot do (no root, no namespaces, no loop devices) are
skipped with the reason.
"""
