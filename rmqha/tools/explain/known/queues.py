"""Lines of consume queues, the index, the dispatch and delayed messages."""
from rmqha.tools.explain.entry import Table

_START = "how-to/troubleshooting.md#start-and-stop"
_DISK = "how-to/troubleshooting.md#disk"
T = Table("queues", _START)

T.line("cannot-write", "[BUG]consume queue can not write, {topic} {queue}",
       "write of consume queue {queue} failed: {error}",
       "[BUG]put commit log position info to {queue} {offset} failed, retry {count} times",
       means="A consume queue could not be extended. The dispatch retries up to 30 times, and while descriptors are "
             "short or the disk is full without limit; then it marks the queue as faulty, and the store refuses "
             "messages.",
       do="Free space or raise the limits (LimitNOFILE=, vm.max_map_count), then restart the broker: the next start "
          "completes the queue from the log.", page=_DISK)
T.line("order-wrong",
       "[BUG]logic queue order maybe wrong, expectLogicOffset: {due} currentLogicOffset: {now} Topic: {topic} QID: "
       "{queue} Diff: {diff}",
       means="A record's queue offset is not the next one of its queue. rmqha fills the gap with the missing units "
             "from the log; Java's broker appends anyway, which moves all later messages.",
       do="If it repeats, check the queues: rmqha store verify ROOT, and rebuild them with rmqha store rebuild.")
T.line("repeated", "Build consume queue repeatedly, expectLogicOffset: {due} currentLogicOffset: {now} Topic: {topic}",
       "Maybe try to build consume queue repeatedly maxPhysicOffset={end} phyOffset={offset}",
       means="The dispatch handled a record that its queue already has, as after a crash. The unit is not added again.",
       do="Nothing during a start. Otherwise check the queues with rmqha store verify.")
T.line("left-out", "the record at {offset} has index {index} of {queue}, but that queue ends at {end}; leaving it out",
       means="A record claims a place in its queue that cannot be right: the log has no room for the messages that "
             "would be missing. On a slave this means that its queues differ from the master's.",
       do="Run rmqha store verify. On a slave, stop it and rebuild its queues: rmqha store rebuild ROOT --apply "
          "--force.", page="replication.md#its-queues-differ")
T.line("starts-again",
       "consume queue {queue} starts again with the record at {offset}; dropping its {count} earlier messages",
       means="A topic was deleted and created again, or all of its messages expired: message 0 begins a new queue.",
       do="Nothing, if the topic was deleted. Otherwise find out who deleted it (broker.log: deleteTopic called by).",
       page="replication.md#deleted-topics")
T.line("damaged", "consume queue {queue}: {file} is damaged at position {at}; rebuilding everything after it",
       "consume queue {queue}: the records of the units in {file} after position {at} are not in the log; rebuilding "
       "them", "consume queue {queue} ends at {end}, but the log has message {last}; adding the missing units",
       "maxPhyOffsetOfConsumeQueue({end}) > processOffset({log}), truncate dirty logic files",
       "[TooSmallCqOffset] maxPhysicalPosInLogicQueue={end} clMinOffset={begin}",
       means="After a crash, a copy or damage a consume queue does not fit the log. The start repairs it from the "
             "log: no message is lost.",
       do="Nothing: wait for the end of the recovery. If every start repeats it, check the disk.")
T.line("not-in-queue",
       "consumer request topic: {topic} offset: {offset} minOffset: {first} maxOffset: {last}, but access logic queue "
       "failed", "Offset not matched. Request offset: {offset}, firstOffset: {first}, lastOffset: {last}",
       means="A pull asked for a queue offset within the queue's range, but the queue has no file there: files were "
             "deleted or are missing. The consumer continues at the next file.",
       do="Check the queue: rmqha store verify ROOT; rebuild it from the log if files are missing.")
T.line("extension", "[BUG] Consume queue extend unit({at}) is not found!",
       "Size of cq ext unit is greater than {limit}", "Capacity of ext is maximum!{at}, {size}",
       "Create mapped file when save consume queue extend, {unit}", "Save consume queue extend error, {unit}",
       "Save consume queue extend fail, So just save tagsCode! {unit}",
       "[BUG] address {at} of consume queue extend not found!",
       "[BUG] can't find consume queue extend file content!addr={at}, offsetPy={offset}",
       means="With enableConsumeQueueExt: the extension of a queue, which holds bits for SQL92 filters, could not be "
             "read or written. The messages are delivered; filters evaluate their properties instead of the bits.",
       do="Check the disk. If the files in consumequeue_ext are damaged, stop the broker, remove that folder and "
          "start it: new messages get new units.", page="config-keys.md#sql92-filters")
T.line("no-queue", "record at {offset}: the topic {topic} can't have a queue",
       "{count} records: the topic {topic} can't have a queue",
       "{name} is not a valid name for a folder of consume queues; removing nothing",
       means="A record in the log has a topic name that cannot be the name of a folder. It is in no queue, so no "
             "consumer receives it.",
       do="Find the producer of that topic. A log with such names was written by another software than rmqha or 4.9.")
T.line("dispatch-behind",
       "The reputFromOffset={at} is smaller than minPyOffset={begin}, this usually indicate that the dispatch behind "
       "too much and the commitlog has expired",
       means="Log files were deleted before their messages were in the queues. Consumers never see these messages.",
       do="Find out why the dispatch was late (disk, CPU, a full disk), and raise fileReservedTime.", page=_DISK)
T.line("dispatch-skips", "[BUG]read total count not equals msg total size. reputFromOffset={offset}",
       "[BUG]dispatch message to consume queue error, COMMITLOG OFFSET: {offset}",
       means="The dispatch met bytes that are not a valid record, and skipped them or the rest of the file. Messages "
             "there are in no queue.",
       do="Run rmqha store verify on the store, and compare it with a replica (rmqha store diff).")
T.line("dispatch-unfinished",
       "shutdown ReputMessageService, but commitlog have not finish to be dispatched, CL: {end} reputFromOffset: {at}",
       means="The broker stopped before all messages were in their queues. The next start completes the queues.",
       do="Nothing. Give the broker more time to stop, if this happens at each stop.")
T.line("dispatch-callback", "{service}: a callback after a dispatch failed",
       "{service}: the listener failed for the record at {offset}",
       means="Waking a held pull, or another action after a dispatch, failed. The record itself is in its queue; a "
             "consumer may get it only with its next pull.",
       do="Report the traceback below the line: it is a fault of rmqha.")
T.line("topic-deleted-early", "deleting topic {topic} before all of its messages are dispatched",
       "consume queue {queue} has messages from before and after the deletion of its topic at {at}",
       "maybe ConsumeQueue was created just now. topic={topic} queueId={queue} maxPhysicOffset={end}",
       means="Queues of a topic that is being deleted, or that is new, did not yet match the log. The broker handles "
             "it: messages from before the deletion are dropped, later ones are kept.",
       do="Nothing.", page="replication.md#deleted-topics")

# ---- the index

T.line("index-full", "Over index file capacity: index count = {count}; index max num = {limit}",
       "Index file [{file}] is full, trying to create another one",
       means="An index file has as many keys as maxIndexNum allows. The index continues in the next file.",
       do="Nothing.", page="config-keys.md")
T.line("index-failed", "build index error, stop building index", "putKey error commitlog {offset}",
       "Mark index file cannot build flag", "getLastIndexFile exception", "write of the index failed: {error}",
       means="The index of message keys could not be extended. Messages are stored and delivered, but these keys are "
             "not found by queries.",
       do="Free space or raise the limit that the line names. Rebuild the index while the broker is stopped: rmqha "
          "store rebuild.", page=_DISK)

# ---- delayed messages

T.line("delay-levels", "parseDelayLevel exception",
       means="messageDelayLevel cannot be read, so the broker does not start.",
       do="Set it to amounts with a unit (s, m, h, d), separated by blanks: 1s 5s 10s ... 2h.",
       page="config-keys.md#delayed-and-transactional-messages")
T.line("delay-offset", "schedule CQ offset invalid. offset={offset}, cqMinOffset={first}, cqMaxOffset={last}",
       "correct delay offset [ delayLevel {level} ] from {old} to {new}", "correctDelayOffset exception",
       "schedule CQ offset invalid. offset={offset}, cqMinOffset={first}, queueId={queue}",
       "schedule CQ offset invalid. offset={offset}, cqMaxOffset={last}, queueId={queue}",
       means="The progress of a delay level was outside of its queue: the queue's oldest messages expired "
             "undelivered, or the files of the store and of config/delayOffset.json do not belong together.",
       do="After a restore, nothing. Otherwise messages whose delay is longer than fileReservedTime are lost: raise "
          "that key.")
T.line("delay-skipped", "can't deliver the delayed message at {offset}; skipping it: {why}",
       "[BUG] the real topic of schedule msg is {topic}, discard the msg", "putResultProcess skip, info={info}",
       "ScheduleMessageService resend not found message. info: {info}",
       "a scheduled message has an invalid delay level: {error}",
       means="A delayed message is malformed, or its record is no longer in the log. It is not delivered; later ones "
             "are.",
       do="The line has its offset: rmqha store dump shows the record, if it still exists.")
T.line("delay-failed", "ScheduleMessageService put message failed. info: {info}",
       "ScheduleMessageService, executeOnTimeup exception", "Resend message error, info: {info}",
       "HandlePutResultTask exception. level={level}", "Asynchronous deliver block. info={info}",
       means="A delayed message was due and could not be stored in its topic now. It is tried again.",
       do="Look for the reason in the lines before: usually the store refuses messages (disk full, too few replicas).",
       page=_DISK)
T.line("delay-flow", "Asynchronous deliver triggers flow control, currentPendingNum={count}, maxPendingLimit={limit}",
       "deliverPendingTable level: {level}, size: {count}",
       means="With enableScheduleAsyncDeliver: more delayed messages are due than can be stored at a time, or some "
             "were pending at a stop. They are delivered later.",
       do="Nothing if it is short. Otherwise check the latency of puts, or raise scheduleAsyncDeliverMaxPendingLimit.",
       page="config-keys.md#delayed-and-transactional-messages")
