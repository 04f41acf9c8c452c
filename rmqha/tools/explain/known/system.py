"""Errors of the operating system, of Python and of Java, as they appear at the end of many lines."""
from rmqha.tools.explain.entry import Table

_DISK = "how-to/troubleshooting.md#disk"
T = Table("system")

T.line("no-space", "No space left on device", "Disk quota exceeded",
       means="The disk, or the user's quota, is full.",
       do="Free space (df -h, df -i: inodes count too), or lower fileReservedTime.", page=_DISK, names=("ENOSPC",))
T.line("too-many-files", "Too many open files", "Too many open files in system",
       means="The process, or the system, has reached its limit of open files and connections.",
       do="Raise LimitNOFILE= (ulimit -n) or fs.file-max, and restart the server. `rmqha doctor -c FILE` computes "
          "what a store needs.", page=_DISK, names=("EMFILE", "ENFILE"))
T.line("no-memory", "Cannot allocate memory", "MemoryError", "java.lang.OutOfMemoryError: {what}",
       "Killed process {pid}", "unable to create native thread", "can't start new thread",
       means="The system lacks memory, memory maps (vm.max_map_count) or threads for the process.",
       do="Add memory, or raise vm.max_map_count, ulimit -u or the container's limits. dmesg shows whether the kernel "
          "killed a process.", page=_DISK, names=("ENOMEM",))
T.line("disk-error", "Input/output error", "Structure needs cleaning", "Remote I/O error",
       means="The disk or its file system is defective.",
       do="Stop the broker, check dmesg and smartctl, and restore from a replica: its data cannot be trusted.",
       page=_DISK, names=("EIO",))
T.line("read-only-fs", "Read-only file system",
       means="The file system is mounted read-only: by intention, or because the kernel found an error.",
       do="Look into dmesg before you remount it for writing.", page=_DISK, names=("EROFS",))
T.line("permission", "Permission denied", "Operation not permitted",
       means="The user of the process may not read or write the file, or open the port.",
       do="Correct the owner: chown -R the store, conf and logs to the server's user. SELinux and AppArmor log in "
          "audit.log.",
       page="how-to/troubleshooting.md#start-and-stop", names=("EACCES", "EPERM"))
T.line("missing-file", "No such file or directory",
       means="A file or folder that is needed does not exist: a wrong path, a missing mount, or a deleted folder.",
       do="Check the path in the line, and that its file system is mounted.",
       page="how-to/troubleshooting.md#start-and-stop", names=("ENOENT",))
T.line("stale", "Stale file handle", "Transport endpoint is not connected",
       means="A network file system lost its server. Stores on such file systems are not safe.",
       do="Move the store to a local disk.", page=_DISK, names=("ESTALE",))
T.line("refused", "Connection refused",
       means="Nothing listens at that address and port, or a firewall rejects the connection.",
       do="Start the server; compare the address with its listenPort (HA: listenPort + 1, fast port: listenPort - 2).",
       page="how-to/troubleshooting.md#tools", names=("ECONNREFUSED",))
T.line("reset", "Connection reset by peer", "Broken pipe", "Connection aborted",
       means="The other side closed the connection: it ended, crashed, or a device between them dropped it.",
       do="Look into the other side's log of the same second.",
       page="how-to/troubleshooting.md#tools", names=("ECONNRESET", "EPIPE"))
T.line("unreachable", "No route to host", "Network is unreachable", "Connection timed out", "Name or service not known",
       "Temporary failure in name resolution", "nodename nor servname provided",
       means="The host cannot be reached or its name cannot be resolved: network, firewall, routing or DNS.",
       do="Test with ping and nc -vz HOST PORT from the same machine.",
       page="how-to/troubleshooting.md#tools", names=("EHOSTUNREACH", "ENETUNREACH", "ETIMEDOUT"))
T.line("interrupted", "java.lang.InterruptedException", "KeyboardInterrupt",
       means="A wait was ended by a shutdown, or by Ctrl-C.",
       do="Nothing, if the program was stopped.")
T.line("java-exception", "MQBrokerException", "MQClientException",
       means="The client's exception for an error answer of a server (MQBrokerException), or for an operation that "
             "failed at the client (MQClientException). Its text has CODE and DESC.",
       do="Look up the code and the text after DESC.", page="client.md#errors-of-sends")
T.line("java-remoting", "RemotingTimeoutException", "RemotingConnectException", "RemotingSendRequestException",
       "RemotingTooMuchRequestException", "RemotingCommandException",
       means="The client's exceptions of the transport: no answer in time, no connection, the connection broke, too "
             "many requests at a time, a malformed header.",
       do="Look up the text after the exception's name. A send that ended like this may have been stored.",
       page="client.md#errors-of-sends")
T.line("java-npe", "java.lang.NullPointerException", "java.util.NoSuchElementException",
       means="A Java server or client met a missing value: a field that a request lacks, or a broker asked for "
             "statistics in its first second.",
       do="Read the first frames of the stack trace; correct the request, or ask again a second later.",
       page="reference/request-codes.md")
T.line("fork", "which was forked from it and has none of its threads",
       means="The program forked after it had started a client. The child has none of its threads.",
       do="Create and start a client in each process, after the fork.", page="client.md#processes-and-event-loops")
T.line("rmqha-bug", "internal error in rmqha, {error}", "Please report it",
       means="A command of rmqha failed for a reason that it does not know.",
       do="Run it again with RMQHA_TRACEBACK=1, and report the traceback.", page="how-to/troubleshooting.md#tools")
T.line("tool-no-answer", "the {server} can't be reached: nothing is listening there, or a firewall is in the way",
       "the {server} did not answer within {seconds} s: {error}",
       means="A command of rmqha asked a server, and got no answer.",
       do="Check the address; give a longer --timeout.", page="how-to/troubleshooting.md#tools")
T.line("tool-refused", "the {server} refused the request, no permission: {error}",
       "the {server} returned error {code}: {error}", "refused the request with code {code}: {error}",
       means="A server answered a command of rmqha with an error. The code and the text after it say which.",
       do="Look up the code and the text. For `no permission`, give the tool an admin's account; for rmqha: `rmqha "
          "context add NAME -n ... --access-key KEY`; for mqadmin: conf/tools.yml.",
       page="how-to/troubleshooting.md#tools")
