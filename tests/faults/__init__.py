"""Faults, and what must hold after them.

Of one store, killed at named points: a process kills itself with SIGKILL. That loses what the process has in its memory
and keeps the page cache: everything that reached a map or a file is there after it, in the order in which it was
written.

    points.py    the points by name, and how each is planted from outside: nothing in rmqha knows of them
    workload.py  what the processes do: put until killed; open, check and close
    harness.py   processes without the cost of starting Python each time, and the rounds over the points

Of a master and its slave, whole brokers under load, either of which may be the real RocketMQ:

    campaign.py  many lives of many kinds side by side, from one seed
    fault.py     the face of a kind; pair.py, pair_broker.py: the brokers
    senders.py   the load: drawn_messages.py; offsets.py: consumer offsets
    verdict.py   what must hold after each cycle; log_copy.py: a log as the oracle reads it; last_word.py: at the end
    kills.py     kill -9 and SIGTERM, again while it recovers     pair_points.py  kill -9 at named points
    stops.py     SIGSTOP
    links.py     cuts of the network (network.py: namespaces)     proxies.py  delays, single bytes, torn frames
    power.py     loss of power (images.py: loop devices)          disks.py    failing and slow fsyncs, full file systems
    tails.py     whole records behind a torn one                  peers.py    peers that lie about their offsets
    clocks.py    wall clocks that jump                            descriptors.py  no descriptors left
    quiet.py     port probes, and two minutes without load
    preloads.py  C libraries of disks.py and clocks.py
    planted.py   brokers with a fault in them, which have to be found out

__main__.py has the long forms. What a machine can't do (no root, no namespaces, no loop devices) is left out, and says
why.
"""
