"""Lines of the controllers, and of the brokers that obey them."""
from rmqha.tools.explain.entry import Table

_FAILOVER = "how-to/troubleshooting.md#failover"
_ETCD = "controllers-at-etcd.md"
T = Table("controller", _FAILOVER)

# ---- brokers

T.line("identity-file", "{error}; discarding it",
       means="The file in which the broker reserves its id was incomplete: the machine failed while it was written, "
             "and no id had been reserved. It is written again.",
       do="Nothing.")
T.line("id-unknown", "the controller does not know replica {id} of {name}; reserving its id again: {error}",
       means="The controllers have lost their record of this replica, for example after their storage was replaced. "
             "The broker registers again with the same id.",
       do="Check that the controllers use their usual storage: controllerStorePath, or the etcd cluster.")
T.line("heartbeat-failed", "heartbeat to the controller {address}: {error}",
       "Failed to update controller metadata: {error}",
       "Failed to start replicasManager, current state: {state}: {error}", "Failed to start replicasManager",
       "Error happen when get broker {name}'s metadata: {error}",
       "cannot resolve the controllers' host name {name}: {error}",
       "Error happen when change SyncStateSet to {set}, after epoch {epoch}: {error}",
       means="The broker cannot reach a controller, or the controller refuses its request. While no controller "
             "answers, a master keeps acknowledging only until its lease ends.",
       do="Check that the controllers run and that controllerAddr names all of them. `rmqha check controller` checks "
          "them.")
T.line("no-master-elected", "Now no master in broker set",
       "Old master has down and failed to elect a new broker master: {name}", "broker-set {name}: {why}",
       means="The controllers could not elect a master: no replica of the sync-state set is alive.",
       do="Start a replica of the sync-state set; `rmqha ha status` names them and says why others may not lead.")
T.line("sync-set-rejected", "the controller rejected the syncStateSet {set} as the successor of epoch {epoch}: {error}",
       means="The master asked for a change of the in-sync replicas that another change had overtaken. It reads the "
             "current set and asks again.",
       do="Nothing, unless it repeats for minutes: then two brokers believe to be the master, see `rmqha ha status`.")
T.line("role-command-failed", "onRoleChange {run} cannot be run: {error}",
       "onRoleChange {run} failed with exit code {code} after {ms} ms",
       means="The command of onRoleChange failed. The role has changed nevertheless, but what the command should have "
             "done is missing: an address or a label may still be at the wrong host.",
       do="Read the lines above this one, which have the command's output. Correct the command, then run it by hand "
          "with the role, the broker name and the epoch that the line names.")
T.line("role-command-slow", "onRoleChange {run} was killed after {ms} ms (onRoleChangeTimeoutMills)",
       "onRoleChange has not ended within {ms} ms; becoming the master nevertheless",
       "onRoleChange: process {pid} is still running",
       means="The command of onRoleChange took too long, and was killed. A new master waits for it at most for that "
             "time.",
       do="Make the command faster: long work belongs into the background. Or give it more time: "
          "onRoleChangeTimeoutMills. It adds to the time of a failover.")
T.line("relay-no-answer", "relay: no answer to {count} requests of {client}: {error}",
       means="This broker had relayed requests of a client to the master, which ended before it answered. The client "
             "got SYSTEM_ERROR, and sends again. Its messages may be stored, as after a time-out.",
       do="Find out why the master ended; its log and `rmqha ha status` help.")
T.line("relay-refused",
       "relay: the master {address} accepts no relayed requests, so clients that still know this broker as the master "
       "are refused until they learn its address: {error}",
       means="The master does not let this broker relay. Clients that have an old route get errors for up to 30 s.",
       do="AclException: add the addresses of all replicas to globalWhiteRemoteAddresses of the master's "
          "plain_acl.yml. `not supported`: the master is RocketMQ's, an older rmqha, or has relayToMaster=false.")
T.line("relay-full", "relay: a request of {client} is not relayed: too many are waiting for the master",
       "relay: cannot relay requests of {client}: {error}",
       means="More requests wait for the master than a relay holds. The client gets SYSTEM_BUSY, or is refused.",
       do="Check that the master answers: `rmqha ha status`. Clients that have learned its address do not need the "
          "relay.")
T.line("shutting-down", "cannot ask the old master for its consumer offsets: {error}",
       "cannot ask for the master's HA address: {error}", "cannot register at the name servers: {error}",
       "request to name server {address} not sent: too many requests are pending, or the broker is shutting down",
       means="The broker could not queue a request: it is shutting down, or too many are waiting because name servers "
             "or controllers answer slowly.",
       do="Nothing during a shutdown. Otherwise check the name servers that the neighbouring lines name.")

# ---- controllers

T.line("broker-silent", "The broker channel {channel} expired, brokerInfo {broker}, expired {ms}ms",
       means="A broker sent no heartbeat to the controller for its time-out. If it is the master, another one is "
             "elected.",
       do="Start the broker, or check the network between it and the controllers.")
T.line("cannot-continue", "The controller can't continue: {why}",
       means="The thread that serves the controller's port failed for good, so the controller ends (exit code 70).",
       do="Let systemd restart it; report the traceback above the line.")
T.line("not-leader", "The controller is not in leader state", "the controller {address} does not know a leader",
       means="A standby controller got a request that only the leader serves. Brokers ask the leader next.",
       do="Nothing. Tools: give all controllers, separated by semicolons.")
T.line("store-failed", "process request: {request} error, {error}", "{file} can't be written",
       "{file} can't be replaced now", "the store of the controller can't be read, see its log",
       "{file}: it is not known whether it was changed",
       means="The controller could not store its decision, so it made none, and no broker was notified.",
       do="Check the disk of controllerStorePath, or that etcd has a majority of its members.")
T.line("busy", "the brokers of {name} are being notified of a new master",
       "{key} can't be changed while the controller runs", "Heart beat with empty brokerId", "Heart beat success",
       means="A request to a controller comes at the wrong moment (a change of the master is going out), changes a "
             "key that is read only at the start, or is a heartbeat without an id.",
       do="Repeat the request a few seconds later; change such keys in the controller's file, and restart it.")
T.line("notify-failed", "Failed to notify broker {address} that role changed: {error}",
       means="The controller could not send a broker its new role. The broker learns it with its next heartbeat.",
       do="Nothing, if the broker is down. Otherwise open the path from the controllers to the broker's listenPort.")
T.line("open-port", "warning: port {port} is open on all addresses, and a controller does not authenticate clients",
       "warning: port {port} is open on all addresses and a name server has no authentication",
       means="A warning of each start: any host that reaches the port can change routes or roles.",
       do="Let only the cluster's hosts reach the port: use a firewall.", page="SECURITY.md#what-each-port-trusts")

# ---- etcd

T.line("etcd-silent", "etcd does not answer yet: {error}", "can't elect a controller: etcd does not answer: {error}",
       "controller {id} can't keep its leadership alive: {error}",
       "the leadership ends with its lease, in {seconds} s: {error}",
       means="The controller cannot reach etcd, or etcd has no majority. Without etcd no controller leads for longer "
             "than etcdLeaseSeconds.",
       do="Check that a majority of etcd's members is alive, and the address, account and certificates in the "
          "controller's file.", page=_ETCD)
T.line("lost-leadership", "controller {id} no longer leads: {why}",
       means="The controller gave up its leadership: its key in etcd is gone, or the result of a write is unknown. "
             "Another controller, or this one, is elected within seconds.",
       do="Nothing, if a controller leads again (`rmqha check controller`). If it repeats, check etcd's latency.",
       page=_ETCD)
T.line("etcd-value", "key {key} is not a broker's name; ignoring it",
       "the value of etcd's key {key} can't be used: {error}",
       means="etcd holds a key or value below the controllers' prefix that they did not write.",
       do="Remove it, or give the controllers a prefix of their own.", page=_ETCD)
