"""Failover: three replicas under a controller, with 16 producers, whose master dies, hangs, is cut off or switched.

    __main__.py  the campaign: `python -m tests.faults.failover`
    lives.py     the faults: kill, hang, switch, mixed, partition; many lives in parallel, from one seed
    cluster.py   brokers, controllers, etcd; a network for each, with cuts; a planned switch of the master
    traffic.py   the producers
    judge.py     the invariants

The controller and the brokers are those of rmqha or of 5.1.4, in any combination.
"""
