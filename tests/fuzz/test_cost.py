"""A few hundred costly requests in each test run, and planted faults that they must find."""
import sys

import pytest

from tests.fuzz.bystander import ON_THE_WAY, Wait, delay_between, own_delay, run_delays_and_cpu
from tests.fuzz.cost import MIB, Kind, growth, measure, send_alone
from tests.fuzz.cost_inputs import CostInputs
from tests.fuzz.remoting import MAX_FRAME, Call, framed
from tests.interop.request_code_cases import BROKER, BROKER_CODES, NAMESRV_CODES, cases_of
from tests.support.tiers import in_all, in_long

SEED = 7
INPUTS = 300
# The longest allowed wait here, on a busy machine; `python -m tests.fuzz.cost` allows 0.5 s.
PATIENCE_S = 1.5
CALLS = [Call({"code": code.number, "language": "JAVA", "version": 409, "flag": 0,
               "extFields": dict(case.fields or {})}, case.body)
         for code in BROKER_CODES + NAMESRV_CODES for case in cases_of(code) if case.what == "right"]


@pytest.fixture
def kind_of(nodes, tmp_path):
    """Yield a function that makes a name server with data and a broker with a fault."""
    kinds = []

    def make(fault: str, acl: bool = False) -> Kind:
        kinds.append(Kind("rmqha", tmp_path, nodes, acl, [sys.executable, "-m", "tests.fuzz.planted_broker", fault]))
        return kinds[-1]
    yield make
    for kind in kinds:
        kind.servers.close()


@in_all
@pytest.mark.parametrize("acl", [False, True], ids=["open", "acl"])
def test_costly_requests_delay_no_other_client_and_leak_nothing(kind_of, acl):
    report = measure([kind_of("none", acl)], range(INPUTS), SEED, slack_mib=128, more_s=PATIENCE_S)
    assert not report.faults, "\n".join(report.faults)
    assert all(told.questions > 50 for told in report.told.values())
    for what in ("broker: 0", "broker: 1", "broker: closed", "namesrv: 0", "namesrv: 1"):
        assert report.outcomes[f"rmqha {what}"] > 2, report.outcomes


@in_all
@pytest.mark.parametrize("fault, is_guilty", [
    pytest.param("sleep", lambda one: b"1000000" in one.data, marks=in_long),
    pytest.param("quadratic", lambda one: one.data.count(b",") > 10_000)], ids=["sleep", "quadratic"])
def test_planted_slow_path_is_found_and_its_input_is_named(kind_of, fault, is_guilty):
    kind = kind_of(fault)
    report = measure([kind], range(INPUTS), SEED)
    assert any("the bystander of the rmqha broker waited" in one for one in report.faults), report.faults
    inputs = kind.inputs(BROKER, SEED)
    guilty = [one for one in report.suspects["rmqha broker"].values() if is_guilty(inputs.input(one.number))]
    assert guilty
    alone = send_alone([kind], BROKER, guilty[0].number, SEED)
    assert float(alone.rpartition("waited ")[2].split()[0]) > 0.5, alone


@in_all
@pytest.mark.parametrize("fault, found", [
    pytest.param("leak", "the rmqha broker grows"),
    pytest.param("threads", "the rmqha broker holds", marks=in_long),
    pytest.param("descriptors", "the rmqha broker holds", marks=in_long)])
def test_planted_leak_is_found(kind_of, monkeypatch, fault, found):
    monkeypatch.setattr("tests.fuzz.cost.SETTLED_MS", 1000)
    report = measure([kind_of(fault)], range(INPUTS), SEED)
    assert any(one.startswith(found) for one in report.faults), report.faults


def test_input_depends_only_on_seed_and_number():
    one, two = CostInputs(CALLS, 5), CostInputs(CALLS, 5)
    assert [one.input(number) for number in range(30)] == [two.input(number) for number in reversed(range(30))][::-1]
    assert one.input(3) != CostInputs(CALLS, 6).input(3)


def test_inputs_have_all_sizes_and_codes_and_fit_into_a_frame():
    inputs = [CostInputs(CALLS, 1).input(number) for number in range(600)]
    assert max(len(one.data) for one in inputs) > MIB and all(len(one.data) <= MAX_FRAME for one in inputs)
    assert sum(len(one.data) < 8192 for one in inputs) > 200
    assert {one.code for one in inputs} > {34, 41, 42, 46, 103, 11, 320, 12}
    for what in ("references", "collisions", "depth", "new names", "SQL92", "properties of", "a batch", "digits",
                 "compressed", "more fields", "equal elements", "times", "the dialect in remark", "the dialect in ("):
        assert any(what in one.what for one in inputs), what


def test_signed_calls_keep_their_signature():
    inputs = CostInputs(CALLS, 1, lambda call: call.header["extFields"].update(Signature="s"))
    assert 20 < sum(b"Signature" in inputs.input(number).data for number in range(100)) < 80


@pytest.mark.parametrize("rests, grown", [
    ([10, 50, 50, 50, 50, 50, 50, 50], 0), ([0, 0, 0, 0, 10, 20, 30, 40], 30), ([1, 1, 1, 1, 5, 90, 5, 5], 0), ([], 0)])
def test_growth_is_measured_in_the_second_half_without_peaks(rests, grown):
    assert growth(rests) == pytest.approx(grown)


def test_delays_of_the_machine_do_not_count_for_the_server():
    assert Wait("rmqha broker", "send", 0.0, 2.0, 1.7).own == pytest.approx(0.3)
    delays, cpu = run_delays_and_cpu(1)
    assert delays and cpu >= 0 and own_delay() >= 0
    later = {str(task): 1.0 + task for task in range(9)}
    assert delay_between({"8": 8.5}, later) == pytest.approx(sum(sorted([*range(1, 9), 0.5])[-ON_THE_WAY:]))


def test_frame_of_a_call_is_read_by_the_server():
    assert framed(CALLS[0])[:4] == (len(framed(CALLS[0])) - 4).to_bytes(4, "big")
