"""The shop with a master and a slave."""
import pytest
from shop import TOPIC, NotReplicatedError, Shop


@pytest.fixture
def mq(rocketmq_ha):
    """A master that waits for its slave, instead of a single master."""
    rocketmq_ha.create_topic(TOPIC, queues=4)
    return rocketmq_ha


def test_order_is_on_both_machines_when_it_is_accepted(mq, shop):
    shop.place("ada", "o-1", 100)
    assert len(mq.messages(TOPIC, "broker-a")) == len(mq.messages(TOPIC, "broker-a-s")) == 1


def test_order_that_one_machine_has_alone_is_an_error(mq, shop):
    with mq.partition():
        with pytest.raises(NotReplicatedError, match="SLAVE_NOT_AVAILABLE"):
            shop.place("ada", "o-1", 100)
    mq.wait_for_slaves()
    assert len(mq.messages(TOPIC, "broker-a-s")) == 1


def test_orders_are_billed_while_the_master_is_down(mq, billing, eventually):
    with Shop(mq.namesrv_addr) as shop:
        shop.place("ada", "o-1", 100)
    mq.wait_for_slaves()
    mq.kill_master()
    eventually(lambda: billing.charged == {"o-1": 100})
