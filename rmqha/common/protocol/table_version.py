"""Which state of a table somebody has, so that one of ours sends another one of ours only what has changed since.

Fields of ours, beside those of the original, which does not know them, answers none, and so sends and gets all. What
names a state is a mark of `ChangeLog`.

    a slave's question for a table   KNOWN the state that it was told last, "" for none; CHANGES that it takes changes
    its master's answer              TOLD the present state, without a body when that is known; CHANGES when the body
                                     holds only what has changed since

    a broker's registration          NOW the state of its topics; SINCE the state from which on the body tells changes;
                                     ALONE the topic that an administrator has made or changed: of the others, what an
                                     administrator has changed at the name server stays so
    its name server's answer         TAKEN the state that it has now; empty when it has to be told everything
"""
KNOWN = "knownTableVersion"
TOLD = "tableVersion"
CHANGES = "tableChanges"
SINCE = "topicsSince"
NOW = "topicsNow"
ALONE = "topicAlone"
TAKEN = "topicsTaken"
