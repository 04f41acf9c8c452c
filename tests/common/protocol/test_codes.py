"""Constants, against those of a real RocketMQ 4.9.7."""
import pytest

from rmqha.common import sys_flags, topics
from rmqha.common.message import message_const
from rmqha.common.protocol import request_code, response_code
from tests.common.model_golden import golden

CONSTANTS = golden("constants")
MODULES = {"RequestCode": request_code, "ResponseCode": response_code, "MessageConst": message_const,
           "MessageSysFlag": sys_flags, "PermName": sys_flags, "TopicValidator": topics}
# 5.1.4 has these, 4.9 has not.
FROM_514 = {"GET_BROKER_HA_STATUS", "GET_BROKER_EPOCH_CACHE", "NOTIFY_BROKER_ROLE_CHANGED", "BROKER_HEARTBEAT",
            "UPDATE_CONTROLLER_CONFIG", "GET_CONTROLLER_CONFIG", "CLEAN_BROKER_DATA",
            *(name for module in (request_code, response_code) for name in vars(module)
              if name.startswith("CONTROLLER_"))}
# Neither has these.
OWN = {"REJOIN_MASTER", "HANDOVER_MASTER", "GET_COMMIT_LOG_CHECKSUMS"}
# 4.9.7 has these, 4.9.8 has not.
ONLY_IN_497 = {("RequestCode", "GET_BROKER_CLUSTER_ACL_CONFIG")}
# Nothing calls for these.
NOT_PORTED = {("PermName", "PERM_PRIORITY"), *(("MessageSysFlag", name) for name in (
    "NEED_UNWRAP_FLAG", "INNER_BATCH_FLAG", "COMPRESSION_LZ4_TYPE", "COMPRESSION_ZSTD_TYPE", "COMPRESSION_ZLIB_TYPE"))}


@pytest.mark.parametrize("name", MODULES)
def test_constants_are_javas(name):
    values = vars(MODULES[name])
    shared = CONSTANTS[name].keys() & values.keys()
    assert {constant: values[constant] for constant in shared} == {
        constant: CONSTANTS[name][constant] for constant in shared}


@pytest.mark.parametrize("name", MODULES)
def test_no_constant_of_javas_is_missing(name):
    missing = {constant for constant in CONSTANTS[name] if not hasattr(MODULES[name], constant)}
    assert missing <= {constant for module, constant in ONLY_IN_497 | NOT_PORTED if module == name}


@pytest.mark.parametrize("name", ["RequestCode", "ResponseCode"])
def test_codes_are_distinct_and_none_is_invented(name):
    own = {constant: value for constant, value in vars(MODULES[name]).items() if constant.isupper()}
    assert len(set(own.values())) == len(own)
    assert max(own.values()) < 1 << 15  # a ROCKETMQ header has 16 bits for it
    assert set(own) - set(CONSTANTS[name]) <= {"FLOW_CONTROL", "SUCCESS"} | FROM_514 | OWN


def test_reserved_property_names_are_javas():
    assert message_const.STRING_HASH_SET == set(CONSTANTS["reserved"])


def test_transaction_bits_are_replaced():
    flag = sys_flags.reset_transaction_value(0x3D, sys_flags.TRANSACTION_PREPARED_TYPE)
    assert flag == 0x35


@pytest.mark.parametrize("bits", range(32))
def test_pull_flag_bits(bits):
    given = [bool(bits >> shift & 1) for shift in range(5)]
    flag = sys_flags.build_pull_sys_flag(*given)
    assert flag == bits
    assert given[:3] == [sys_flags.has_commit_offset_flag(flag), sys_flags.has_suspend_flag(flag),
                         sys_flags.has_subscription_flag(flag)]
    assert sys_flags.clear_commit_offset_flag(flag) == bits & ~1


def test_unit_flag_bits():
    flag = sys_flags.build_topic_sys_flag(True, True)
    assert flag == 3 and sys_flags.has_unit_flag(flag) and sys_flags.has_unit_sub_flag(flag)
    assert [sys_flags.build_topic_sys_flag(unit, sub) for unit, sub in ((True, False), (False, True))] == [1, 2]


@pytest.mark.parametrize(("perm", "text"), [(0, "---"), (1, "--X"), (2, "-W-"), (4, "R--"), (6, "RW-"), (7, "RWX"),
                                            (8, "---"), (15, "RWX")])
def test_permissions_have_a_text(perm, text):
    assert sys_flags.perm2_string(perm) == text
