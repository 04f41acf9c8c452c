"""The shop's behaviour when a broker fails."""
import pytest
from shop import TOPIC, Billing, Shop

from rmqha import MQBrokerException, MQClientException, RemotingException


def test_busy_broker_is_asked_again(mq, shop):
    busy = mq.refuse("SYSTEM_BUSY", times=3)
    shop.place("ada", "o-1", 100)
    assert busy.hits == 3
    assert len(mq.messages(TOPIC)) == 1


def test_broker_that_stays_busy_is_given_up(mq, shop):
    with mq.refuse("SYSTEM_BUSY") as busy:
        with pytest.raises(MQBrokerException, match="refused by the test"):
            shop.place("ada", "o-1", 100)
    assert busy.hits == shop.tries
    assert mq.messages(TOPIC) == []


def test_refusal_for_another_reason_is_not_tried_again(mq, shop):
    with mq.refuse("NO_PERMISSION") as refused:
        with pytest.raises((MQBrokerException, MQClientException)):
            shop.place("ada", "o-1", 100)
    assert refused.hits == 1


def test_slow_broker_raises_an_error_at_the_timeout(mq):
    with Shop(mq.namesrv_addr, timeout_ms=100) as shop, mq.slow_down(300):
        with pytest.raises((RemotingException, MQClientException)):
            shop.place("ada", "o-1", 100)


def test_full_disk_is_an_error_and_loses_nothing(mq, shop):
    shop.place("ada", "o-1", 100)
    with mq.fill_disk():
        with pytest.raises((MQBrokerException, MQClientException)):
            shop.place("ada", "o-2", 100)
    shop.place("ada", "o-3", 100)
    assert {message.keys for message in mq.messages(TOPIC)} == {"o-1", "o-3"}


def test_restarted_broker_has_all_orders(mq, shop, eventually):
    shop.place("ada", "o-1", 100)
    mq.kill_master()
    mq.restart()
    shop.place("ada", "o-2", 100)
    with Billing(mq.namesrv_addr) as billing:
        eventually(lambda: billing.charged == {"o-1": 100, "o-2": 100})
