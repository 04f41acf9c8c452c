"""The messages that the shop sends."""
import json

import pytest
from shop import TOPIC


def test_order_can_be_found_by_its_number(mq, shop):
    shop.place("ada", "o-1", 250)
    [message] = mq.messages(TOPIC)
    assert (message.keys, message.tags) == ("o-1", "placed")


@pytest.mark.parametrize("amount", [1, 99, 100, 12345, 10**12])
def test_order_has_its_amount(mq, shop, amount):
    shop.place("ada", "o-1", amount)
    assert [json.loads(message.body) for message in mq.messages(TOPIC)] == [{"order": "o-1", "amount": amount}]


@pytest.mark.parametrize("customer", ["ada", "grace", "edsger"])
def test_orders_of_a_customer_keep_their_order(mq, shop, customer):
    for number in range(20):
        shop.place(customer, f"o-{number}", 100)
        shop.place("somebody else", f"x-{number}", 100)
    orders = [message for message in mq.messages(TOPIC) if message.keys.startswith("o-")]
    assert [message.keys for message in orders] == [f"o-{number}" for number in range(20)]
    assert len({message.queue_id for message in orders}) == 1


@pytest.mark.parametrize("amount", [0, -1, -100])
def test_impossible_order_is_never_sent(mq, shop, amount):
    with pytest.raises(ValueError, match="an order of"):
        shop.place("ada", "o-1", amount)
    assert mq.messages(TOPIC) == []
