"""Faults, and what must hold after them.

Of one store, killed at named points: a process kills itself with SIGKILL. That loses what the process has in its memory
and keeps the page cache: everything that reached a map or a file is there after it, in the order in which it was
written.

    points.py   the points by name, and how each is planted from outside: nothing in rmqha knows of them
    harness.py  what the processes do, which cost no start of Python each time, and the rounds over the points

Of a master and its slave, whole brokers under load, either of which may be the real RocketMQ:

    campaign.py        many lives of many kinds side by side, from one seed
    pair.py            the pair, consumer offsets, the face of a kind of fault, and the last word at the end of a life;
                       pair_broker.py: one broker, with C libraries preloaded
    senders.py         the load; drawn_messages.py: what is sent
    verdict.py         what must hold after each cycle, of a log as the oracle reads it
    process_faults.py  kill -9 and SIGTERM, at any moment and at named points; SIGSTOP; port probes, and no load
    link_faults.py     cuts of the network (network.py: namespaces); delays, single bytes, torn frames; peers that lie
    machine_faults.py  loss of power (loop devices), failing and slow fsyncs, full file systems, torn logs, wall clocks
                       that jump, no descriptors left
    planted.py         brokers with a fault in them, which have to be found out

__main__.py has the long forms. What a machine can't do (no root, no namespaces, no loop devices) is left out, and says
why.
"""
