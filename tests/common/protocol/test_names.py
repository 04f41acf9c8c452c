"""Topic names, namespaces, subscriptions and help texts."""
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.common import subscriptions, topics
from rmqha.common.data_version import DataVersion
from rmqha.common.protocol import namespace_util, response_code
from rmqha.common.protocol import namespace_util as faq_url
from rmqha.common.protocol.cluster_bodies import RegisterBrokerResult
from rmqha.common.topics import SubscriptionGroupConfig, TopicConfig, TopicValidator
from rmqha.common.util_all import current_time_millis
from tests.common.model_golden import golden

GOLDEN = golden("names")


@pytest.mark.parametrize("case", GOLDEN["subscriptions"], ids=lambda case: repr(case["expression"]))
def test_subscriptions_are_built_as_java_does(case):
    data = subscriptions.build("t", case["expression"], None)
    assert (data.subString, sorted(data.tagsSet), sorted(data.codeSet)) == (
        case["subString"], case["tags"], case["codes"])


def test_subscriptions_without_tags_or_expression():
    assert subscriptions.build("t", None, "TAG").subString == "*"
    sql = subscriptions.build("t", "a > 1", "SQL92")
    assert (sql.expressionType, sql.subString, sql.tagsSet) == ("SQL92", "a > 1", set())
    for wrong in ("||", "||||"):
        with pytest.raises(ValueError, match="split"):
            subscriptions.build("t", wrong, "TAG")
    for wrong in (None, ""):
        with pytest.raises(ValueError, match="SQL92"):
            subscriptions.build("t", wrong, "SQL92")
    assert subscriptions.is_tag_type(None) and subscriptions.is_tag_type("") and subscriptions.is_tag_type("TAG")
    assert not subscriptions.is_tag_type("SQL92")


@pytest.mark.parametrize("case", GOLDEN["namespaces"], ids=lambda case: repr(case["resource"]))
def test_namespaces_are_javas(case):
    name = case["resource"]
    assert namespace_util.without_namespace(name) == case["without"]
    assert namespace_util.without_namespace(name, "ns") == case["withoutNs"]
    assert namespace_util.without_namespace(name, None) == case["withoutNull"]
    assert namespace_util.wrap_namespace("ns", name) == case["wrap"]
    assert namespace_util.wrap_namespace(None, name) == case["wrapNull"]
    assert namespace_util.is_already_with_namespace(name, "ns") == case["already"]


def test_retry_topics_are_known_by_their_prefix():
    assert namespace_util.is_retry_topic("%RETRY%g") and not namespace_util.is_retry_topic(None)


@pytest.mark.parametrize(("topic", "remark"), [
    (None, "is blank"), ("", "is blank"), (" \t", "is blank"), ("a b", "illegal characters"), ("../x", "illegal"),
    ("a\n", "illegal"), ("\u00e4", "illegal"), ("t" * 128, "longer than topic max length")])
def test_bad_topics_are_refused_with_javas_remark(topic, remark):
    response = SimpleNamespace(code=0, remark=None)
    assert not topics.validate_topic(topic, response)
    assert response.code == response_code.SYSTEM_ERROR and remark in response.remark


@pytest.mark.parametrize("topic", ["T", "%RETRY%g", "a|b", "0_-", "t" * 127])
def test_good_topics_leave_the_response_alone(topic):
    response = SimpleNamespace(code=0, remark=None)
    assert TopicValidator.validate_topic(topic, response)
    assert response == SimpleNamespace(code=0, remark=None)


@given(st.text(max_size=140))
def test_any_text_is_a_topic_or_not(text):
    good = topics.check_topic(text) is None
    assert good == (0 < len(text) <= 127 and all(c.isascii() and (c.isalnum() or c in "%|_-") for c in text))


def test_system_topics_of_a_broker_are_its_own():
    one, other = TopicValidator(), TopicValidator()
    one.add_system_topic("broker-a")
    response = SimpleNamespace(code=0, remark=None)
    assert one.is_system_topic("broker-a", response) and not other.is_system_topic("broker-a")
    assert response.code == response_code.SYSTEM_ERROR and "conflict with system topic" in response.remark
    assert one.is_system_topic("rmq_sys_x") and topics.is_system_topic("TBW102")
    assert not topics.is_system_topic("broker-a") and "broker-a" in one.system_topic_set


def test_sends_to_some_system_topics_are_forbidden():
    validator, response = TopicValidator(), SimpleNamespace(code=0, remark=None)
    assert validator.is_not_allowed_send_topic("SCHEDULE_TOPIC_XXXX", response)
    assert response.code == response_code.NO_PERMISSION and "is forbidden" in response.remark
    assert not validator.is_not_allowed_send_topic("TBW102")
    assert topics.is_not_allowed_send_topic("OFFSET_MOVED_EVENT")


def test_topic_text_comes_back():
    topic = TopicConfig("T", 1, 2, 6)
    copy = TopicConfig()
    assert copy.decode(topic.encode()) and copy == topic and hash(copy) == hash(topic)
    assert not copy.decode("T 1 2 6") and not copy.decode("")
    for wrong in ("T a 2 6 SINGLE_TAG", "T 1 2 6 OTHER", "T 1 2 4294967296 SINGLE_TAG"):
        with pytest.raises(ValueError, match="invalid|input"):
            copy.decode(wrong)
    assert copy == topic


def test_data_versions_are_equal_when_both_numbers_are():
    version = DataVersion()
    assert abs(version.timestamp - current_time_millis()) < 10_000 and version.counter == 0
    other = DataVersion(1, 2)
    other.next_version()
    assert other.counter == 3 and other.timestamp > 1
    version.assign_new_one(other)
    assert version == other and hash(version) == hash(other) and version != DataVersion(other.timestamp, 2)


def test_groups_begin_with_javas_settings():
    group = SubscriptionGroupConfig("g")
    assert (group.retryQueueNums, group.retryMaxTimes) == (1, 16)
    assert (group.brokerId, group.whichBrokerWhenConsumeSlowly) == (0, 1)
    assert len({group, SubscriptionGroupConfig("g")}) == 1


def test_errors_point_to_the_documentation():
    text = faq_url.suggest_todo(faq_url.MQLIST_NOT_EXIST)
    assert text == "\nSee http://rocketmq.apache.org/docs/faq/ for further details."
    assert faq_url.attach_default_url("x" + text) == "x" + text
    assert faq_url.attach_default_url(None) is None
    assert faq_url.attach_default_url("x").startswith("x\nFor more information, please visit the url, http")


def test_registration_results_start_empty():
    assert RegisterBrokerResult() == RegisterBrokerResult(None, None, None)
    assert namespace_util.NAMESPACE_ORDER_TOPIC_CONFIG == "ORDER_TOPIC_CONFIG"
