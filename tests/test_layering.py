"""Permitted imports between packages: common <- remoting <- store, controller <- namesrv, broker; common <- filter <-
broker; common <- native <- store, broker, tools.

The client builds on remoting, tools and aio on the client; acl builds on remoting, below broker and tools. testing,
which starts servers within other people's tests, builds on all of them but tools, and nothing builds on it.
"""
import ast
import re
from functools import cache
from graphlib import CycleError, TopologicalSorter

import pytest

from rmqha.common.message import message_layout as layout
from tests.support.sources import ROOT, imports, modules, nodes

ALLOWED = {
    "common": {"common"},
    "native": {"common", "native"},
    "remoting": {"common", "remoting"},
    "store": {"common", "native", "remoting", "store"},
    "controller": {"common", "remoting", "controller"},
    "namesrv": {"common", "remoting", "controller", "namesrv"},
    "filter": {"common", "filter"},
    "acl": {"common", "remoting", "acl"},
    "broker": {"common", "native", "remoting", "store", "filter", "acl", "broker"},
    "client": {"common", "remoting", "acl", "client"},
    "aio": {"common", "client", "aio"},
    "tools": {"common", "native", "remoting", "acl", "client", "tools", "store"},
    "pipeline": {"common", "remoting", "acl", "client", "store", "pipeline"},
    "testing": {"common", "remoting", "store", "namesrv", "broker", "client", "aio", "testing"},
}
# For tools and pipeline, "store" means only its pure layouts and the modules that read files by them.
PURE_STORE = ("rmqha.store.consume_queue_layout", "rmqha.store.index.index_layout",
              "rmqha.store.index.index_file", "rmqha.store.ha.ha_transfer",
              "rmqha.store.ha.record_verifier",
              "rmqha.store.bulk", "rmqha.store.message_store_config", "rmqha.store.store_path_config_helper")
NEVER_IMPORTED = ("_startup", "rmqha.tools", "rmqha.pipeline", "rmqha.testing")
# Parts that refer to their makers in type annotations: (part, maker).
NAMES_ITS_MAKER = {
    ("rmqha.store.results", "rmqha.store.mapped_file"),
    ("rmqha.store.ha.frame_format", "rmqha.store.ha.ha_connection"),
    ("rmqha.store.ha.master_connection", "rmqha.store.ha.ha_client"),
    ("rmqha.store.ha.autoswitch.auto_switch_ha_client", "rmqha.store.ha.autoswitch.auto_switch_ha_service"),
    ("rmqha.store.ha.autoswitch.auto_switch_ha_connection", "rmqha.store.ha.autoswitch.auto_switch_ha_service"),
    ("rmqha.broker.controller.controller_heartbeat", "rmqha.broker.controller.replicas_manager"),
    ("rmqha.broker.metrics.broker_metrics", "rmqha.broker.broker_controller"),
    ("rmqha.broker.metrics.health", "rmqha.broker.broker_controller"),
    ("rmqha.controller.controller_metrics", "rmqha.controller.controller"),
}
# Path prefixes whose modules may import a library; all other code goes through them.
GUARDED = {
    # The last one sends datagrams to systemd.
    "socket": ("rmqha/remoting/", "rmqha/store/ha/", "rmqha/common/process.py"),
    "selectors": ("rmqha/remoting/", "rmqha/store/ha/"),
    "mmap": ("rmqha/store/mapped_file.py", "rmqha/store/store_checkpoint.py", "rmqha/store/mapped_memory.py"),
    "pyspark": ("rmqha/pipeline/",),
    "yaml": ("rmqha/acl/",),
    "subprocess": ("rmqha/tools/", "rmqha/testing/", "rmqha/client/contexts.py", "rmqha/native/build_backend.py",
                   "rmqha/broker/controller/role_callback.py"),
    "http": ("rmqha/remoting/", "rmqha/common/top_addressing.py"),
    "etcd3gw": ("rmqha/controller/etcd_client.py",),
    "requests": ("rmqha/controller/etcd_client.py",),
    "prometheus_client": ("rmqha/common/metrics.py",),
    # A dump while other threads run may read data that they are changing, which is a segmentation fault.
    "faulthandler": (),
}
# The replication protocol without the connections: bytes in, bytes out.
SANS_IO = ("ha_transfer", "ha_handshake", "record_verifier", "first_file_search", "autoswitch/auto_switch_transfer")
NO_IO = ("socket", "selectors", "select", "threading", "time", "os")
# Only these create threads; the rest may use `threading` for locks and conditions.
THREAD_CALLS = ("threading.Thread", "Thread", "threading.Timer", "ThreadPoolExecutor")
THREAD_MAKERS = {"rmqha/common/service_thread.py", "rmqha/common/threads.py"}
# The store assembles its parts, and none of them imports it; replication accesses it as a ReplicatedLog.
STORE_ITSELF = "rmqha.store.default_message_store"
LOG_ALONE = "rmqha/store/ha/"
PARTS_OF_A_STORE = ("rmqha.store.commit_log.", "rmqha.store.consume_queue.", "rmqha.store.index.")
KNOWS_PARTS = "rmqha/store/ha/autoswitch/auto_switch_ha_service.py"  # a change of roles waits for them
# Address and host name functions without a connection: these few calls need the socket module but open nothing.
SOCKET_EXCEPTIONS = {
    "rmqha/common/broker_config.py", "rmqha/common/util_all.py", "rmqha/common/message/message_layout.py",
    "rmqha/common/message/message_decoder.py", "rmqha/tools/quickstart.py", "rmqha/common/message/host.py",
     # checks which ports are free
}


@cache
def all_imports():
    return [(path, name, line) for path, tree in modules().items() for name, line in imports(tree)]


def test_no_package_imports_one_above_it():
    wrong = []
    for path, name, line in all_imports():
        parts = path.split("/")
        if len(parts) < 3 or not name.startswith("rmqha."):
            continue
        target = name.split(".")[1]
        if target in ALLOWED and target not in ALLOWED[parts[1]]:
            wrong.append(f"{path}:{line} imports {name}")
        if parts[1] in ("tools", "pipeline") and target == "store" and not name.startswith(PURE_STORE):
            wrong.append(f"{path}:{line} imports {name}, which is not a pure layout")
    assert not wrong, "\n".join(wrong)


def module_name(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def test_no_import_cycles_even_for_types():
    """Include every import: at the top of a module, within a function, and for type checkers."""
    names = {module_name(path): path for path in modules()}
    graph: dict[str, set[str]] = {}
    for name, path in names.items():
        found = {each for each, _line in imports(modules()[path], run_time_only=False)}
        used = {each if each in names else each.rpartition(".")[0] for each in found}
        graph[name] = {each for each in used if (name, each) not in NAMES_ITS_MAKER} - {name}
    assert all(maker in names for _part, maker in NAMES_ITS_MAKER)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))
    assert "rmqha.client.impl.mq_client_instance" in graph["rmqha.client.impl.mq_client_manager"]


def test_no_package_imports_startup_tools_pipeline_or_testing():
    wrong = [f"{path}:{line} imports {name}" for path, name, line in all_imports()
             if name.startswith("rmqha.") and not path.startswith(("rmqha/tools", "rmqha/pipeline"))
             and not (path.startswith("rmqha/testing/") and name.startswith("rmqha.testing"))
             and ("_startup" in name or name.startswith(NEVER_IMPORTED[1:]))]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("library", sorted(GUARDED))
def test_library_is_imported_only_in_its_place(library):
    wrong = [f"{path}:{line}" for path, name, line in all_imports()
             if name.split(".")[0] == library and not path.startswith(GUARDED[library])
             and not (library == "socket" and path in SOCKET_EXCEPTIONS)]
    assert not wrong, "\n".join(wrong)


def test_replication_protocol_uses_no_socket_and_no_clock():
    paths = {f"rmqha/store/ha/{name}.py" for name in SANS_IO}
    assert paths <= set(modules())
    wrong = [f"{path}:{line} imports {name}" for path, name, line in all_imports()
             if path in paths and name.split(".")[0] in NO_IO]
    assert not wrong, "\n".join(wrong)


def test_only_service_thread_and_pool_create_threads():
    wrong = []
    for path, found in nodes().items():
        for node in found:
            made = isinstance(node, ast.Call) and ast.unparse(node.func)
            if made in THREAD_CALLS and path not in THREAD_MAKERS:
                wrong.append(f"{path}:{node.lineno} {made}")
    assert not wrong, "\n".join(wrong)


def test_no_part_of_the_store_imports_the_store():
    wrong = [f"{path}:{line} imports {name}" for path, name, line in all_imports()
             if path.startswith("rmqha/store/") and name.startswith(STORE_ITSELF)]
    assert not wrong, "\n".join(wrong)


def test_replication_depends_on_a_log_and_no_part_of_a_store():
    wrong = [f"{path}:{line} imports {name}" for path, name, line in all_imports()
             if path.startswith(LOG_ALONE) and path != KNOWS_PARTS and name.startswith(PARTS_OF_A_STORE)]
    assert not wrong, "\n".join(wrong)


def test_only_one_method_appends_messages_under_the_put_lock():
    path, setters, appenders, callers = "rmqha/store/commit_log.py", set(), set(), set()
    for where, tree in modules().items():
        for function in [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]:
            for node in ast.walk(function):
                if isinstance(node, ast.Attribute) and node.attr == "begin_time_in_lock" \
                        and isinstance(node.ctx, ast.Store):
                    setters.add((where, function.name))
                if isinstance(node, ast.Attribute) and node.attr == "_write" and where == path:
                    appenders.add((where, function.name))
                if where == path and isinstance(node, ast.Attribute) and node.attr == "_append":
                    callers.add(function.name)
    assert setters == {(path, "__init__"), (path, "put")}
    assert appenders == {(path, "_append")}
    assert callers == {"put"}


# Only message_layout and native.h define where the fields of a record are; all other code uses their names.

LAYOUT = "rmqha.common.message.message_layout"
# Names that only serve to walk from record to record, and define no places.
WALK = {f"{LAYOUT}.{name}" for name in ("HEAD", "walk", "fits")}
# Java's own numbers of requests and responses are defined here.
OTHER_NUMBERS = "rmqha/common/protocol/"
MORE = layout.MORE_IN_V6
BEHIND_A_HOST = {layout.STORE_TIMESTAMP_POSITION, layout.STORE_HOST_POSITION, layout.RECONSUME_TIMES_POSITION,
                 layout.PREPARED_TRANSACTION_OFFSET_POSITION, layout.BODY_LENGTH_POSITION, layout.HEAD_LENGTH}
PLACES = {number + more for number in BEHIND_A_HOST for more in (0, MORE, 2 * MORE)} | {layout.MIN_RECORD_LENGTH} | {
    value for name, value in vars(layout).items() if name.endswith("_POSITION")}
# Common numbers, which mean a place only when a module uses the layout's other names.
COMMON = {number for number in PLACES if number < 50 or number in (64, 72, 80, 100)}
# Too common even then: TOTALSIZE to FLAG are found by their names, or by a Struct.
SMALL = {number for number in PLACES if number <= layout.QUEUE_OFFSET_POSITION}
RECORD_FORMAT = re.compile(r"^>i{4}")


def is_count(parent):
    """Return whether a number is a factor or a shift: `64 * 1024`, `4 << 20`, `percent / 100`."""
    return isinstance(parent, ast.BinOp) and isinstance(parent.op, (ast.Mult, ast.Div, ast.LShift, ast.Pow))


def bare_numbers(tree):
    """Return (line, description) of the places and layouts of records that a module writes as numbers."""
    uses_layout = any(name.startswith(LAYOUT) and name not in WALK for name, _ in imports(tree))
    forbidden = PLACES - SMALL if uses_layout else PLACES - COMMON - SMALL
    for parent in ast.walk(tree):
        for node in ast.iter_child_nodes(parent):
            if not isinstance(node, ast.Constant):
                continue
            if type(node.value) is int and node.value in forbidden and not is_count(parent):
                yield node.lineno, node.value
            if isinstance(node.value, str) and RECORD_FORMAT.match(node.value):
                yield node.lineno, node.value


def test_only_the_layout_module_contains_field_places():
    own = LAYOUT.replace(".", "/") + ".py"
    wrong = [f"{path}:{line} {what}" for path, tree in modules().items() for line, what in bare_numbers(tree)
             if path != own and not path.startswith(OTHER_NUMBERS)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("planted", [
    "LONG.unpack_from(data, 56)", "at = start + 68", "body_at = 88 + v6", "data[:112]", "smallest = 91",
    'HEAD = Struct(">iiii4xqqi44xi")', 'HEAD = Struct(f">iiiiiqqi{born}s")',
    f"from {LAYOUT} import LONG\nLONG.unpack_from(data, 28)", f"from {LAYOUT} import INT\nINT.unpack_from(data, 36)"])
def test_planted_number_is_found(planted):
    assert list(bare_numbers(ast.parse(planted)))


# In C, a record's place is added to a pointer; `file` and `unit` point elsewhere.
PLACE_IN_C = re.compile(r"\b(?:p|record|head|at|data|room|out)\s*(?:[+<]|\[)\s*(\d+)\b")


def numbers_in_c(text):
    """Return the places of a record that C code adds to a pointer as numbers."""
    return [int(number) for number in PLACE_IN_C.findall(text) if int(number) in PLACES - SMALL]


@pytest.mark.parametrize("source", sorted((ROOT / "rmqha" / "native").glob("*.c")), ids=lambda source: source.name)
def test_c_sources_take_field_places_from_their_header(source):
    assert not numbers_in_c(source.read_text("utf-8"))


def test_planted_number_is_found_in_c():
    assert numbers_in_c("int64_t stored = get64(p + 56);") == [56]
    assert numbers_in_c("if (room < 88)") == [88]
