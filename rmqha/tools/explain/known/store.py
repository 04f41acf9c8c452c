"""Lines of the commit log, its flushes, its recovery, and the disk below it."""
from rmqha.tools.explain.entry import Table

_DISK = "how-to/troubleshooting.md#disk"
_START = "how-to/troubleshooting.md#start-and-stop"
_SEND = "how-to/troubleshooting.md#sending"
T = Table("store", _DISK)

# ---- the disk

T.line("disk-full", "{which} disk maybe full soon {used}, so mark disk full",
       means="The disk of the commit log (physic) or of the consume queues (logics) is above "
             "diskSpaceWarningLevelRatio, 0.90 by default. The broker refuses messages; consumers still read.",
       do="Free space on that disk, or lower fileReservedTime. Sends resume automatically.")
T.line("clean-failed", "disk space will be full soon, but delete file failed",
       means="The disk is nearly full and no commit log file could be deleted: all files are still within "
             "fileReservedTime, or the oldest is still being read.",
       do="Free space that other programs use, lower fileReservedTime, or move the store to a larger disk.")
T.line("delete-when", "deleteWhen={value} is not a valid list of hours: {error}",
       means="The key deleteWhen cannot be read, so expired files are deleted only when the disk fills up.",
       do="Set deleteWhen to hours from 00 to 23, separated by semicolons, for example 04.", page="config-keys.md")
T.line("clean-by-hand", "invoke deleteExpiredCommitLog {what}", "invoke cleanExpiredConsumeQueue {what}",
       "invoke cleanUnusedTopic {what}",
       means="An operator asked for a deletion: mqadmin deleteExpiredCommitLog, cleanExpiredCQ or cleanUnusedTopic.",
       do="Nothing, if you or a colleague ran the command.", page="mqadmin.md#sub-commands")
T.line("disk-unknown", "Error when measuring disk space usage, {why}",
       means="The broker cannot find out how full the disk is: the path is missing, or the file system does not "
             "answer. It then does not protect itself against a full disk.",
       do="Check that the store's folder exists and that its file system is mounted.")
T.line("file-locked-up", "delete file {file} Failed. {error}",
       "destroy mapped file[REF:{count}] {file} Failed. cleanupOver: {over}",
       "the mappedFile was destroyed once, but still alive, {file}", "the mappedFile re delete failed, {file}",
       "deleteExpiredFile remove failed.", "Found a hanged consume queue file, attempting to delete it.",
       "this being not executed forever.",
       means="A file that should be deleted is still being read, or the system refused to delete it. It keeps its "
             "disk space until a later try. Readers hold it for at most destroyMapedFileIntervalForcibly.",
       do="Nothing, if the line does not repeat for the same file. Otherwise look for slow readers, such as a "
          "consumer or a slave that does not read its answers, and check the permissions of the folder.")
T.line("still-read", "{file} is still being read; its memory is freed with the last reader",
       "a buffer of the TransientStorePool is still in use; its memory is freed with its file",
       means="A file was closed while a reader still held a part of it. Its memory stays until that reader is done.",
       do="Nothing: this is safe. If it appears often, look for readers that are very slow.")
T.line("unmapped-twice", "this file[REF:{count}] {file} have not shutdown, stop unmapping",
       "this file[REF:{count}] {file} have cleanup, do not do it again",
       means="The store tried to unmap a file that is in use, or that is already unmapped. Nothing was done.",
       do="Report it with `rmqha support bundle` if it repeats: no known situation causes it.")
T.line("hold-failed", "in flush, hold failed, flush offset = {at}", "in commit, hold failed, commit offset = {at}",
       "matched, but hold failed, request pos: {at}, fileFromOffset: {start}",
       means="A file was being deleted when it was about to be flushed or read. Its messages have expired.",
       do="Nothing. If it concerns recent messages, fileReservedTime is too short for the disk's size.")
T.line("bad-request-pos", "selectMappedBuffer request pos invalid, request pos: {at}, size: {size}",
       means="A reader asked for bytes beyond what is written in a file, usually with an offset from a message id or "
             "a tool that does not belong to this broker.",
       do="Check that the message id was made by this broker. If consumers see errors too, run rmqha store verify.")

# ---- appending

T.line("create-file", "create mapped file error, topic: {topic} clientAddr: {client}", "create mappedFile exception",
       "appendData getLastMappedFile error {at}", "create mmap timeout {file} {size}", "Failed to map file {file}",
       "create mapped file failed, server is busy or broken",
       means="The store could not create or map its next file, so a put or a slave's append failed.",
       do="The lines around it name the cause: a full disk, missing permission, or a limit of open files or memory "
          "maps. Raise LimitNOFILE or vm.max_map_count, or free space.")
T.line("pool-short", "TransientStorePool is not enough, so {effect}, RequestQueueSize : {size}",
       "TransientStorePool only remain {count} sheets.",
       means="With transientStorePoolEnable, all off-heap buffers are in use: the disk is slower than the producers.",
       do="Check the disk's latency, raise transientStorePoolSize, or switch the pool off.", page="config-keys.md")
T.line("message-too-large", "message body size exceeded, msg body size: {size}, maxMessageSize: {limit}",
       "message size exceeded, msg total size: {size}, msg body size: {body}, maxMessageSize: {limit}",
       "putMessage message properties length too long{size}", "PutMessages body length too long {size}",
       "putMessage message topic length too long {size}",
       "Properties size of messageExtBatch exceeded, properties size: {size}, maxSize: {limit}",
       "a message of {size} bytes does not fit into a file of the commit log",
       "the message is illegal, maybe msg body or properties length not matched",
       means="A producer sent a message whose body, properties or topic name is longer than allowed. It was refused "
             "and is not stored; the producer got MESSAGE_ILLEGAL.",
       do="Send smaller messages (properties: at most 32 KiB), or raise maxMessageSize on the master, on its slaves "
          "and in the clients.", page=_SEND)
T.line("message-refused", "can't store a message of topic {topic}: {why}",
       "can't store a batch of topic {topic}: {why}", "batch of topic {topic} is empty",
       "putMessage with topic {topic} and queue {queue} refused",
       means="A message or a batch cannot be stored as it was sent: the topic's name or a number does not fit into a "
             "record, or the batch is malformed. The producer got MESSAGE_ILLEGAL.",
       do="Correct the producer named in the same second of broker.log; the text after the colon says what is wrong.",
       page=_SEND)
T.line("append-failed", "append to the commit log failed: {error}",
       means="The operating system refused to store a message. Nothing was written, and the producer got an error.",
       do="Look up the error at the end of the line: usually the disk is full or defective.")
T.line("append-unknown", "can't append a message of topic {topic} to the commit log",
       "Commit log state is unknown after a failed append; the store is now read-only.",
       means="An append failed halfway for a reason that the broker does not know. To keep log and queues equal, the "
             "store takes no more messages.",
       do="Restart the broker: recovery checks what is on the disk. Report the traceback above the line.")
T.line("not-whole-noted", "can't note in the checkpoint that the record at {offset} is whole: {error}",
       means="The checkpoint file could not be written. A start after a crash checks a few more records; no message "
             "is lost.",
       do="Check the disk of storePathRootDir for space and errors.")
T.line("put-forbidden", "message store has shutdown, so putMessage is forbidden",
       "message store has shutdown, so {what} is forbidden",
       means="A request arrived while the broker was shutting down. It was refused.",
       do="Nothing: clients use another broker. If the broker should run, start it.")
T.line("slave-put", "broke role is slave, so putMessage is forbidden",
       "Message store is slave mode, so end transaction is forbidden",
       means="A client sent a message, or ended a transaction, at a slave. Only masters accept that.",
       do="Nothing just after a change of roles: clients learn the new route within 30 seconds. Otherwise check that "
          "the clients do not use the slave's address directly.", page=_SEND)
T.line("not-writable", "the message store is not writable. It may be caused by one of the following reasons: {reasons}",
       means="The store refuses messages: its disk is full, a flush failed, or a consume queue or the index could not "
             "be written. The line is repeated only every 50,000 refusals.",
       do="Look for the first ERROR before it in store.log: `so mark disk full`, `read-only` or `can not write` names "
          "which of these it is.")
T.line("not-readable", "message store is not readable, so getMessage is forbidden {flags}",
       means="The store does not serve pulls: an operator has switched reading off, or an error has.",
       do="Look for the first ERROR in store.log; restart the broker after the cause is removed.")
T.line("slow-put", "putMessage not in lock elapsed time(ms)={elapsed}, {result}",
       means="A put took more than 500 ms: it waited for the disk, for a slave, or for a pause of the whole process.",
       do="Compare with the flush latency and the slave's lag in the metrics; set stallWatchMs=50 to find pauses.",
       page="limits.md#finding-stalls")
T.line("put-future",
       "usually it will never timeout, putMessageTimeout is much bigger than slaveTimeout and flushTimeout",
       means="A put was neither confirmed nor refused within its time-outs plus 5 s: a thread of the flush or of the "
             "replication hangs.",
       do="Take a `rmqha support bundle` while it lasts, then restart the broker.")
T.line("multi-dispatch", "multiDispatch: {queue} in a message of topic {topic} is not a valid queue name",
       "rebuild msgInner for multiDispatch {result}", "[bug] queues.length!=queueOffsets.length {names} {offsets}",
       "record at {offset} names an invalid queue {queue}",
       means="A message with INNER_MULTI_DISPATCH (light queues) names a queue that cannot exist, or its lists of "
             "queues and offsets differ in length. It is not put into that queue.",
       do="Correct the producer, or the gateway that sets this property.", page="config-keys.md")
T.line("lmq-limit", "message store is not available, lmq consumeQueue num exceed maxLmqConsumeQueueNum config num",
       "[LMQ_CONSUME_QUEUE_NUM_EXCEEDED]broker config enableLmq and enableMultiDispatch",
       means="The broker has as many light queues as maxLmqConsumeQueueNum allows; new ones are refused.",
       do="Raise maxLmqConsumeQueueNum, or use fewer light queues.", page="config-keys.md")

# ---- flushing

T.line("flush-failed",
       "{service} service has exception. Error occurred when force data to disk. The store is now read-only.",
       "{service} service has exception. The store is now read-only.",
       "can't force {file} to the disk; the store is now read-only", "the final flush failed",
       "can't flush the checkpoint", "can't flush index file {file}", "Error occurred when force data to disk",
       means="fsync failed. Linux reports such a failure once, so the state of the last bytes is unknown; the store "
             "takes no more messages and acknowledges none of that flush.",
       do="Check the disk (dmesg, smartctl), then restart the broker. Recovery checks what is on the disk.")
T.line("read-only",
       "the store is read-only since {why}. Restart the broker, so that recovery checks what is on the disk",
       "The store is now read-only.",
       means="An earlier flush or append failed, and its result is unknown. A slave in this state follows its master "
             "no further.",
       do="Find the first ERROR in store.log, check the disk (dmesg), then restart the broker.")
T.line("flush-short", "{what} can't be flushed now; retrying ({count} attempts so far); nothing is lost: {error}",
       "can't flush index file {file} now; the next thorough flush retries: {error}",
       "can't force the deletion of {file} to the disk now: {error}",
       "can't force the name of {file} to the disk now: {error}",
       "the final flush could not reach the disk; the next start will recover the files as after a crash: {error}",
       means="A flush could not begin, for lack of descriptors or memory. The disk was not asked, so nothing is lost; "
             "acknowledgements wait for the next try.",
       do="Raise the limit that the line names, such as LimitNOFILE= or vm.max_map_count, and restart the broker.")
T.line("flush-again", "{what} is flushed again, after {count} flushes that could not start",
       means="The shortage that kept flushes from starting is over.",
       do="Raise the limit that the earlier lines name, before it happens again.")
T.line("commit-failed", "Error occurred when commit data to FileChannel",
       means="With transientStorePoolEnable, bytes could not be written from the off-heap buffer to the file. They "
             "stay in the buffer and are tried again; a crash loses them.",
       do="Free space if the disk is full; otherwise check the disk (dmesg).")
T.line("names-unsynced", "can't force the names in {folder} to the disk: {error}",
       "can't zero {size} bytes at {at} of {file}: {error}",
       means="A new folder's name, or zeros over an incomplete write, could not be made durable. A power loss may "
             "leave the folder without it; recovery treats that as after a crash.",
       do="Check the disk and its file system (dmesg).")
T.line("final-flush", "consume queue {queue} is not flushed",
       "the log ends at {end} but is flushed only up to {flushed}",
       "the store may be wrong, so shutdown abnormally, and keep abort file.",
       means="The broker stopped without everything on the disk. It keeps its abort file, so the next start recovers "
             "the store as after a crash.",
       do="Look for the first ERROR before this line. Give the broker more time to stop, if it was killed.",
       page=_START)
T.line("mlock", "{call} {what} {size} ret = {code}: {error}; see the limit of locked memory (ulimit -l)",
       means="The system does not allow the broker to lock a mapped file in memory. It works without; pages of the "
             "log may be swapped out.",
       do="Raise the limit of locked memory: `ulimit -l`, or LimitMEMLOCK= in systemd.",
       page="clusters.md#under-systemd")

# ---- loading and recovery

T.line("load-failed", "load exception", "Failed to initialize", "The broker cannot be initialized; {where}",
       means="The store or a table of the broker cannot be loaded, so the broker does not start (exit code 253).",
       do="The lines before it name the file. `rmqha store verify ROOT` lists all flaws of a store.", page=_START)
T.line("locked", "Lock failed,MQ already started", "is held: a broker runs on this store",
       means="Another broker, rmqha's or Java's, uses this store. Two brokers must never share one.",
       do="Wait for its end or stop it; `rmqha ps` or `ps aux` shows it.", page=_START)
T.line("file-length", "{file} {length} length not matched message store config value, please check it manually",
       means="A file of the store does not have the configured size, usually because mappedFileSizeCommitLog or "
             "mappedFileSizeConsumeQueue was changed. The broker does not start.",
       do="Set the key to the size that the files have.", page=_START)
T.line("last-file-length", "the last file {file} has a length of {length}; extending or truncating it to {size}",
       means="The last file of a log or queue was cut short by a crash, a copy or a full disk. It gets its full "
             "length, and recovery finds the end of its records.",
       do="Nothing after a crash. After a copy of a store, check it: rmqha store verify.", page=_START)
T.line("foreign-file", "load file {file} error: it is not a file of the store; remove it",
       "{folder} is a folder; ignoring it", "load file {file} error {error}", "load file {file} error: {error}",
       "load file {file} error",
       means="A folder of the store holds something that is not one of its files, or a file that cannot be opened.",
       do="Move the named file elsewhere, or correct its owner and permissions; then start the broker.", page=_START)
T.line("files-missing", "file {file} is followed by {other} instead of {due}: files are missing or do not belong here",
       "The mappedFile queue's data is damaged, the adjacent mappedFile's offset don't match. pre file {file}, cur "
       "file {other}",
       means="Between two files of a log or queue others are missing: they were deleted or not copied, or files of "
             "another store are mixed in.",
       do="Restore the missing files from a replica or a backup. Do not delete the later files: they may hold "
          "messages.", page=_START)
T.line("twin-files", "{file} has no messages, and another file has the same offset; moving it to {folder}",
       "all commit log folders are read-only",
       means="With several storePathCommitLog folders: a folder held an empty file twice, or none of the folders may "
             "be written.",
       do="Check that the folders are mounted and writable; the moved file is empty and can be deleted.")
T.line("files-gone", "The commitlog files are deleted, and delete the consume queue files",
       means="The store has no commit log files, so its consume queues are deleted: they would point nowhere. This is "
             "normal for a new store, or one whose log was removed deliberately.",
       do="If messages should be there: stop the broker at once, and check storePathCommitLog, mounts and backups.",
       page=_START)
T.line("torn", "incomplete record at {offset}; truncating the log there",
       means="The last record was being written when the machine failed. It was never acknowledged as flushed, and is "
             "removed.",
       do="Nothing: this is usual after a crash or a power loss.", page=_START)
T.line("damaged-record", "truncating the log at {offset}: the record there is damaged or misplaced{more}",
       means="Recovery found a damaged record and ended the log before it. The bytes after it are kept in the files "
             "that the line names.",
       do="Stop this broker before it stores a new message, and copy the store of an undamaged replica. Without one, "
          "read the kept files with `rmqha store dump` and resend what matters.", page=_START)
T.line("damaged-middle", "commit log file {file} is damaged at position {at}",
       means="A record in the middle of the log is damaged, and later files have messages. Nothing was changed, and "
             "the broker does not start.",
       do="Copy the file from a replica. The message names the way to start without the later messages.", page=_START)
T.line("bad-record", "found a illegal magic code {code}", "CRC check failed. bodyCRC={crc}",
       "[BUG]read total count not equals msg total size. totalSize={size}, readTotalCount={count}",
       "the record at {offset} contains another offset: {other}", "no message at commit log offset {offset}: {why}",
       "queryMessage exception",
       means="Bytes of the log are not a valid record. During recovery this is how the end of the log is found after "
             "a crash; at any other time a record is damaged.",
       do="Nothing if a broker was just started after a crash, and `truncating` lines follow. Otherwise compare with "
          "a replica: rmqha store verify, rmqha store diff.", page=_START)
T.line("marks-discarded", "discarding the queue ends saved at the last shutdown; scanning the queues instead: {why}",
       "the ends of the consume queues were not saved; the next start scans the queues instead: {why}",
       means="The shortcut for a quick start cannot be used, for example because files were copied or changed. The "
             "start takes longer; nothing is lost.",
       do="Nothing.", page=_START)
