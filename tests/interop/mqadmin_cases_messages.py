"""Cases of mqadmin commands in the packages message, consumer, connection, producer and queue, and some others."""
import re

from tests.support.mqadmin import Command, case

# Message ids of an IPv4 or IPv6 host.
ID = (r"(?<![0-9A-F])[0-9A-F]{32}(?:[0-9A-F]{24})?", "<id>")
ANY_HOST = (r"\b\d+\.\d+\.\d+\.\d+:\d{5}\b", "<client>")
PLACE = (r"(storeSize=|commitLogOffset=|CommitLog Offset: +)\d+", r"\1<n>")
CLIENT_ID = (r"(\b\d+\.\d+\.\d+\.\d+@)?\b\d+#\d+\b", "<client id>")
# The line of code that raised an error.
WHERE = (r", org\.apache\.rocketmq[\w.$]+\([\w.]+:\d+\)", "")
MESSAGE = (ID, ANY_HOST, PLACE, CLIENT_ID, WHERE)
SPENT = (r"spentTimeMills=\d+", "spentTimeMills=<n>")
RT = (r"(?m)\d+(\.\d\d)?$", "<rt>")
TPS = (r"TPS: \d+\.\d\d", "TPS: <n>")


def tracks(text: str) -> str:
    """Return the state of a message in the groups that all runs have, sorted by group."""
    head, *found = re.split(r"(?=MessageTrack \[)", text)
    return head + "\n".join(sorted(each for each in found if "=readers" in each or "=runners" in each))


def lines_with(*words: str):
    """Return only the lines that contain one of the words, sorted."""
    return lambda text: "\n".join(sorted(line for line in text.splitlines() if any(word in line for word in words)))


def before_stacks(text: str) -> str:
    """Return the text before the threads' stacks, and whether there are any stacks."""
    head, mark, stacks = text.partition("#Consumer jstack#")
    return head + mark + (" with stacks" if "TID: " in stacks else "")


RUNNING_INFO = (
    CLIENT_ID, (r"\b20\d{12}(\d{3})?\b", "<time>"), (r" *\d+\.\d\d *", " <n> "),
    (r"(cachedMsg\w+|commitOffset)=\d+", r"\1=<n>"), (r"(?m)(broker-a +\d +)\d+ *$", r"\1<n>"),
)


def queue_of(topic: str) -> str:
    """Return the pattern of a running info that has a queue of the topic."""
    return f"{topic} +broker-a +0 +ProcessQueueInfo"


def without_retries(text: str) -> str:
    """Return the text without the retry topic, whose queue is assigned to a consumer some time later."""
    return "\n".join(line for line in text.splitlines() if "%RETRY%" not in line)


MADE = (
    Command("updateTopic -n {n} -b {b} -t Mine{own} -r 2 -w 2", shown=False),
    Command("topicRoute -n {n} -t Mine{own}", until='"perm":6', shown=False),
)


def made(letter: str) -> tuple[Command, ...]:
    """Create a topic of two queues for one case only, and wait for its route."""
    return tuple(Command(each.line.replace("Mine", letter), until=each.until, shown=False) for each in MADE)


def in_queues(letter: str, *bodies: str) -> tuple[Command, ...]:
    """Wait until the last messages of queues 0, 1, ... are dispatched."""
    return tuple(Command(f"printMsgByQueue -n {{n}} -t {letter}{{own}} -a {{name}} -i {queue_id} -p true -d true",
                         until=f"BODY: {body}", shown=False) for queue_id, body in enumerate(bodies))


CASES = [
    case(
        "queryMsgByKey",
        Command("queryMsgByKey -n {n} -t Orders -k key3", until="3", masks=(ID,)),
        Command("queryMsgByKey -n {n} -t Orders -k nothing"),
        Command("queryMsgByKey -n {n} -t Nowhere -k key3"),
    ),
    case(
        "queryMsgByOffset",
        Command("queryMsgByOffset -n {n} -t Orders -b {name} -i 1 -o 2", masks=MESSAGE, look=tracks,
                until="trackType=CONSUMED,"),
        "queryMsgByOffset -n {n} -t Orders -b {name} -i 1 -o 200",
        "queryMsgByOffset -n {n} -t Orders -b {name} -i 1 -o -1",
        "queryMsgByOffset -n {n} -t Orders -b {name} -i x -o 0",
        "queryMsgByOffset -n {n} -t Orders -b nowhere -i 0 -o 0",
    ),
    case(
        "queryMsgByUniqueKey",
        Command("queryMsgByKey -n {n} -t Orders -k key3", until="3", keep=("id", r"^([0-9A-F]+) "), shown=False),
        Command("consumerProgress -n {n} -g runners", until="Diff Total: 0", shown=False),
        Command("queryMsgByUniqueKey -n {n} -t Orders -i {id}", masks=MESSAGE, look=tracks),
        Command("queryMsgByUniqueKey -n {n} -t Orders -i {id} -a", masks=MESSAGE, look=tracks),
        Command("consumerConnection -n {n} -g runners", keep=("client", r"^(\S+@\S+)"), shown=False),
        Command("queryMsgByUniqueKey -n {n} -t Orders -i {id} -g runners -d {client}", masks=(SPENT,)),
        Command("queryMsgByUniqueKey -n {n} -t Orders -i {id} -g runners -d nobody"),
        "queryMsgByUniqueKey -n {n} -t Orders -i 7F0000010000000000000000000000FF",
    ),
    case(
        "queryMsgById",
        Command("queryMsgByOffset -n {n} -t Orders -b {name} -i 2 -o 1", keep=("id", r"^OffsetID: +(\w+)"),
                shown=False),
        Command("consumerProgress -n {n} -g runners", until="Diff Total: 0", shown=False),
        Command("queryMsgById -n {n} -i {id}", masks=MESSAGE, look=tracks),
        Command("queryMsgById -n {n} -i {id},{id}", masks=MESSAGE, look=lines_with("Queue")),
        Command("consumerConnection -n {n} -g runners", keep=("client", r"^(\S+@\S+)"), shown=False),
        Command("queryMsgById -n {n} -i {id} -g runners -d {client}", masks=(SPENT,)),
        "queryMsgById -n {n} -i {id} -g runners -d nobody",
        "queryMsgById -n {n} -i {id} -s false",
        "queryMsgById -n {n} -i nothing",
    ),
    case(
        "queryMsgById -s",
        *made("Again"),
        Command("sendMessage -n {n} -t Again{own} -p again -k akey -c TagB -b {name} -i 1", masks=(ID,)),
        Command("queryMsgByOffset -n {n} -t Again{own} -b {name} -i 1 -o 0", keep=("id", r"^OffsetID: +(\w+)"),
                until="OffsetID", shown=False),
        Command("queryMsgById -n {n} -i {id} -s true",
                masks=(ID, (r"queueId=\d", "queueId=<n>"), (r"queueOffset=\d", "queueOffset=<n>"))),
    ),
    case(
        "sendMessage",
        *made("Sent"),
        Command("sendMessage -n {n} -t Sent{own} -p one -b {name} -i 1", masks=(ID,)),
        Command("sendMessage -n {n} -t Sent{own} -p two -k akey -c TagA -b {name} -i 1", masks=(ID,)),
        "sendMessage -n {n} -t Sent{own} -p three -i 1",
        Command("sendMessage -n {n} -t Sent{own} -p four -b {name} -i x", masks=(
            (r"^\S+(?=: SendMessageCommand)", "<exception>"),)),
        Command("printMsgByQueue -n {n} -t Sent{own} -a {name} -i 1 -p true -d true -f true", masks=MESSAGE,
                until="BODY: two"),
        Command("sendMessage -n {n} -t Sent{own} -p five", masks=(ID, (r"(?<=broker-a {26})\d", "<n>"))),
    ),
    case(
        "printMsg",
        *made("Print"),
        Command("sendMessage -n {n} -t Print{own} -p one -c TagA -b {name} -i 0", masks=(ID,)),
        Command("sendMessage -n {n} -t Print{own} -p two -c TagB -b {name} -i 1", masks=(ID,)),
        Command("sendMessage -n {n} -t Print{own} -p three -c TagA -b {name} -i 1", masks=(ID,)),
        *in_queues("Print", "one", "three"),
        Command("printMsg -n {n} -t Print{own}", masks=MESSAGE),
        Command("printMsg -n {n} -t Print{own} -d false", masks=MESSAGE),
        Command("printMsg -n {n} -t Print{own} -s TagB", masks=MESSAGE),
        Command("printMsg -n {n} -t Print{own} -s TagC", masks=MESSAGE),
        Command("printMsg -n {n} -t Print{own} -b 2020-01-01#00:00:00:000 -e 4000000000000", masks=MESSAGE),
        Command("printMsg -n {n} -t Print{own} -e 2020-01-01#00:00:00:000", masks=MESSAGE),
        "printMsg -n {n} -t Nowhere",
        Command("printMsgByQueue -n {n} -t Print{own} -a {name} -i 1 -f true"),
        Command("printMsgByQueue -n {n} -t Print{own} -a {name} -i 1 -f true -p true -s TagB", masks=MESSAGE),
        Command("printMsgByQueue -n {n} -t Print{own} -a {name} -i 1 -p true -b 2020-01-01#00:00:00:000",
                masks=MESSAGE),
        "printMsgByQueue -n {n} -t Print{own} -a nowhere -i 1 -p true",
        "printMsgByQueue -n {n} -t Print{own} -a {name} -i 7 -p true",
    ),
    case(
        "consumeMessage",
        *made("Eaten"),
        *[Command(f"sendMessage -n {{n}} -t Eaten{{own}} -p body{number} -b {{name}} -i {number % 2}", shown=False)
          for number in range(4)],
        *in_queues("Eaten", "body2", "body3"),
        Command("consumeMessage -n {n} -t Eaten{own}", masks=MESSAGE),
        Command("consumeMessage -n {n} -t Eaten{own} -c 1", masks=MESSAGE),
        Command("consumeMessage -n {n} -t Eaten{own} -c 3", masks=MESSAGE),
        Command("consumeMessage -n {n} -t Eaten{own} -b {name} -i 1", masks=MESSAGE),
        Command("consumeMessage -n {n} -t Eaten{own} -b {name} -i 1 -o 1 -g eaters{own}", masks=MESSAGE),
        Command("consumeMessage -n {n} -t Eaten{own} -b {name} -i 1 -o 9", masks=MESSAGE),
        Command("consumeMessage -n {n} -t Eaten{own} -s 2020-01-01#00:00:00:000 -e 1600000000000", masks=MESSAGE),
        "consumeMessage -n {n} -t Eaten{own} -c 0",
        "consumeMessage -n {n} -t Eaten{own} -i 1",
        "consumeMessage -n {n} -t Eaten{own} -o 1",
        "consumeMessage -n {n} -t Eaten{own} -s 4000000000000",
        "consumeMessage -n {n} -t Eaten{own} -e 4000000000000",
        "consumeMessage -n {n} -t Eaten{own} -s 1600000000000 -e 1500000000000",
        "consumeMessage -n {n} -t Nowhere",
    ),
    case(
        "queryMsgTraceById",
        *made("Traced"),
        Command("sendMessage -n {n} -t Traced{own} -p traced -m true -b {name} -i 0", masks=(ID,),
                keep=("id", r" ([0-9A-F]{32,56})$")),
        Command("queryMsgTraceById -n {n} -i {id}", until="#Type",
                masks=((r"\b\d+\.\d+\.\d+\.\d+\b *", "<host> "), (r"\d+ms *", "<rt> "),
                       (r"\b1\d{12}\b *", "<group> "))),
        "queryMsgTraceById -n {n} -i nothing",
        "queryMsgTraceById -n {n} -i nothing -t Nowhere",
    ),
    case(
        "response times",
        *made("Timed"),
        Command("checkMsgSendRT -n {n} -t Timed{own} -a 5 -s 20", masks=(RT,)),
        Command("checkMsgSendRT -n {n} -t Timed{own} -a 1", masks=(RT,)),
        Command("sendMsgStatus -n {n} -b {name} -c 2 -s 30", masks=(
            ID, (r"\brt=\d+", "rt=<rt>"), (r"(queueId|queueOffset)=\d+", r"\1=<n>"))),
        "checkMsgSendRT -n {n} -t Timed{own} -a x",
    ),
    case(
        "groups",
        "updateSubGroup -n {n} -b {b} -g made{own}",
        "getConsumerConfig -n {n} -g made{own}",
        "updateSubGroup -n {n} -c {c} -g made{own} -s false -m true -d true -q 2 -r 3 -i 1 -w 2 -a false",
        "getConsumerConfig -n {n} -g made{own}",
        "updateSubGroup -n {n} -c nowhere -g made{own}",
        "updateSubGroup -n {n} -b {b} -g made{own} -r x",
        "updateSubGroup -n {n} -g made{own}",
        "updateSubGroup -n {n} -b 127.0.0.1:1 -g made{own}",
        "deleteSubGroup -n {n} -b {b} -g made{own} -r true",
        "getConsumerConfig -n {n} -g made{own}",
        "updateSubGroup -n {n} -b {b} -g made{own}",
        "deleteSubGroup -n {n} -c {c} -g made{own}",
        "deleteSubGroup -n {n} -c nowhere -g made{own}",
        "deleteSubGroup -n {n} -g made{own}",
        "getConsumerConfig -n {n} -g nobody",
    ),
    case(
        "consumerProgress",
        Command("consumerProgress -n {n} -g readers", masks=(TPS,), look=lines_with("Orders", "#", "Total", "TPS")),
        Command("consumerProgress -n {n} -g runners", until="Diff Total: 0", shown=False),
        Command("consumerProgress -n {n} -g runners", masks=(TPS,), look=lines_with("Orders", "#", "Total", "TPS")),
        Command("consumerProgress -n {n} -g runners -s true", masks=(TPS,), look=lines_with("Orders", "#", "Total")),
        Command("consumerProgress -n {n} -g nobody"),
        Command("consumerProgress -n {n}", look=lines_with("#Group", "readers", "runners"),
                masks=((r"(?m)\d+( +\d+)$", r"<n>\1"),)),
    ),
    case(
        "consumerStatus",
        Command("consumerConnection -n {n} -g runners", keep=("client", r"^(\S+@\S+)"), shown=False),
        Command("consumerStatus -n {n} -g runners", masks=(CLIENT_ID,)),
        Command("consumerStatus -n {n} -g runners -b {b}", masks=(CLIENT_ID,)),
        Command("consumerStatus -n {n} -g runners -i {client}", sort=True, masks=RUNNING_INFO,
                until=queue_of("Orders"), look=without_retries),
        Command("consumerStatus -n {n} -g runners -i {client} -s", look=lambda text: before_stacks(text)[-40:]),
        "consumerStatus -n {n} -g runners -i nobody",
        "consumerStatus -n {n} -g readers",
        "consumerStatus -n {n} -g nobody",
    ),
    case(
        "connections",
        Command("consumerConnection -n {n} -g runners", masks=(ANY_HOST, CLIENT_ID)),
        Command("consumerConnection -n {n} -g runners -b {b}", masks=(ANY_HOST, CLIENT_ID)),
        "consumerConnection -n {n} -g readers",
        "consumerConnection -n {n} -g nobody",
        Command("producerConnection -n {n} -g keepers -t Orders", masks=(ANY_HOST, CLIENT_ID)),
        "producerConnection -n {n} -g nobody -t Orders",
        "producerConnection -n {n} -g keepers -t Nowhere",
        Command("producer -n {n} -b {b}", look=lines_with("(keepers)"), masks=(ANY_HOST, CLIENT_ID)),
        "producer -n {n} -b 127.0.0.1:1",
    ),
    case(
        "queryCq",
        Command("queryCq -n {n} -t Orders -q 0 -i 0", masks=((r"physicOffset=\d+", "physicOffset=<n>"),)),
        Command("queryCq -n {n} -t Orders -q 0 -i 1 -c 1 -b {b}", masks=((r"physicOffset=\d+", "physicOffset=<n>"),)),
        Command("queryCq -n {n} -t Orders -q 0 -i 1 -c 1 -g runners",
                masks=((r"physicOffset=\d+", "physicOffset=<n>"),)),
        Command("queryCq -n {n} -t Orders -q 0 -i 1 -c 1 -g nobody",
                masks=((r"physicOffset=\d+", "physicOffset=<n>"),)),
        "queryCq -n {n} -t Orders -q 9 -i 0",
        "queryCq -n {n} -t Nowhere -q 0 -i 0",
        "queryCq -n {n} -t Orders -q x -i 0",
    ),
    case(
        "allocateMQ",
        "allocateMQ -n {n} -t Orders -i 10.0.0.1",
        "allocateMQ -n {n} -t Orders -i 10.0.0.1,10.0.0.2,10.0.0.3",
        "allocateMQ -n {n} -t Orders -i 1,2,3,4,5,6",
        "allocateMQ -n {n} -t Nowhere -i 1",
    ),
]

# Of the group coffee; Java's clients print themselves with their hash codes.
A_JAVA_CONSUMER = case(
    "a consumer written in Java",
    Command("consumerConnection -n {n} -g coffee", masks=(ANY_HOST, CLIENT_ID), keep=("client", r"^(\S+@\S+)"),
            until="PASSIVELY"),
    Command("consumerStatus -n {n} -g coffee", masks=(CLIENT_ID,)),
    Command("consumerStatus -n {n} -g coffee -i {client}", sort=True,
            masks=(*RUNNING_INFO, (r"@[0-9a-f]{5,8}\b", "@<place>")),
            until=queue_of("Beans"), look=without_retries),
    Command("consumerStatus -n {n} -g coffee -i {client} -s", look=lambda text: before_stacks(text)[-40:]),
    Command("queryMsgByOffset -n {n} -t Beans -b {name} -i 0 -o 0", until="OffsetID", shown=False,
            keep=("id", r"^OffsetID: +(\w+)")),
    Command("queryMsgById -n {n} -i {id} -g coffee -d {client}", masks=(SPENT,)),
)

OF_MANY_BROKERS = [
    case(
        "groups of a cluster",
        Command("updateSubGroup -n {n} -c {c} -g wide{own} -r 5", sort=True),
        Command("getConsumerConfig -n {n} -g wide{own}"),
        Command("deleteSubGroup -n {n} -c {c} -g wide{own}", sort=True),
        Command("getConsumerConfig -n {n} -g wide{own}"),
        Command("consumerProgress -n {n} -g runners", until="Diff Total: 0", shown=False),
        Command("consumerProgress -n {n} -g runners", masks=(TPS,), look=lines_with("Orders", "#", "Total")),
        Command("consumerProgress -n {n} -g runners -s true", masks=(TPS,), look=lines_with("Orders", "#", "Total")),
        Command("consumerConnection -n {n} -g runners", masks=(ANY_HOST, CLIENT_ID)),
    ),
    case(
        "messages of many brokers",
        Command("queryMsgByKey -n {n} -t Orders -k key3", until="3", masks=(ID,)),
        Command("queryMsgByOffset -n {n} -t Orders -b {name} -i 1 -o 2", masks=MESSAGE, look=tracks),
        Command("queryMsgByOffset -n {n} -t Orders -b broker-b -i 1 -o 0", masks=MESSAGE, look=tracks),
        Command("printMsg -n {n} -t Orders -d false", masks=MESSAGE),
        Command("consumeMessage -n {n} -t Orders -c 10", masks=MESSAGE),
        "allocateMQ -n {n} -t Orders -i 10.0.0.1,10.0.0.2,10.0.0.3",
        Command("checkMsgSendRT -n {n} -t broker-b -a 6 -s 20", masks=(RT,)),
    ),
]
