"""The state of a table that a receiver has, so that rmqha's servers send each other only what has changed since.

These header fields are extensions of rmqha. RocketMQ ignores them and does not answer with them, so that with it the
whole table is sent. A state is a mark of `ChangeLog`.

    a slave's request for a table    KNOWN: the last state that it received, "" for none; CHANGES: it accepts changes
    its master's answer              TOLD: the current state, without a body if the slave has it; CHANGES: the body
                                     holds only the entries that have changed since KNOWN

    a broker's registration          NOW: the state of its topics; SINCE: the state since which the body holds the
                                     changes; ALONE: the topic that an administrator has created or changed: for all
                                     other topics, an administrator's changes at the name server are kept
    its name server's answer         TAKEN: the state that it has now; empty if it needs the whole table

Of brokers whose master registers an address that it shares with the other replicas (masterAddress):

    a master's registration          EPOCH: the epoch of its mastership; an older one is refused
    a request to unregister          SHARED: that address, which is given up if this connection registered it last
"""
KNOWN = "knownTableVersion"
TOLD = "tableVersion"
CHANGES = "tableChanges"
SINCE = "topicsSince"
NOW = "topicsNow"
ALONE = "topicAlone"
TAKEN = "topicsTaken"
EPOCH = "masterEpoch"
SHARED = "sharedAddress"
