"""Lines of the replication between master and slave, of both ends."""
from rmqha.tools.explain.entry import Table

_PAGE = "how-to/troubleshooting.md#replication"
_FAILOVER = "how-to/troubleshooting.md#failover"
T = Table("ha", _PAGE)

# ---- at the slave

T.line("master-gone", "connection to the master {address}: {error}", "the master {address} has closed the connection",
       "reportSlaveMaxOffset error, {offset}",
       means="The slave lost its connection to the master, or cannot make one. It tries again every few seconds.",
       do="Check that the master runs, and that its HA port (listenPort + 1) is reachable from the slave: firewall, "
          "haMasterAddress, haAllowedPeers of the master. `rmqha ha status` shows the state.")
T.line("master-silent", "HAClient, housekeeping, found this connection[{address}] expired, {ms}",
       "master not response some time, so close connection",
       means="The slave received nothing from its master for haHousekeepingInterval (20 s by default), and connects "
             "again. The link drops packets, or the master hangs.",
       do="Check the network in both directions, and the load and pauses of the master's host (stallWatchMs=50).")
T.line("bad-master-address", "the master's HA address {address} is not a valid host:port; keeping {old}",
       means="The name server or the controller reports an HA address that is not host:port.",
       do="Correct brokerIP2 of the master.")
T.line("other-ha-port", "the broker at {address} has the HA port {port}, not {due}",
       means="The slave follows an HA port that does not belong to the broker registered as its master: a proxy, or "
             "another server at that address.",
       do="Compare haMasterAddress with the master's brokerIP2 and listenPort + 1; remove the key to use the name "
          "server's answer.")
T.line("no-handshake",
       "the main port of the master {address} does not respond; following it like a RocketMQ 4.9 master, without "
       "comparing logs",
       "the master {address} rejects the request for a handshake (haHandshakeEnable=false?); following it without one",
       "the main port of the master {address} does not respond; the two logs can't be compared yet",
       means="The slave cannot compare its log with the master's before it follows: the master's listenPort is not "
             "reachable, or the master does not take part. A slave with another log is then noticed late.",
       do="Open the master's listenPort for the slave. With a Java master this is normal: only its last record can be "
          "compared.", page="replication.md")
T.line("handshake-failed", "the master {address} closed the connection when asked for a handshake",
       "the master {address} stopped responding during the handshake",
       "the master {address} does not respond to the request for a handshake",
       "the master does not read the messages of the handshake", "comparing with the master {address}: {error}",
       means="The comparison of the logs at the beginning of a connection did not finish. The slave tries again.",
       do="If it repeats, check the network and the master's store.log at the same time.")
T.line("damaged-bytes", "the master {address} sends damaged bytes: {flaw}; they are not appended or acknowledged",
       "The record is fetched again", "reported to the master {address} that its record at {offset} arrives damaged",
       means="A record failed its checks on arrival. The slave does not store it, and fetches it again. If it is "
             "damaged again, the master's own copy is damaged, or the two logs differ.",
       do="If the offset repeats, run rmqha store verify on the master's store. If offsets vary, check memory and "
          "network of both hosts.")
T.line("not-a-log", "the master's bytes are not a valid commit log: {error}; they are not appended",
       "{error}; the connection is closed",
       means="What arrives from the master is not its log: the slave connects to a wrong port, or the bytes are "
             "damaged.",
       do="Check haMasterAddress: it must be the master's listenPort + 1. If it is right, check the network.")
T.line("cannot-append", "can't append {size} bytes at commit log offset {offset}; they are not acknowledged",
       "appendToPhyQueue failed {offset} {size}: {why}", "appendData at {offset}, but the log ends at {end}",
       "can't flush the commit log up to {offset}; this offset is not acknowledged",
       means="The slave cannot store what it receives: its disk is full or defective, its store is read-only, or its "
             "log does not end where the master sends. Nothing is acknowledged.",
       do="See the end of the line and the first ERROR before it; then the slave's disk.", names=("APPEND_FAILED",))
T.line("offset-refused", "master pushed offset not equal the max phy offset in slave, SLAVE: {slave} MASTER: {master}",
       "the master {address} refuses this slave: SLAVE: {slave} MASTER: {held}",
       "slave[{address}] can't be served: SLAVE: {slave} MASTER: {begin} to {end}. The master {why}",
       "its log diverged: somewhere before {offset} its bytes differ from the master's",
       means="The master does not hold the end of the slave's log: the slave is ahead, too far behind, or has another "
             "log. Replication stops until an operator acts.",
       do="Run `rmqha ha status`: it prints the remedy, `rmqha ha rejoin` for an old master, a rebuild for a slave "
          "that is too far behind. Compare both stores with `rmqha store diff` before you delete one.",
       names=("OFFSET_REFUSED",))
T.line("first-file", "searching for the master's first file: {what}",
       "the master's log begins at {offset}, which is not the beginning of a commit log file of {size} bytes",
       "beyond the end of a file of {size} bytes: its files have another size",
       means="An empty slave looks for the beginning of its master's log, and the master's files have another size "
             "than the slave's, or expire while it looks.",
       do="Set mappedFileSizeCommitLog of the slave to the master's value.", page="replication.md")
T.line("truncating", "truncating the log at {offset}, it ended at {end}; the truncated bytes are kept in {path}",
       "this slave's log was truncated at {offset}, the last offset up to which it equals the master's",
       means="A slave that had diverged, usually an old master, gave up the messages that its new master does not "
             "have. They are kept in the file that the line names.",
       do="Look into that file with `rmqha store dump`, and resend messages that matter. Delete it when you are done.",
       page="how-to/failover-by-hand.md")
T.line("queues-differ", "this slave's queues differ from its master's: {why}",
       means="The slave's consume queues do not match the records that it receives: messages would get other queue "
             "offsets than at the master.",
       do="Stop the slave, run `rmqha store rebuild ROOT --apply --force`, and start it.",
       page="replication.md#its-queues-differ")
T.line("state-file", "can't read {file} ({error}); it is unknown whether the queues of this slave had diverged",
       "can't read {file} ({error}); scrubbing begins with a new round", "can't write {file}: {error}",
       means="A small file with the state of the slave's log check cannot be read or written. Replication itself is "
             "not affected; after a restart the check may begin again.",
       do="Check the disk and the permissions of storePathRootDir.")
T.line("scrub-differs", "scrubbing: this slave's log differs from its master's: {why}",
       means="The background comparison found records that differ from the master's. The line says whose copy is "
             "damaged.",
       do="Repair the slave, unless the master's copy is the damaged one: `rmqha ha status` prints what to do.",
       page="how-to/repair-a-slave.md")

# ---- at the master

T.line("slave-expired", "ha housekeeping, found this connection[{address}] expired, {ms}",
       means="The master has heard nothing from a slave for haHousekeepingInterval (20 s by default), and closes the "
             "connection. The slave connects again if it can.",
       do="Check the network between both hosts, and the slave's load. `rmqha ha status` shows whether it returned.")
T.line("bad-report", "slave[{address}] request offset={offset} after offset={last}",
       "slave[{address}] request offset={offset} greater than local commitLog offset={end}",
       "slave[{address}] reports offset={offset}, but was sent nothing beyond offset={sent}",
       "slave[{address}] repeats its report, {count} times so far", "slave[{address}]: {error}",
       means="A peer at the HA port sent a report that no slave sends. The connection is closed; no such report "
             "acknowledges a message.",
       do="Find out what runs at that address. Restrict the port with haAllowedPeers or a firewall.",
       page="replication.md#protecting-the-replication-port")
T.line("peer-not-allowed", "{address} is not in haAllowedPeers; closing its connection",
       means="A host that haAllowedPeers does not list connected to the HA port.",
       do="Add the address if it is a slave of this broker; otherwise nothing.",
       page="replication.md#protecting-the-replication-port")
T.line("too-many-peers",
       "more than {count} connections have reported nothing; closing the one silent longest: {address}",
       "more than {count} connections are having their logs compared; closing the one silent longest: {address}",
       means="Many peers connect to the HA port and report nothing: a port scan, a health check of that port, or many "
             "slaves at once. The oldest such connection is closed.",
       do="Let health checks use listenPort instead; restrict the HA port with haAllowedPeers or a firewall.",
       page="limits.md#the-replication-port")
T.line("twins", "slave {identity} has reconnected, from {new}; closing its connection from {old}",
       means="A slave connected a second time. Once, after an interruption, this is normal. Every minute, it means "
             "two brokers with the same cluster, name and id.",
       do="If it repeats, give one of the two brokers another brokerId. `rmqha doctor -n ...` finds the pair.",
       page="replication.md#two-brokers-with-one-identity")
T.line("lost-acknowledged", "slave {identity} had acknowledged {offset}, but returns with {now}",
       means="A slave acknowledged bytes that were only in its memory, and lost them in a power failure. The master "
             "sends them again; a failover meanwhile would have lost them.",
       do="Set haSlaveAckAfterFlush=true at the slaves if an acknowledgement has to mean two disks.",
       page="explanation/durability.md")
T.line("transfer-ended", "transfer to slave[{address}] ended: {error}", "can't start {service} for slave[{address}]",
       "new HAConnection exception",
       means="The transfer to a slave broke off, or could not begin for lack of threads or descriptors. The slave "
             "connects again.",
       do="If it repeats, the error in the line is the cause: network, or a limit of the process (ulimit -n, -u).")
T.line("flow-control", "Trigger HA flow control of slave[{address}], max transfer speed {speed}KB/s",
       means="haFlowControlEnable limits the transfer to a slave to maxHaTransferByteInSecond.",
       do="Raise maxHaTransferByteInSecond if the slave stays behind, or switch haFlowControlEnable off.",
       page="config-keys.md#replication")
T.line("wait-connection", "Wait HA connection establish with {address} timeout",
       means="A component that waited for a slave's connection to reach a state gave up.",
       do="`rmqha ha status` shows why the slave is not connected.")

# ---- roles that change

T.line("not-aligned", "offset {offset} is not align, truncate failed, need manual fix",
       "the logs are identical up to {offset}, but no record of this log begins there",
       means="The slave's log should be truncated where no record begins. It would be damaged, so nothing was done.",
       do="Set the slave up again with an empty store.", page="how-to/repair-a-slave.md#set-a-slave-up-again")
T.line("epoch-handshake", "slave[{address}] sends a report before its handshake",
       "slave[{address}] sends a handshake in state {state}",
       means="A peer does not follow the protocol of automatic failover: a slave of another version or with another "
             "setting of enableAutoSwitchHA or enableControllerMode.",
       do="Give all replicas of a broker name the same settings and, if possible, one version.",
       page="how-to/automatic-failover.md")
T.line("same-id", "slave[{address}] claims to be broker {id}, which is this broker",
       means="Two replicas have the same broker id: a store or an identity file was copied from one to the other.",
       do="Stop the copy, delete its brokerIdentity file, and start it: the controller gives it another id.",
       page="how-to/automatic-failover.md")
T.line("not-master-now", "slave[{address}] asks for the log, but this broker is not a master now",
       means="A slave follows a broker that is no longer the master. It finds the new master within seconds.",
       do="Nothing, if it ends. Otherwise look at `rmqha ha status`.", page=_FAILOVER)
T.line("waiting-for-role",
       "this store was in use before, and another broker may be the master by now: waiting to be made the master of "
       "an epoch above {epoch}", "warning: this broker has no role yet and accepts no messages until it has one: {why}",
       means="The broker waits until a controller or an operator gives it a role. It stores no messages until then.",
       do="Start the controllers, or correct controllerAddr. Without controllers: `rmqha ha promote -b HOST:PORT`.",
       page=_FAILOVER)
T.line("sync-set-shrinks",
       "brokers {ids} have not caught up for {ms} ms and leave the syncStateSet, which is now {set}",
       "slave {id} has disconnected and leaves the syncStateSet",
       means="A replica was too slow or lost its connection. Acknowledgements no longer wait for it, and it may not "
             "become the master until it has caught up.",
       do="`rmqha ha status` shows its lag and its error. With too few replicas left (minInSyncReplicas), sends fail.",
       page=_FAILOVER)
T.line("old-epoch", "newMasterEpoch {new} <= lastEpoch {last}, fail to change to master",
       "newMasterEpoch {new}, lastEpoch {last}, fail to stay the master",
       "newMasterEpoch {new} < lastEpoch {last}, fail to change to slave",
       "this replica cannot be the master of epoch {epoch}: the last epoch of its log is {last}",
       "cannot follow the master of epoch {epoch}: the last epoch of this replica's log is {last}",
       "epoch {epoch} is too old: the last one of this log is",
       means="An order to change roles is older than the last role change in this log: it is outdated, or the "
             "controllers have lost a part of their state. It is not obeyed, because two masters could write in one "
             "epoch.",
       do="Nothing, if a newer order follows at once. Otherwise check that the controllers' storage was not set back "
          "to an old copy.", page="failover.md")
T.line("epochs-missing", "this log ends at {end}, but has no epochs, so it can't be compared with the master's",
       "has not begun epoch {epoch} yet, its last is {last}", "which begins at {begin}, but this log has {epochs}",
       means="The epochs of the two logs do not match: the store is from the time before automatic failover was set "
             "up, or it belongs to another master.",
       do="Move the store away, and start the replica with an empty one.", page="how-to/automatic-failover.md")
