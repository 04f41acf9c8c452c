"""Lines of any server: start, files, connections, TLS, metrics, systemd, and the name server's routes."""
from rmqha.tools.explain.entry import Table

_START = "how-to/troubleshooting.md#start-and-stop"
T = Table("server", _START)

# ---- start and configuration

T.line("port-in-use", "is in use by {program}; stop it, or choose another {key}", "is in use by another user's process",
       "port {port} is in use by {program}", "Address already in use",
       means="Another process listens on the port. A broker needs listenPort, listenPort + 1 and listenPort - 2.",
       do="Stop that process, or choose another listenPort.")
T.line("port-not-allowed", "is not a valid port: 0 to 65535", "unknown host {host}, the address for port {port}",
       "may not be opened by this user", "port {port} of {host} ({key}) {why}",
       means="The configured port or address cannot be listened at.",
       do="Correct the key that the line names: ports below 1024 need root, addresses must be of this host.")
T.line("cannot-start", "The broker cannot start: {why}", "The broker cannot start", "{name} cannot start: {why}",
       "{name} cannot start",
       means="The server did not start; the text after the colon, or the traceback below, says why.",
       do="Look that text up with `rmqha explain`. Exit code 255: a port or a lock; 253: the store or a table.")
T.line("config-unknown-key", "unknown key {key}",
       means="The server does not know this key, so the line of the file has no effect.",
       do="Correct or remove it; `rmqha config check FILE` lists all such keys.",
       page="config-keys.md#how-to-set-a-key")
T.line("config-old-name", "{old} is the old name of {key}; please rename it",
       "{old} is the old name of {key}, which is set too and takes precedence",
       means="A config file uses a key's name from before RocketMQ 4.5. It still works.",
       do="Rename the key.", page="config-keys.md#how-to-set-a-key")
T.line("config-word", "{word} is ignored: it is neither an option nor key=value",
       means="A word on the server's command line has no meaning, so it was left out.",
       do="Write key=value, or give the option with its dash.", page="config-keys.md#how-to-set-a-key")
T.line("config-value", "cannot read the config file: {why}", "is not one of {words}",
       means="A config file has a value that its key cannot have, or cannot be read. The server does not start (exit "
             "code 2).",
       do="Correct the line; `rmqha config check FILE` shows all errors, `rmqha config explain KEY` the allowed "
          "values.")
T.line("shared-log", "another process also writes to {file}; when either process rotates the file, the other loses it",
       means="Two brokers of one host write to the same log files.",
       do="Set isolateLogEnable=true, so that each broker has its own log folder.", page="install.md#logs")
T.line("no-logs", "no log files: cannot create the folder {folder}: {error}",
       means="The log folder cannot be created, so log lines go to the standard error.",
       do="Create the folder for the server's user, or set ROCKETMQ_LOG_DIR.", page="install.md#logs")
T.line("compiled", "pure Python, slower", "install a C compiler, then reinstall rmqha",
       means="A compiled part is missing, so its Python twin is used. Everything works, but slower.",
       do="Install a C compiler, then run bin/ensure-venv again, or reinstall the package.", page="install.md")
T.line("limit-reached", "This process may open {count} files: raise `ulimit -n`",
       "The system has reached its limit of open files", "The system lacks memory, or this process maps",
       means="A limit of the process or of the system is reached: open files, memory, or memory maps.",
       do="Raise the limit that the line names, and restart the server.", page="how-to/troubleshooting.md#disk")

# ---- its tables

T.line("table-backup", "{file} could not be used; its backup file was loaded instead", "{what}; using its backup file",
       "load {file} failed, and try to load backup file", "Load KV config table exception, {file}: {error}",
       means="A table (topics, offsets, groups) was damaged or empty, and its .bak file was read. The last change "
             "before the damage may be missing.",
       do="Compare topics and groups with what should be there; check the disk.")
T.line("table-lost", "load {file} Failed: neither it nor its backup file is usable",
       means="A table of the server and its backup are damaged. The server does not start, because it would forget "
             "its topics or offsets.",
       do="Restore one of the two files from a backup or a replica; or remove both to start with an empty table.")
T.line("table-unsaved", "persist file {file} exception", "persist kvconfig Exception, {file}",
       "persist string2File error, no store path", "persist string2File error, {what}", "persist string2File error,",
       means="A table or the config file could not be written. The change is in force until the server stops, and is "
             "lost then.",
       do="Check the disk and the permissions of the folder. The server writes again with the next change.",
       page="how-to/troubleshooting.md#disk")
T.line("watch-failed", "{service} service has exception: {path}: {error}",
       means="A file that is checked for changes, such as a certificate, cannot be read. The loaded contents stay in "
             "use.",
       do="Correct the path or the permissions of the file.", page="tls.md")

# ---- threads

T.line("service-exception", "{service} service has exception.", "executeInvokeCallback Exception",
       means="One round of a service thread failed; the thread continues. The traceback below the line has the cause.",
       do="Look up the last line of the traceback (`rmqha explain`). If it is a fault of rmqha, report it with `rmqha "
          "support bundle`.")
T.line("service-ends", "{service} service gives up after {count} failures in a row: {error}",
       "{service} service cannot shut down in order: {error}",
       means="A service thread failed again and again, and has ended. The server is no longer whole; the server of a "
             "port stops itself.",
       do="Restart the server. Report the error at the end of the line, unless it is a lack of disk, memory or files.")
T.line("service-slow-stop", "{service} is still running {ms} ms after shutdown",
       means="A thread did not stop in time, usually because it waits for the disk or the network.",
       do="Nothing, if the process ended. Otherwise `rmqha support bundle` shows where it waits, with py-spy "
          "installed.")
T.line("task-failed", "{pool}: task {task} failed", "{pool}: scheduled task {task} failed", "callback {name} failed",
       "flushing {what} at the end of a round failed", "{name}: a task failed", "{name}: the tick failed",
       "{name}: handling an event failed", "{name}: closing {channel} failed", "a callback after writing failed",
       means="A piece of work inside the server failed; the server continues without it. The traceback below the line "
             "has the cause.",
       do="Look up the last line of the traceback. If it names no limit of the machine, report it as a fault of rmqha.")
T.line("no-thread", "{pool}: cannot start another thread, {count} are running: {error}",
       means="The system allows no more threads. The running ones do the work, more slowly.",
       do="Raise `ulimit -u`, TasksMax= in systemd, or the pids limit of the container.",
       page="clusters.md#under-systemd")
T.line("stall", "no other thread had a turn for {ms} ms{why}; CPU time in the last {span} ms",
       means="No thread of the broker ran for that long (stallWatchMs). The line says whether a garbage collection or "
             "a busy machine explains it; the stacks below show the call that held the interpreter.",
       do="If the machine had no core free, give it more. Otherwise report the stacks.",
       page="limits.md#finding-stalls")
T.line("watchdog", "not pinging the watchdog: the service's threads do not answer within {seconds} s",
       means="The server's threads do not answer, so systemd gets no sign of life and restarts the service.",
       do="Find the cause of the pause: `no other thread had a turn` in broker.log (stallWatchMs=50), a full machine, "
          "or a hanging disk.", page="clusters.md#under-systemd")
T.line("systemd", "cannot notify systemd of {what} at {address}: {error}",
       "{variable}={value} is not a valid number of microseconds",
       means="The server could not report its state to systemd, which may then think that it did not start.",
       do="Use the shipped unit files; in a container, unset NOTIFY_SOCKET.", page="clusters.md#under-systemd")

# ---- connections

T.line("not-reached", "createChannel: connect remote host[{address}] failed, {error}",
       "createChannel: connect remote host[{address}] timeout {ms}ms", "connect to {address} failed",
       "connect to <{address}> failed",
       means="A server's address cannot be reached. Often a broker announces an address (brokerIP1) that only its own "
             "host knows.",
       do="Check that the server runs; compare the address with bin/mqadmin clusterList; open the port.",
       page="how-to/troubleshooting.md#sending")
T.line("no-answer", "invokeSync: wait response timeout exception, the channel[{address}]",
       "invokeSync: close socket because of timeout, {ms}ms, {address}", "remove timeout request, {request}",
       "wait response on the channel <{address}> timeout, {ms}(ms)", "invokeSync call the addr[{address}] timeout",
       "invokeAsync call the addr[{address}] timeout", "sendDefaultImpl call timeout", "{call} call timeout",
       "wait response timeout {ms}ms", "wait response from {address} timeout",
       means="A request was sent and no answer arrived in time: the server is overloaded or paused, or the network "
             "loses packets. For a send, the message may or may not be stored.",
       do="Check the server's load and log of the same second. Raise the time-out only if the answers are slow by "
          "nature.", page="client.md#errors-of-sends")
T.line("send-request-failed", "send request failed to {address}. Request: {request}", "send request failed",
       "send a request command to channel <{address}> failed",
       "write send a request command to channel <{address}> failed", "send request to <{address}> failed",
       "send a request command to channel <{address}> Exception",
       "invokeSync: send request exception, so close the channel[{address}]",
       "invokeAsync: send request exception, so close the channel[{address}]",
       "invokeOneway: send request exception, so close the channel[{address}]",
       means="The connection broke while a request was written: the peer closed it or died.",
       do="Nothing, if the peer was restarted. Otherwise look at the peer's log of the same second.",
       page="client.md#errors-of-sends")
T.line("too-fast", "invoke too fast", "tryAcquire semaphore timeout, {ms}", "executor rejected",
       "execute callback in executor exception, maybe executor busy: {error}",
       means="More requests are in progress than the client or server allows at a time (one-way and asynchronous "
             "calls).",
       do="Wait for answers before sending more, or raise clientAsyncSemaphoreValue or clientOnewaySemaphoreValue.",
       page="config-keys.md#connections")
T.line("lock-namesrv", "getAndCreateNameserverChannel: try to lock name server, but timeout, {ms}ms",
       "updateTopicRouteInfoFromNameServer tryLock timeout {ms}ms",
       means="Another thread is connecting to a name server and takes long: the name server does not answer.",
       do="Check the name servers' addresses; remove those that no longer exist.",
       page="how-to/replace-the-name-server.md")
T.line("late-answer", "receive response, but not matched any request, {address}",
       "receive reply message, but not matched any request, CorrelationId: {id}",
       means="An answer arrived after its request had timed out, or on another connection. It is ignored.",
       do="If it repeats, find out why the peer answers late: its load, pauses, or too short a time-out.",
       page="client.md#errors-of-sends")
T.line("idle", "NETTY SERVER PIPELINE: IDLE exception [{address}]", "NETTY CLIENT PIPELINE: IDLE exception [{address}]",
       "NETTY SERVER PIPELINE: exceptionCaught", "NETTY CLIENT PIPELINE: exceptionCaught",
       "read from {address} failed: {error}",
       means="A connection was unused for 120 seconds, or broke, and is closed. Clients connect again when they need "
             "it.",
       do="Nothing.", page="config-keys.md#connections")
T.line("bad-frame", "decode exception, {address}: {error}", "Failed field [{field}] decoding: {error}",
       "serving {channel} failed", "can't serve {channel}: {error}", "connection from {address} failed",
       "write to {channel} failed",
       means="A connection sent bytes that are not a request, or serving it failed; it is closed. Port scans, health "
             "checks over HTTP and TLS at a plain port look like this.",
       do="Find out what connects from that address. If it is a RocketMQ client, report the line with its version.",
       page="limits.md#frames-and-headers")
T.line("too-many-bytes", "incomplete frames exceed {limit} bytes; closing the connection with the oldest: {address}",
       means="Connections began very large requests and did not finish them. The one that began first is closed.",
       do="Look at the address: a slow or broken client, or an attack.", page="limits.md#frames-and-headers")
T.line("accept-failed", "accept failed: {error}; not accepting for {ms} ms", "accept failed: {error}",
       means="The server cannot accept a new connection, usually for lack of descriptors. Existing connections work.",
       do="Raise LimitNOFILE= (ulimit -n); look for clients that open connections and do not close them.",
       page="clusters.md#under-systemd")
T.line("event-dropped", "event queue size [{size}] over the limit [{limit}], so drop this event",
       means="Connections open and close faster than the server notes them. A broken client may be noticed later.",
       do="Find the clients that reconnect all the time: see the addresses in remoting.log.")
T.line("unknown-cause", "unknown reason. addr: {address}", "unknow reseaon", "pullAsync unknow exception",
       "unknown exception",
       means="A Java client got neither an answer nor an error for a request.",
       do="Look at the client's and the server's log of the same second; treat the request as failed.",
       page="client.md#errors-of-sends")
T.line("request-failed", "process request exception, {address}: {error}", "process request exception",
       "process request over, but response failed",
       means="A request could not be served. With a text after the address, the request itself was malformed or "
             "refused; otherwise the traceback below shows a fault of the server.",
       do="Correct the client in the first case; report the traceback in the second.")
T.line("not-supported", "request type {code} not supported",
       means="The server does not serve this request code: the request belongs to another kind of server, or to "
             "another version of RocketMQ (POP, gRPC and other requests of 5.x).",
       do="Check the address (a broker's port is not a name server's), and the client's version.",
       page="reference/request-codes.md")
T.line("field-missing", "the custom field <{field}> is null", "the custom field <{field}> is invalid: {error}",
       "the custom field {field} is null",
       means="A request lacks a field, or the field's value is not valid.",
       do="Correct the client or the tool that sends it; RocketMQ's own clients set these fields.",
       page="reference/request-codes.md")

# ---- TLS

T.line("tls-mode",
       "Clients intend to establish an insecure connection while this server is running in SSL enforcing mode",
       "Clients intend to establish an SSL connection while this server is running in SSL disabled mode",
       means="A client and the server do not agree on TLS: one uses it, the other does not.",
       do="Set tls.enable=true in the client, or tls.server.mode=permissive at the server.", page="tls.md")
T.line("tls-timeout", "TLS handshake timed out, {address}",
       means="A peer opened a TLS connection and did not finish the handshake.",
       do="Usually a port scan or a health check. If it is a client, check its certificates.", page="tls.md")
T.line("tls-client-auth", "tls.server.authClient is not true, but tls.server.need.client.auth=require",
       means="The server verifies clients' certificates although authClient is off: it differs from RocketMQ here.",
       do="Set tls.server.authClient=true to make the intention clear.", page="tls.md#differences-from-rocketmq")
T.line("tls-key-place", "{key} is a system property; it is not read from this file",
       means="tls.server.mode and tls.enable are not read from the TLS file, as in RocketMQ.",
       do="Set them with -D in JAVA_OPT, see the page.", page="tls.md#where-settings-come-from")
T.line("tls-certificate", "certificate verify failed", "CERTIFICATE_VERIFY_FAILED", "PKIX path building failed",
       "unable to find valid certification path", "certificate has expired", "bad certificate", "unknown ca",
       means="A peer's certificate is not trusted: its authority is not in the trusted certificates, it has expired, "
             "or it is made for another name.",
       do="Check with openssl s_client -connect HOST:PORT; correct trustCertPath or renew the certificate.",
       page="tls.md")

# ---- metrics and the HTTP port

T.line("metrics-late", "metrics: out of time at {name}; it and all later metrics are missing",
       "metrics: cannot report {name}", "the page {page} failed",
       means="A scrape took too long, or a metric failed: the answer lacks some metrics.",
       do="With very many topics, raise the scrape's time limit or set metricsNames; otherwise report the traceback.",
       page="metrics.md#what-a-scrape-costs")
T.line("metrics-missing", "{key}={port}: /metrics answers 501, the other pages work: {how}",
       means="The port for health checks is open, but the metrics for Prometheus need prometheus-client.",
       do="Install the extra metrics, with the command in the line, if Prometheus should read this server.",
       page="metrics.md#turn-it-on")
T.line("http-full", "{service}: too many connections at a time; closing the one from {address}",
       means="The metrics port has more connections than it serves.",
       do="Find out what polls the port; a single Prometheus needs one or two connections.", page="metrics.md")

# ---- the name server

T.line("broker-silent", "The broker channel expired, {address} {ms}ms",
       "the broker's channel destroyed, {address}, clean it's data structure at once",
       means="A broker sent no heartbeat to the name server for 120 seconds, or its connection broke. Its routes are "
             "removed; clients use the other brokers.",
       do="Start the broker, or check the network between it and the name server.")
T.line("broker-gone", "remove brokerName[{name}] from {table}", "remove brokerAddr[{id}, {address}] from",
       "unregisterBroker, remove {what}", "remove topic[{topic} {queues}], from topicQueueTable",
       "remove topic[{topic}] all queue, from topicQueueTable",
       "remove the clusterName[{cluster}] from clusterAddrTable",
       means="The name server removed what a departed broker had registered.",
       do="Nothing, if the broker was stopped on purpose.")
T.line("broker-replaced", "cluster [{cluster}] brokerName [{name}] master address change from {old} to {new}",
       means="A broker registered as master under a name whose master was at another address: a failover, a broker "
             "that has moved, or two brokers with one name and id, whose registrations alternate.",
       do="Nothing once. If it repeats, give each broker its own brokerName or brokerId; `rmqha doctor -n ...` finds "
          "the pair.", page="replication.md#two-brokers-with-one-identity")
T.line("bad-registration", "receive registerBroker request,crc32 not match,from {address}",
       "getAllTopicList Exception: no cluster {cluster}",
       means="A registration arrived damaged, or a tool asked for a cluster that is not registered. The request was "
             "refused.",
       do="For a registration: check the network between broker and name server. For a tool: correct the cluster's "
          "name.")
T.line("no-route", "No topic route info in name server for the topic: {topic}",
       means="No broker has registered the topic at this name server.",
       do="Create the topic: bin/mqadmin updateTopic -c CLUSTER -t TOPIC. If it exists, check that the brokers and "
          "the client use the same name servers.", page="how-to/troubleshooting.md#sending")
