"""Names without a line: states of `ha status`, findings of doctor, alerts of conf/prometheus/alerts.yml."""
from rmqha.tools.explain.entry import Kind, Table

_PAGE = "replication.md#states-of-a-slave"
T = Table("state", _PAGE)
for _name, _means, _do in (
    ("TRANSFER", "The slave is connected and receives the master's log.", "Nothing."),
    ("SUSPEND", "The transfer to the slave pauses for a moment, because of haFlowControlEnable.", "Nothing, unless "
     "its lag grows: raise maxHaTransferByteInSecond."),
    ("CONNECTED", "The slave is connected; its master (5.1.4) reports no more than that.", "Nothing."),
    ("FOLLOWS", "The slave's log grows with its master's. A 4.9 master reports nothing more.", "Nothing."),
    ("READY", "The slave has no replication connection, or has reported nothing on it yet.",
     "Wait some seconds; then see its last error."),
    ("HANDSHAKE", "Slave and master are comparing their logs.", "Wait; with large differences this takes some "
     "seconds."),
    ("SHUTDOWN", "The replication of this broker is shut down.", "Start the broker."),
    ("UNREACHABLE", "The broker does not answer the tool.", "Start it, or open the path to its listenPort. If it is "
     "gone for good, the name server forgets it after 2 minutes."),
    ("NOT_TOLD", "The broker answered, but refused to report its state.", "Use an account with permission, or a host "
     "on its white list."),
    ("NOT_CONNECTED", "The slave has no connection to its master; the line below the table has the reason.",
     "Check the master's HA port (listenPort + 1), the firewall, haMasterAddress and haAllowedPeers."),
    ("OTHER_MASTER", "The slave follows another server than the master of its name.", "Correct its haMasterAddress or "
     "remove it. A slave that has followed another master needs an empty store."),
    ("NO_SLAVE", "The broker at the slave's address is not a slave of this name.", "Give it brokerRole=SLAVE and its "
     "own brokerId above 0, or another brokerName."),
    ("STANDS_STILL", "The slave is behind and receives nothing.", "Wait 10 seconds; then check link, disk, and "
     "store.log of both brokers."),
    ("SILENT", "The connection exists, but one side has heard nothing for twice the heartbeat's interval.",
     "Check the network in both directions, then the load of both hosts."),
    ("DIVERGED", "The slave's log or queues differ from its master's.", "If the line names `rmqha ha rejoin`, run it. "
     "If its queues differ: stop it, rmqha store rebuild ROOT --apply --force. Otherwise set it up again."),
    ("AHEAD", "The slave holds more than its master: the master lost the end of its log, or the logs are unrelated.",
     "Stop both, compare with rmqha store diff, and keep the right one before anything is sent."),
    ("TOO_FAR_BEHIND", "The master has deleted what the slave needs.", "Set the slave up again with an empty store."),
    ("IDLE", "The answers do not show whether replication works: nothing was written meanwhile.", "rmqha check ha "
     "--probe sends a message and waits for it."),
    ("STRANGER", "A connection acknowledges the log and belongs to no registered slave.", "Nothing for a receiver; a "
     "slave needs the name servers of its master in namesrvAddr."),
    ("LOOKING", "The state is not known yet; another poll decides.", "Wait a few seconds."),
):
    T.name(Kind.STATE, _name, _means, _do)

_S = Table("status", "client.md#send")
for _name, _means, _do in (
    ("SEND_OK", "The message is stored, and flushed or replicated as the broker's settings demand.", "Nothing."),
    ("PUT_OK", "The store accepted the message.", "Nothing."),
    ("CREATE_MAPEDFILE_FAILED", "The store could not create its next file.", "Free space, or raise the limits of "
     "files and memory maps; see store.log."),
    ("OS_PAGECACHE_BUSY", "An append held the put lock too long, so the put was refused.", "Check the disk's latency."),
    ("PROPERTIES_SIZE_EXCEEDED", "The properties of the message exceed 32 KiB.", "Use smaller properties."),
    ("LMQ_CONSUME_QUEUE_NUM_EXCEEDED", "There are as many light queues as maxLmqConsumeQueueNum allows.",
     "Raise the key."),
    ("RECONSUME_LATER", "The listener asks for the message again, after a delay that grows.", "Nothing, if intended."),
    ("SUSPEND_CURRENT_QUEUE_A_MOMENT", "The ordered listener asks for the same messages again after a pause.",
     "Nothing, if intended."),
):
    _S.name(Kind.STATE, _name, _means, _do)

_A = Table("alert", "metrics.md#dashboards-and-alerts")
for _name, _means, _do, _page in (
    ("RmqhaServerDown", "Prometheus cannot scrape a server: its process ended, or its metrics port is not reachable.",
     "Start it, or open the port.", None),
    ("RmqhaBrokerNotReady", "The broker's /readyz is not 200.", "Read /readyz: it lists the reasons.", None),
    ("RmqhaScrapeIncomplete", "An answer lacked metrics.", "The server's log names them: out of time, or a failure.",
     None),
    ("RmqhaStalls", "No thread of the broker ran for more than a second within five minutes.", "broker.log has the "
     "stacks: `no other thread had a turn`.", "limits.md#finding-stalls"),
    ("RmqhaStoreFault", "The store has a fault: disk_full, flush_failed, a queue or index error, or diverged.",
     "disk_full ends when there is space. After the others, check the disk and restart the broker.",
     "how-to/troubleshooting.md#disk"),
    ("RmqhaDiskNearlyFull", "The log's disk is more than 85 % full; at 90 % messages are refused.",
     "Free space, or lower fileReservedTime.", "how-to/troubleshooting.md#disk"),
    ("RmqhaDispatchBehind", "More than 64 MB of the log are not in their queues yet: consumers cannot see them.",
     "Check disk and CPU; see store.log.", None),
    ("RmqhaAcknowledgementsSlow", "The p99 latency of puts is above half a second.", "Check flushes, and the lag of "
     "the slave of a SYNC_MASTER.", None),
    ("RmqhaFlushesSlow", "The p99 duration of flushes is above a second.",
     "The disk is too slow, or shared: iostat -x.", None),
    ("RmqhaPutsFail", "Messages are refused or not stored: puts fail.", "The broker's log shows the reason; look it "
     "up with `rmqha explain`.", None),
    ("RmqhaSlaveBehind", "A slave is more than 30 seconds behind.", "Check link, disk and load of the slave.",
     "how-to/troubleshooting.md#replication"),
    ("RmqhaSlaveNotConnected", "A slave does not follow its master.", "`rmqha ha status` has the reason.",
     "how-to/troubleshooting.md#replication"),
    ("RmqhaSlaveLost", "A master has fewer slaves than within the last day.", "Start the missing slave.",
     "how-to/troubleshooting.md#replication"),
    ("RmqhaSlaveRefused", "A master refuses a slave, because its log does not hold what the slave holds.",
     "`rmqha ha status` prints the remedy.", "replication.md#refused-slaves"),
    ("RmqhaSlaveDiffers", "Records of a slave's log differ from its master's.",
     "`rmqha ha status` shows whose copy is damaged.", "how-to/repair-a-slave.md"),
    ("RmqhaSlaveRefusesRecords", "A slave refused records that arrived damaged.", "If it repeats at one offset, run "
     "rmqha store verify at the master; otherwise check memory and network.", "replication.md#when-records-differ"),
    ("RmqhaSlaveNotScrubbed", "A slave's log was not compared for longer than haScrubPromise.", "`rmqha ha status` "
     "shows why; haScrubBytesPerSecond may be too low.", "replication.md#keys-of-scrubbing"),
    ("RmqhaNoMaster", "A broker name has no master: sends to it fail, its slaves still serve reads.",
     "Start the master, or fail over.", "how-to/troubleshooting.md#failover"),
    ("RmqhaBrokerDeparted", "A broker disconnected without unregistering and did not return for five minutes.",
     "Start it, or check its host.", None),
    ("RmqhaControllerNotReady", "A controller neither leads nor knows the leader.", "Read its /readyz; check etcd.",
     "controllers-at-etcd.md"),
    ("RmqhaNoControllerLeads", "No controller leads: masters stop acknowledging when their leases end.", "Start the "
     "controllers; check that etcd has a majority.", "how-to/troubleshooting.md#failover"),
    ("RmqhaNobodyElected", "A broker name has no master, and no in-sync replica is alive.",
     "Start a replica of its sync-state set.", "how-to/troubleshooting.md#failover"),
    ("RmqhaNobodyCouldTakeOver", "Only the master is in sync: if it fails, nothing can replace it.",
     "`rmqha ha status` shows what the others lack.", "how-to/troubleshooting.md#failover"),
    ("RmqhaGroupBehind", "A group has more than 100,000 unread messages.", "Add consumers, or make them faster.",
     "how-to/troubleshooting.md#consuming"),
    ("RmqhaGroupLate", "The oldest unread message of a group is more than ten minutes old.",
     "Add consumers, or make them faster.", "how-to/troubleshooting.md#consuming"),
    ("RmqhaGroupGone", "A group has unread messages and no member.", "Start its consumers, or delete the group.",
     "how-to/troubleshooting.md#consuming"),
    ("RmqhaDeadLetters", "A group gave up on messages within the last hour: all retries failed.", "Read its topic "
     "%DLQ%GROUP, and correct the listener.", "how-to/troubleshooting.md#consuming"),
):
    _A.name(Kind.ALERT, _name, _means, _do, _page)

_D = Table("doctor", "replication.md#doctor")
for _name, _means in (
    ("ports", "Whether the three ports of a broker are free, or answer, and whether other brokers can be reached at "
     "the addresses that they register."),
    ("addresses", "Whether the addresses that brokers announce (brokerIP1, brokerIP2) can be reached by others."),
    ("roles", "Whether names, ids and roles of the brokers fit together: one master per name, ids above 0 for slaves."),
    ("clocks", "Whether the clocks of the hosts agree: store times and delayed messages depend on them."),
    ("disk", "How full the store's disk is, and whether its file system is suitable."),
    ("limits", "Whether the limits of memory maps and open files suffice for the number of queues."),
    ("offsets", "Whether the logs of master and slave fit together."),
    ("store", "Whether the store's folders can be written, and whether the last broker shut down cleanly."),
    ("config", "Whether the keys of the file are known and valid, and whether replicas agree on them."),
    ("nameserver", "Whether the name servers answer and list the same brokers."),
    ("compiled", "Whether the compiled parts are installed; without them everything works, but slower."),
    ("replication", "The state of each slave, as `rmqha ha status` and `rmqha check ha` judge it."),
    ("controller", "Whether controllers answer and one leads, and whether a failover would succeed."),
):
    _D.name(Kind.CHECK, _name, _means, "The line after the finding, `-> ...`, says what to do about it.")

TABLES = (T, _S, _A, _D)
