"""A broker's life in one process."""
import socket

import pytest

from rmqha.common.message import message_decoder
from rmqha.common.protocol import request_code, response_code
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.store.message_store_config import BrokerRole
from tests.broker.support import bodies, new_controller, running_broker
from tests.support.own_threads import own_threads
from tests.support.wait import wait_until


def test_messages_and_tables_are_there_after_a_restart(tmp_path):
    with running_broker(tmp_path) as broker:
        broker.send("Topic", b"one")
        broker.send("Topic", b"two")
    with running_broker(tmp_path) as broker:
        assert bodies(broker.pull("Topic", 0)) == [b"one", b"two"]
        assert broker.send("Topic").ext_fields["queueOffset"] == "2"


def test_two_brokers_fit_in_one_process(tmp_path):
    with running_broker(tmp_path / "a") as one, running_broker(tmp_path / "b", brokerName="broker-b") as other:
        one.send("Topic", b"one")
        other.send("Topic", b"other")
        wait_until(lambda: one.next_offset("Topic") and other.next_offset("Topic"), 60_000, "both")
        assert bodies(one.pull("Topic", 0)) == [b"one"] and bodies(other.pull("Topic", 0)) == [b"other"]


def test_nothing_is_left_running_after_shutdown(tmp_path):
    before = own_threads()
    with running_broker(tmp_path) as broker:
        broker.send("Topic")
        broker.pull("Topic", 5)
        broker.heartbeat("group", "Topic")
        broker.call(request_code.GET_BROKER_RUNTIME_INFO)
    wait_until(lambda: own_threads() <= before, 60_000, "all threads ended")


def test_shutdown_twice_and_before_start_is_fine(tmp_path):
    controller = new_controller(tmp_path)
    controller.shutdown()
    controller.shutdown()


def test_taken_port_is_an_error_and_leaves_nothing(tmp_path):
    before = own_threads()
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        controller = new_controller(tmp_path, listenPort=taken.getsockname()[1])
        assert controller.initialize()
        with pytest.raises(OSError):
            controller.start()
        controller.shutdown()
    wait_until(lambda: own_threads() <= before, 60_000, "all threads ended")


def test_broker_may_be_known_by_a_name(tmp_path):
    with running_broker(tmp_path, brokerIP1="localhost") as broker:
        assert broker.address.startswith("localhost:")
        ids = [broker.send("Topic").ext_fields["msgId"] for _ in range(3)]  # the first makes the topic
        assert all(message_decoder.decode_message_id(one)[0] == ("127.0.0.1", broker.controller.addresses.store_host[1])
                   for one in ids), ids
        assert broker.next_offset("Topic") == 3
        assert bodies(broker.pull("Topic", 0)) == [b"body"] * 3


def test_name_that_nobody_knows_keeps_the_broker_from_starting(tmp_path):
    controller = new_controller(tmp_path, brokerIP1="no-such-host.invalid")
    assert controller.initialize()
    with pytest.raises(OSError, match="brokerIP1=no-such-host.invalid is no address"):
        controller.start()
    controller.shutdown()


@pytest.mark.parametrize("name", ["topics.json", "consumerOffset.json", "subscriptionGroup.json"])
def test_broken_table_without_backup_keeps_the_broker_from_starting(tmp_path, name):
    config = tmp_path / "store" / "config"
    config.mkdir(parents=True)
    (config / name).write_text("{broken")
    controller = new_controller(tmp_path)
    assert not controller.initialize()
    controller.shutdown()
    assert (config / name).read_text() == "{broken"


def test_fast_port_is_two_below(tmp_path):
    controller = new_controller(tmp_path, listenPort=25110)
    assert controller.fast_remoting_server.config.listenPort == 25108 and controller.server_config.listenPort == 25110
    controller.shutdown()


def test_slave_synchronises_only_while_it_is_one(tmp_path):
    controller = new_controller(tmp_path, brokerRole=BrokerRole.SLAVE, brokerId=1)
    assert controller.initialize()
    calls = []
    controller.slave_synchronize.sync_all = lambda: calls.append(1)
    scheduled = []
    controller._scheduler.schedule = lambda task, delay_ms: scheduled.append((task, delay_ms))
    controller.role_services.handle_slave_synchronize(BrokerRole.SLAVE)
    (first, delay_ms), = scheduled
    first()
    assert delay_ms == 3000 and calls == [1]
    (_, (second, delay_ms)) = scheduled
    controller.role_services.handle_slave_synchronize(BrokerRole.ASYNC_MASTER)
    second()
    assert delay_ms == 10_000 and calls == [1] and len(scheduled) == 2
    controller.shutdown()


def test_slave_synchronises_by_one_task_however_often_its_role_changes(tmp_path):
    controller = new_controller(tmp_path, brokerRole=BrokerRole.SLAVE, brokerId=1)
    assert controller.initialize()
    calls, scheduled = [], []
    controller.slave_synchronize.sync_all = lambda: calls.append(1)
    controller._scheduler.schedule = lambda task, _delay_ms: scheduled.append(task)
    for role in (BrokerRole.SLAVE, BrokerRole.SYNC_MASTER) * 5 + (BrokerRole.SLAVE, BrokerRole.SLAVE):
        controller.role_services.handle_slave_synchronize(role)
    for rounds in range(1, 4):
        waiting, scheduled[:] = scheduled[:], []
        for task in waiting:
            task()
        assert len(calls) == rounds and len(scheduled) == 1
    controller.shutdown()


def test_slow_consumers_are_stopped_when_the_configuration_says_so(broker):
    controller = broker.controller
    controller.subscription_group_manager.find_subscription_group_config("slow")
    controller.broker_stats_manager.record_disk_fall_behind_size("slow", "Topic", 0, 1 << 40)
    controller.protect_broker()
    assert controller.subscription_group_manager.find_subscription_group_config("slow").consumeEnable
    controller.broker_config.disableConsumeIfConsumerReadSlowly = True
    controller.protect_broker()
    assert not controller.subscription_group_manager.find_subscription_group_config("slow").consumeEnable


def test_request_that_waited_too_long_for_a_thread_is_refused(broker):
    controller = broker.controller
    answer = controller.broker_fast_failure.run_in(controller.pools.send_message_executor, 0, lambda: None).get(60_000)
    assert answer.code == response_code.SYSTEM_BUSY and answer.remark.startswith("[TIMEOUT_CLEAN_QUEUE]broker busy")
    controller.broker_config.brokerFastFailureEnable = False
    answer = controller.broker_fast_failure.run_in(controller.pools.send_message_executor, 0, lambda: None).get(60_000)
    assert answer is None


def test_failure_in_a_pool_is_answered(broker):
    def fail() -> RemotingCommand:
        raise RuntimeError("no luck")

    controller = broker.controller
    answer = controller.broker_fast_failure.run_in(controller.pools.send_message_executor, 60_000, fail).get(60_000)
    assert answer.code == response_code.SYSTEM_ERROR and "no luck" in answer.remark
    controller.pools.send_message_executor.shutdown()
    answer = controller.broker_fast_failure.run_in(controller.pools.send_message_executor, 60_000, fail).get(60_000)
    assert answer.code == response_code.SYSTEM_BUSY and answer.remark.startswith("[OVERLOAD]")


def test_marks_and_periodic_tasks_run(broker, caplog):
    caplog.set_level("INFO")
    controller = broker.controller
    controller.print_water_mark()
    controller._print_dispatch_behind()
    controller._print_master_and_slave_diff()
    controller.registration.register_periodically()
    controller.broker_stats.record()
    assert "[WATERMARK] Send Queue Size: 0 SlowTimeMills: 0" in caplog.text
    assert "Slave fall behind master: 0 bytes" in caplog.text
    assert "dispatch behind commit log" in caplog.text
