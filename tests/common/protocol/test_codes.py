"""Constants, against those of a real RocketMQ 4.9.7."""
import pytest

from rmqha.common.constant import logger_name, perm_name
from rmqha.common.message import message_const
from rmqha.common.protocol import request_code, response_code
from rmqha.common.sysflag import message_sys_flag, pull_sys_flag, subscription_sys_flag, topic_sys_flag
from rmqha.common.topic import topic_validator
from tests.common.model_golden import golden

CONSTANTS = golden("constants")
MODULES = {"RequestCode": request_code, "ResponseCode": response_code, "MessageConst": message_const,
           "MessageSysFlag": message_sys_flag, "PermName": perm_name, "LoggerName": logger_name,
           "TopicValidator": topic_validator}
# 5.1.4 has these, 4.9 has not.
FROM_514 = {"GET_BROKER_HA_STATUS", "GET_BROKER_EPOCH_CACHE", "NOTIFY_BROKER_ROLE_CHANGED", "BROKER_HEARTBEAT",
            "UPDATE_CONTROLLER_CONFIG", "GET_CONTROLLER_CONFIG", "CLEAN_BROKER_DATA",
            *(name for module in (request_code, response_code) for name in vars(module)
              if name.startswith("CONTROLLER_"))}
# Neither has these.
OWN = {"REJOIN_MASTER", "HANDOVER_MASTER", "GET_COMMIT_LOG_CHECKSUMS"}
# 4.9.7 has these, 4.9.8 has not.
ONLY_IN_497 = {("RequestCode", "GET_BROKER_CLUSTER_ACL_CONFIG")}


@pytest.mark.parametrize("name", MODULES)
def test_constants_are_javas(name):
    values = vars(MODULES[name])
    wrong = {constant: values.get(constant) for constant, value in CONSTANTS[name].items()
             if values.get(constant) != value and (name, constant) not in ONLY_IN_497}
    assert not wrong


@pytest.mark.parametrize("name", ["RequestCode", "ResponseCode"])
def test_codes_are_distinct_and_none_is_invented(name):
    own = {constant: value for constant, value in vars(MODULES[name]).items() if constant.isupper()}
    assert len(set(own.values())) == len(own)
    assert max(own.values()) < 1 << 15  # a ROCKETMQ header has 16 bits for it
    assert set(own) - set(CONSTANTS[name]) <= {"FLOW_CONTROL", "SUCCESS"} | FROM_514 | OWN


def test_reserved_property_names_are_javas():
    assert message_const.STRING_HASH_SET == set(CONSTANTS["reserved"])


def test_transaction_bits_are_replaced():
    assert message_sys_flag.get_transaction_value(0x3D) == message_sys_flag.TRANSACTION_ROLLBACK_TYPE
    flag = message_sys_flag.reset_transaction_value(0x3D, message_sys_flag.TRANSACTION_PREPARED_TYPE)
    assert flag == 0x35 and message_sys_flag.clear_compressed_flag(flag) == 0x34


@pytest.mark.parametrize("bits", range(32))
def test_pull_flag_bits(bits):
    given = [bool(bits >> shift & 1) for shift in range(5)]
    flag = pull_sys_flag.build_sys_flag(*given)
    assert flag == bits
    assert given == [pull_sys_flag.has_commit_offset_flag(flag), pull_sys_flag.has_suspend_flag(flag),
                     pull_sys_flag.has_subscription_flag(flag), pull_sys_flag.has_class_filter_flag(flag),
                     pull_sys_flag.has_lite_pull_flag(flag)]
    assert pull_sys_flag.clear_commit_offset_flag(flag) == bits & ~1


def test_unit_flag_bits():
    flag = topic_sys_flag.build_sys_flag(True, True)
    assert flag == 3 and topic_sys_flag.has_unit_flag(flag) and topic_sys_flag.has_unit_sub_flag(flag)
    assert topic_sys_flag.clear_unit_flag(flag) == 2 and topic_sys_flag.clear_unit_sub_flag(flag) == 1
    assert topic_sys_flag.set_unit_flag(topic_sys_flag.set_unit_sub_flag(0)) == 3
    assert subscription_sys_flag.build_sys_flag(True) == subscription_sys_flag.set_unit_flag(0) == 1
    assert subscription_sys_flag.has_unit_flag(1) and not subscription_sys_flag.clear_unit_flag(1)


@pytest.mark.parametrize(("perm", "text"), [(0, "---"), (1, "--X"), (2, "-W-"), (4, "R--"), (6, "RW-"), (7, "RWX"),
                                            (8, "---"), (15, "RWX")])
def test_permissions_have_a_text(perm, text):
    assert perm_name.perm2_string(perm) == text
