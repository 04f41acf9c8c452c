"""Billing: each order is charged once."""
import pytest
from shop import Billing


@pytest.mark.parametrize("count", [1, 10, 100])
def test_each_order_is_charged(shop, billing, eventually, count):
    for number in range(count):
        shop.place("ada", number, 100 + number)
    eventually(lambda: billing.charged == {number: 100 + number for number in range(count)})


def test_order_that_arrives_twice_is_charged_once(shop, billing, eventually):
    shop.place("ada", "o-1", 100)
    eventually(lambda: billing.charged)
    shop.place("ada", "o-1", 999)
    shop.place("ada", "o-2", 5)
    eventually(lambda: len(billing.charged) == 2)
    assert billing.charged == {"o-1": 100, "o-2": 5}


def test_cancelled_order_costs_nothing(shop, billing, eventually):
    shop.place("ada", "o-1", 100)
    eventually(lambda: billing.charged == {"o-1": 100})
    shop.cancel("ada", "o-1")
    eventually(lambda: billing.charged == {"o-1": 0})


def test_orders_wait_for_billing(mq, shop, eventually):
    shop.place("ada", "o-1", 100)
    with Billing(mq.namesrv_addr) as billing:
        eventually(lambda: billing.charged == {"o-1": 100})


def test_billing_continues_where_it_stopped(mq, shop, eventually):
    shop.place("ada", "o-1", 100)
    with Billing(mq.namesrv_addr) as first:
        eventually(lambda: first.charged == {"o-1": 100})
    shop.place("ada", "o-2", 200)
    with Billing(mq.namesrv_addr) as second:
        eventually(lambda: second.charged)
        assert second.charged == {"o-2": 200}


def test_two_groups_see_all_orders_each(mq, shop, billing, eventually):
    with Billing(mq.namesrv_addr, group="audit") as audit:
        shop.place("ada", "o-1", 100)
        eventually(lambda: billing.charged == audit.charged == {"o-1": 100})
