"""Failover: three replicas under a controller, whose master dies, hangs, is cut off or switched, under 16 producers.

    __main__.py  the campaign: `python -m tests.faults.failover`     campaign.py   lives side by side, from one seed
    lives.py     what is done: kill, hang, switch, mixed, partition  switching.py  a planned change of the master
    cluster.py   brokers, controllers, etcd; star.py: a network for each, with cuts
    traffic.py   the producers                                       judge.py      what must hold

The controller and the brokers are rmqha's or those of 5.1.4, in any mix.
"""
