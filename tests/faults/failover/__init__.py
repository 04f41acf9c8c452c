"""Failover: three replicas under a controller, whose master dies, hangs, is cut off or switched, under 16 producers.

    __main__.py  the campaign: `python -m tests.faults.failover`
    lives.py     what is done: kill, hang, switch, mixed, partition; lives side by side, from one seed
    cluster.py   brokers, controllers, etcd; a network for each, with cuts; a planned change of the master
    traffic.py   the producers
    judge.py     what must hold

The controller and the brokers are rmqha's or those of 5.1.4, in any mix.
"""
