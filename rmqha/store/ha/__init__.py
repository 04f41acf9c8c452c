"""Master-slave replication of the commit log, over one TCP stream of raw log bytes per slave.

    slave MasterConnection --8-byte reports--> ReadSocketService --> GroupTransferService --> put futures
    slave MasterConnection <--12-byte header + log bytes-- WriteSocketService <-- the mapped commit log
"""
