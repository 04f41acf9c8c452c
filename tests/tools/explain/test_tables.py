"""The tables against the sources: each line that a server logs has an entry, and each entry explains a real line."""
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

from rmqha.client import life
from rmqha.common import server_util
from rmqha.common.protocol import request_code, response_code
from rmqha.tools.doctor import cluster_checks
from rmqha.tools.explain.catalog import catalog
from rmqha.tools.explain.entry import Entry, Kind
from rmqha.tools.explain.template import WORD, normal
from tests.support.sources import ROOT, lines
from tests.test_docs import anchors
from tests.tools.explain.log_calls import FILLED, LogCall, answers, log_calls, texts

HEAD = "2026-01-01 12:00:00 {} thread - {}"
JAVA = Path(__file__).with_name("java_lines.tsv")
# Java's lines without an entry: file, beginning of the text -> reason.
JAVA_WITHOUT = {
    ("BrokerOuterAPI.java", "Query data version from name server"): "it reports success, although at WARN",
    ("JDBCTransactionStore.java", ""): "code that no broker of 4.9 runs",
    ("CommitLog.java", "x1 Exception,"): "the name of a service is its only text; see REAL",
    ("AdminBrokerProcessor.java", "UnsupportedEncodingException x1"): "UTF-8 is always supported",
    ("DefaultMQProducerImpl.java", "call timeout"): "other texts of the same class name the call",
}
# Calls that log a text that another function makes: (path, source of the text) -> a real line, or the reason.
MADE_ELSEWHERE = {
    ("rmqha/broker/broker_outer_api.py", "failure_text"): "registerBroker Exception, 10.0.0.1:9876: no answer",
    ("rmqha/broker/broker_registration.py", "'%s'"):
        "no master of brokerName=broker-a is registered at 10.0.0.1:9876: this slave has no master to follow. Start "
        "the master, or correct brokerName: it must match the master's",
    ("rmqha/broker/broker_startup.py", "warning"):
        "warning: the replication port 10912 is open on all addresses and has no authentication: any host that can "
        "reach it can copy all messages",
    ("rmqha/broker/client/broker2_client.py", "remark"):
        "[reset-offset] reset offset failed, no topic in this broker. topic=T",
    ("rmqha/broker/controller/replicas_manager.py", "'%s: %s'"):
        "Failed to start replicasManager: CODE: 2004  DESC: no master",
    ("rmqha/broker/processor/admin_group_handlers.py", "refused"):
        "The globalWhiteAddresses[10.0.0.0] has been updated failed.",
    ("rmqha/broker/processor/pull_admission.py", "response.remark"):
        "queueId[9] is illegal, topic:[T] topicConfig.readQueueNums:[4] consumer:[/10.0.0.9:55]",
    ("rmqha/broker/processor/reply_message_processor.py", "remark"):
        "push reply message fail, channel of <c@1> not found.",
    ("rmqha/broker/processor/send_admission.py", "error"):
        "request queueId[9] is illegal, TopicConfig [topicName=T] Producer: 10.0.0.9:55",
    ("rmqha/controller/controller_startup.py", "warning"):
        "warning: port 9878 is open on all addresses, and a controller does not authenticate clients: any client "
        "that reaches it may make another replica the master",
    ("rmqha/namesrv/namesrv_startup.py", "warning"):
        "warning: port 9876 is open on all addresses and a name server has no authentication: any host that can "
        "reach it can register brokers and change routes",
    ("rmqha/native/kernels.py", "'%s'"):
        "send codec: pure Python, slower: no module; install a C compiler, then reinstall rmqha",
    ("rmqha/remoting/remoting_abstract.py", "'%s'"):
        "RemotingCommand [code=11, language=JAVA, version=399, opaque=3, flag(B)=0, remark=None, extFields={}, "
        "serializeTypeCurrentRPC=JSON]",
    ("rmqha/remoting/remoting_abstract.py", "'%s%s'"): "10.0.0.9:55 request type 999 not supported",
    ("rmqha/remoting/remoting_abstract.py", "info"): "invokeAsyncImpl tryAcquire semaphore timeout, 3000ms",
    ("rmqha/remoting/remoting_abstract.py", "text"):
        "10.0.0.9:55, too many requests and system thread pool busy, RejectedExecutionException SendMessageThread_ "
        "request code: 310",
    ("rmqha/store/ha/ha_client.py", "'%s'"): "connection to the master 10.0.0.1:10912: [Errno 111] Connection refused",
    ("rmqha/store/put_gate.py", "refusal"): "broke role is slave, so putMessage is forbidden",
}
# Calls whose own text is only a frame for a name: (path, text) -> a real line.
FRAMES = {
    ("rmqha/broker/processor/end_transaction_processor.py", "x1RequestHeader: x1 Remark: x1"):
        "Check producer[10.0.0.9:55] transaction state, but it's pending status.RequestHeader: header Remark: None",
    ("rmqha/broker/slave_synchronize.py", "x1 Exception, x1: x1"):
        "SyncTopicConfig Exception, 10.0.0.1:10911: no answer",
    ("rmqha/broker/slave_synchronize.py", "x1 Exception, x1"): "SyncConsumerOffset Exception, 10.0.0.1:10911",
    ("rmqha/common/futures.py", "x1 failed"): "",
}
# Answers without an entry of their own: the end of the path, text -> reason.
ANSWERS_WITHOUT = {
    ("acl_files.py", "x1 cannot be written: x1"): "only the error in it is known: see system.*",
    ("send_message_processor.py", "the topic was deletedx1"): "the gap begins with a line end; see REAL",
    ("exception.py", "x1: message x1: x1"): "its first gap is `Failed to initiate the MessageBatch`",
    ("default_mq_push_consumer_impl.py", "x1 is null"): "the gap is one of the settings in client.expression",
}
# Lines of systems, libraries and older versions: they are in no source that a test reads.
REAL = (
    "org.apache.rocketmq.client.exception.MQBrokerException: CODE: 2  DESC: [PCBUSY_CLEAN_QUEUE]broker busy, start "
    "flow control for a while, period in queue: 210ms, size of queue: 1",
    "org.apache.rocketmq.remoting.exception.RemotingConnectException: connect to <172.17.42.1:10911> failed",
    "org.apache.rocketmq.remoting.exception.RemotingConnectException: connect to null failed",
    "The broker cannot start: port 10911 (listenPort) is in use by pid 17 (mqbroker); stop it, or choose another "
    "listenPort",
    "OSError: [Errno 98] Address already in use", "the topic was deleted\nSee http://rocketmq.apache.org/docs/faq/",
    "ssl.SSLCertVerificationError: [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: certificate has expired",
    "javax.net.ssl.SSLHandshakeException: PKIX path building failed: "
    "sun.security.provider.certpath.SunCertPathBuilderException: unable to find valid certification path to "
    "requested target",
    "ssl.SSLError: [SSL: TLSV1_ALERT_UNKNOWN_CA] unknown ca", "ssl.SSLError: [SSL] bad certificate (_ssl.c:1000)",
    "GroupCommitService Exception, java.lang.NullPointerException", "[NOTIFYME]putMessage in lock cost time(ms)=812",
    "not in lock eclipse time(ms)=612, bodyLength=100", "OSError: [Errno 28] No space left on device",
    "OSError: [Errno 122] Disk quota exceeded", "OSError: [Errno 24] Too many open files",
    "OSError: [Errno 23] Too many open files in system", "OSError: [Errno 12] Cannot allocate memory", "MemoryError",
    "java.lang.OutOfMemoryError: Direct buffer memory", "Out of memory: Killed process 4711 (java) total-vm:8123",
    "unable to create native thread: possibly out of memory", "RuntimeError: can't start new thread",
    "OSError: [Errno 5] Input/output error", "OSError: [Errno 117] Structure needs cleaning",
    "OSError: [Errno 121] Remote I/O error", "OSError: [Errno 30] Read-only file system: '/data'",
    "PermissionError: [Errno 13] Permission denied: '/data/store'",
    "PermissionError: [Errno 1] Operation not permitted",
    "FileNotFoundError: [Errno 2] No such file or directory: '/data'", "OSError: [Errno 116] Stale file handle",
    "OSError: [Errno 107] Transport endpoint is not connected",
    "ConnectionRefusedError: [Errno 111] Connection refused", "java.io.IOException: Connection reset by peer",
    "BrokenPipeError: [Errno 32] Broken pipe", "java.net.SocketException: Connection aborted",
    "OSError: [Errno 113] No route to host", "OSError: [Errno 101] Network is unreachable",
    "TimeoutError: [Errno 110] Connection timed out", "socket.gaierror: [Errno -2] Name or service not known",
    "socket.gaierror: [Errno -3] Temporary failure in name resolution",
    "socket.gaierror: [Errno 8] nodename nor servname provided, or not known",
    "java.lang.InterruptedException: sleep interrupted", "java.lang.NullPointerException",
)


def best(line: str) -> Entry | None:
    """Return the entry of kind LINE that explains a text best."""
    return next((match.entry for match in catalog().line(line) if match.entry.kind is Kind.LINE), None)


def own_words(call: LogCall) -> str:
    return call.text or call.source


def test_each_line_that_rmqha_logs_at_warning_or_above_has_an_entry():
    framed = {key: line for key, line in FRAMES.items()}
    wrong = [f"{call.path}:{call.line} {call.text!r}" for call in log_calls() if call.text is not None
             and (call.path, call.text) not in framed and best(HEAD.format(call.level, call.text)) is None]
    assert not wrong, "\n".join(wrong)


def test_each_line_with_a_text_from_elsewhere_is_listed_with_a_real_one():
    made = {(call.path, call.source) for call in log_calls() if call.text is None}
    assert made == MADE_ELSEWHERE.keys()
    unknown = [line for line in (*MADE_ELSEWHERE.values(), *filter(None, FRAMES.values())) if not catalog().line(line)]
    assert not unknown
    assert {(call.path, call.text) for call in log_calls()} >= FRAMES.keys()


def test_a_line_without_an_entry_is_found():
    assert best(HEAD.format("WARN", "zebras have eaten the router")) is None


def test_each_answer_of_a_server_and_error_of_the_client_has_an_entry():
    without = {(call.path.rpartition("/")[2], call.text): call for call in answers() if best(call.text or "") is None}
    assert without.keys() <= ANSWERS_WITHOUT.keys(), without.keys() - ANSWERS_WITHOUT.keys()


@cache
def java_lines() -> list[tuple[str, str, str]]:
    """Return place, level and text of each line of java_lines.tsv."""
    rows = [row.split("\t") for row in JAVA.read_text("utf-8").splitlines() if not row.startswith("#")]
    return [(place, level, text.strip()) for place, level, text in rows]


def test_javas_log_lines_and_remarks_have_entries():
    wrong = []
    for place, _level, text in java_lines():
        file = re.split(r"[/:]", place)[1]
        excepted = any(file == name and text.startswith(begin) for name, begin in JAVA_WITHOUT)
        if best(text) is None and not excepted:
            wrong.append(f"{place} {text}")
    assert not wrong, "\n".join(wrong)
    assert len(java_lines()) > 700


def test_each_pattern_explains_a_real_line():
    """Guard against patterns that match nothing: a text of rmqha or Java that was misspelled here, or that is gone."""
    real = [normal(text) for text in (*texts(), *(text for _place, _level, text in java_lines()), *REAL,
                                      *MADE_ELSEWHERE.values(), *FRAMES.values())]
    by_word: defaultdict[str, list[str]] = defaultdict(list)
    for text in real:
        for word in set(WORD.findall(text)):
            by_word[word].append(text)
    wrong = []
    for entry in catalog().entries.values():
        for pattern in entry.patterns:
            candidates = min((by_word[word] for word in pattern.words()), key=len)
            if not any(pattern.match(text) is not None for text in candidates):
                wrong.append(f"{entry.id}: {pattern.text}")
    assert not wrong, "\n".join(wrong)


def test_each_pattern_is_found_through_the_index():
    """Guard the choice of the rarest word: a line that a pattern matches has to lead to its entry."""
    wrong = []
    for entry in catalog().entries.values():
        for pattern in entry.patterns:
            line = HEAD.format("WARN", pattern.example("a value, 7"))
            scores = {match.entry.id: match.score for match in catalog().line(line)}
            if max(scores.values(), default=0) < pattern.score:
                wrong.append(f"{entry.id}: {pattern.text}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("line", REAL)
def test_real_lines_of_systems_and_libraries_are_known(line):
    assert catalog().line(line)


# ---- codes and names


def numbers(module: object, least: int = 0) -> dict[int, str]:
    return {value: name for name, value in vars(module).items() if name.isupper() and isinstance(value,
        int) and value >= least}


@pytest.mark.parametrize(("kind", "known"), [
    (Kind.RESPONSE, numbers(response_code)), (Kind.REQUEST, numbers(request_code)), (Kind.CLIENT, numbers(life,
    10_000)),
    (Kind.EXIT, {server_util.EXIT_BAD_CONFIG: "", server_util.EXIT_SERVICE_FAILED: "", 253: "", 255: "", 130: "",
    143: "",
                 129: ""})], ids=lambda value: value.name if isinstance(value, Kind) else "")
def test_each_code_has_an_entry(kind, known):
    found = {entry.code: "".join(entry.names) for entry in catalog().entries.values() if entry.kind is kind}
    assert {code: name for code, name in found.items() if code in known} == known


def test_states_checks_and_alerts_have_entries():
    def names(kind):
        return {name for entry in catalog().entries.values() if entry.kind is kind for name in entry.names}
    judged = set(re.findall(r'"([A-Z_]{4,})"', (ROOT / "rmqha/tools/replication/judgement.py").read_text("utf-8")))
    assert judged - {"SLAVE", "UNKNOWN"} - names(Kind.STATE) == {"OFFSET_REFUSED", "APPEND_FAILED"}
    assert set(cluster_checks._TODO) - names(Kind.STATE) == {"OFFSET_REFUSED", "APPEND_FAILED"}
    assert {"OFFSET_REFUSED", "APPEND_FAILED"} <= names(Kind.LINE)
    alerts = re.findall(r"alert: (\w+)", (ROOT / "conf/prometheus/alerts.yml").read_text("utf-8"))
    assert names(Kind.ALERT) == set(alerts)
    checks = {name for path in ("host_checks", "cluster_checks", "doctor_command") for name in re.findall(
        r'(?:report\.(?:error|warning|note|good)|say)\(\s*"(\w+)"',
            (ROOT / f"rmqha/tools/doctor/{path}.py").read_text("utf-8"))}
    assert checks <= names(Kind.CHECK)


# ---- the texts


def test_entries_lead_to_pages_and_headings():
    wrong = []
    for entry in catalog().entries.values():
        page, _hash, anchor = entry.page.partition("#")
        file = ROOT / "docs" / page
        if page and not file.is_file():
            wrong.append(f"{entry.id}: {page}")
        elif anchor and anchor not in anchors(file.read_text("utf-8")):
            wrong.append(f"{entry.id}: {entry.page}")
    assert not wrong, "\n".join(wrong)


def test_entries_say_what_a_text_means_and_what_to_do():
    for entry in catalog().entries.values():
        assert entry.means.endswith(".") and entry.do.endswith("."), entry.id
        assert len(entry.means) > 12 and len(entry.means.split()) <= 70, entry.id
        assert max(len(sentence.split()) for sentence in re.split(r"[.;:] ",
            f"{entry.means} {entry.do}")) <= 45, entry.id


def test_ids_are_unique_and_patterns_are_specific():
    ids = [entry.id for entry in catalog().entries.values()]
    assert len(ids) == len(set(ids)) > 400
    loose = [f"{entry.id}: {pattern.text}" for entry in catalog().entries.values() for pattern in entry.patterns
             if pattern.score < (12 if pattern.names else 10) and pattern.text != "slave[{address}]: {error}"]
    assert not loose
    assert not [entry.id for entry in catalog().entries.values() for pattern in entry.patterns if not pattern.words()]


def test_tables_name_only_keys_and_commands_that_exist():
    """Guard the advice: config keys in camelCase exist, and so do the commands of rmqha and mqadmin."""
    from rmqha.tools.command.sub_commands import SUB_COMMANDS, SUB_COMMANDS_OF_5
    from rmqha.tools.config.config_command import known_keys

    words = known_keys() | {name for path in ("rmqha/acl/common.py", "rmqha/acl/acl_files.py") for line in lines(path)
                            for name in re.findall(r'"([a-z]+[A-Z]\w*)"', line)}
    advice = " ".join(f"{entry.means} {entry.do}" for entry in catalog().entries.values())
    commands = {command.command_name for command in (*SUB_COMMANDS, *SUB_COMMANDS_OF_5)}
    unknown = {word for word in re.findall(r"\b[a-z]{2,}[a-z]*[A-Z]\w+\b", advice) if word not in words | commands}
    assert not unknown - ALSO_KNOWN, sorted(unknown - ALSO_KNOWN)


# Fields of accounts, groups and clients, files, and properties of Java's VM: no config keys.
ALSO_KNOWN = {"accessKey", "secretKey", "topicPerms", "groupPerms", "consumeBroadcastEnable", "consumeEnable",
              "consumeFromWhere", "instanceName", "maxReconsumeTimes", "pullThresholdForQueue",
              "pullThresholdSizeForQueue",
              "brokerIdentity", "delayOffset", "diskSpaceWarningLevelRatio", "rmqAddressServerDomain", "authClient",
              "trustCertPath"}


def test_filled_gaps_do_not_hide_texts():
    assert FILLED not in " ".join(entry.means for entry in catalog().entries.values())
