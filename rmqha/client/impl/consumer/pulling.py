"""Pulling of messages: the choice of the broker, the pulling thread, and the processing of the answer.

- `PullAPIWrapper`: chooses the broker to pull from, and processes its answer.
- `PullRetries`: decides when a failed pull is repeated.
- `PullMessageService`: the thread that pulls.
- `ConsumerHooks`: the hooks around the calls of a consumer's listener.

    rebalance, pull callbacks --execute_pull_request_immediately--> queue --> PullMessageService --> pull_message
    failures, flow control    --execute_pull_request_later--> PullMessageServiceScheduledThread --> queue
"""
import logging
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, overload

from rmqha.client.client_config import ClientConfig
from rmqha.client.consumer.listeners import ConsumeReturnType
from rmqha.client.exception import MQBrokerException, MQClientException
from rmqha.client.hooks import ConsumeMessageContext, ConsumeMessageHook, FilterMessageContext, FilterMessageHook
from rmqha.client.impl.client_routes import ClientRoutes, MQConsumerInner
from rmqha.client.impl.consumer.process_queue import PullRequest
from rmqha.client.life import CauseLog
from rmqha.client.results import FindBrokerResult, PullCallback, PullResult, PullResultExt, PullStatus
from rmqha.common import java, mix_all, subscriptions, sys_flags
from rmqha.common.compression import MOST_IN_ALL, BodyBudget
from rmqha.common.message import message_const, message_decoder
from rmqha.common.message import message_decoder as message_client_id_setter
from rmqha.common.message.message import MessageExt, MessageQueue
from rmqha.common.protocol import response_code
from rmqha.common.protocol.client_headers import PullMessageRequestHeader
from rmqha.common.service_thread import ServiceThread
from rmqha.common.subscriptions import SubscriptionData
from rmqha.common.threads import ScheduledService
from rmqha.remoting.exception import RemotingException

if TYPE_CHECKING:
    from rmqha.client.impl.mq_client_api_impl import MQClientAPIImpl


log = logging.getLogger("RocketmqClient")

FIRST_VERSION_WITH_EXPRESSIONS = java.Version["V4_1_0_SNAPSHOT"]


class PullAPIWrapper:
    """The pulls of a consumer, and the decoding of their results.

    The next pull goes to the broker that the last answer recommends. Tags are compared exactly here, because brokers
    compare only their hash codes.

    Java: org.apache.rocketmq.client.impl.consumer.PullAPIWrapper (4.9.8)
    """

    def __init__(self, api: "MQClientAPIImpl", routes: ClientRoutes, consumer_group: str, unit_mode: bool) -> None:
        self._api = api
        self._routes = routes
        self._consumer_group = consumer_group
        self.unit_mode = unit_mode
        # Queue -> broker id; changed only by single assignments
        self._pull_from_which_node_table: dict[MessageQueue, int] = {}
        self._pulled_from: dict[MessageQueue, str] = {}  # queue -> address; likewise
        # True: always pull from default_broker_id
        self.connect_broker_by_user = False
        self.default_broker_id = mix_all.MASTER_ID
        self.filter_message_hook_list: list[FilterMessageHook] = []  # set before the first pull
        # True: a body that cannot be decompressed becomes a MissingBody instead of an error
        self.keep_bad_bodies = False
        self.causes = CauseLog(log)  # errors of the hooks

    def process_pull_result(
        self, mq: MessageQueue, pull_result: PullResult, subscription_data: SubscriptionData
    ) -> PullResult:
        """Decode the messages, remove those with other tags, and record which broker the answer recommends."""
        if not isinstance(pull_result, PullResultExt):
            return pull_result
        self.update_pull_from_which_node(mq, pull_result.suggest_which_broker_id)
        if pull_result.pull_status is PullStatus.FOUND and pull_result.message_binary is not None:
            found = self._decoded(mq, pull_result, pull_result.message_binary)
            wanted = subscription_data.tagsSet
            if wanted and not subscription_data.classFilterMode:
                found = [msg for msg in found if msg.tags in wanted]
            self._execute_hook(mq, found)
            self._complete(mq, pull_result, found)
            pull_result.msg_found_list = found
        pull_result.message_binary = None
        return pull_result

    def _decoded(self, mq: MessageQueue, pull_result: PullResultExt, binary: bytes | memoryview) -> list[MessageExt]:
        """Return the messages whose decompressed bodies fit into the limit; the next pull starts at the first other.

        BodyTooLargeError if even the first message does not fit, unless bad bodies are kept.
        """
        # Differs: the decompressed bodies of one pull are limited; Java decompresses all bodies, however large they
        # become
        keep_bad = self.keep_bad_bodies
        found, left_out = message_decoder.decode_fitting(binary, BodyBudget(most_each=MOST_IN_ALL), keep_bad)
        if left_out is None:
            return found
        at, first = left_out.queue_offset, found[0].queue_offset if found else left_out.queue_offset
        # A message that was dispatched to other queues too contains the offset in its own queue, which is meaningless
        # here
        if left_out.topic == mq.topic and first <= at < pull_result.next_begin_offset and (found or keep_bad):
            pull_result.next_begin_offset = at if found else at + 1
            return found or [left_out]
        # Raises an error, unless bad bodies are kept
        return message_decoder.decodes(binary, keep_bad=keep_bad)

    def _execute_hook(self, mq: MessageQueue, msgs: list[MessageExt]) -> None:
        if not self.filter_message_hook_list:
            return
        context = FilterMessageContext(self._consumer_group, msgs, mq, self.unit_mode)
        for hook in self.filter_message_hook_list:
            try:
                hook.filter_message(context)
            except BaseException as error:  # the user's code
                self.causes.raised(error, "execute hook error. hookName=%s", hook.hook_name())

    @staticmethod
    def _complete(mq: MessageQueue, pull_result: PullResult, msgs: list[MessageExt]) -> None:
        min_offset, max_offset = str(pull_result.min_offset), str(pull_result.max_offset)
        for msg in msgs:
            properties = msg.properties
            if properties.get(message_const.PROPERTY_TRANSACTION_PREPARED, "").lower() == "true":
                msg.transaction_id = message_client_id_setter.get_uniq_id(msg)
            properties[message_const.PROPERTY_MIN_OFFSET] = min_offset
            properties[message_const.PROPERTY_MAX_OFFSET] = max_offset
            msg.broker_name = mq.brokerName

    def update_pull_from_which_node(self, mq: MessageQueue, broker_id: int) -> None:
        """Pull the queue from this broker next time."""
        self._pull_from_which_node_table[mq] = broker_id

    @overload
    def pull_kernel_impl(
        self, mq: MessageQueue, sub_expression: str | None, expression: str | None, sub_version: int, offset: int,
        max_nums: int, sys_flag: int, commit_offset: int, broker_suspend_max_time_millis: int, timeout_millis: float,
        pull_callback: None = None,
    ) -> PullResultExt: ...

    @overload
    def pull_kernel_impl(
        self, mq: MessageQueue, sub_expression: str | None, expression: str | None, sub_version: int, offset: int,
        max_nums: int, sys_flag: int, commit_offset: int, broker_suspend_max_time_millis: int, timeout_millis: float,
        pull_callback: PullCallback,
    ) -> None: ...

    def pull_kernel_impl(
        self,
        mq: MessageQueue,
        sub_expression: str | None,
        expression: str | None,
        sub_version: int,
        offset: int,
        max_nums: int,
        sys_flag: int,
        commit_offset: int,
        broker_suspend_max_time_millis: int,
        timeout_millis: float,
        pull_callback: PullCallback | None = None,
    ) -> PullResultExt | None:
        """Pull; without a callback, wait for the result, which is not decoded yet."""
        broker = self._find_broker(mq)
        self._pulled_from[mq] = broker.broker_addr
        if not subscriptions.is_tag_type(expression) and broker.broker_version < FIRST_VERSION_WITH_EXPRESSIONS:
            raise MQClientException(f"The broker[{mq.brokerName}, {broker.broker_version}] does not upgrade to support "
                                    f"for filter message by {expression}")
        if broker.slave:
            sys_flag = sys_flags.clear_commit_offset_flag(sys_flag)
        header = PullMessageRequestHeader(
            consumerGroup=self._consumer_group,
            topic=mq.topic,
            queueId=mq.queueId,
            queueOffset=offset,
            maxMsgNums=max_nums,
            sysFlag=sys_flag,
            commitOffset=commit_offset,
            suspendTimeoutMillis=broker_suspend_max_time_millis,
            subscription=sub_expression,
            subVersion=sub_version,
            expressionType=expression,
            bname=mq.brokerName,
        )
        if pull_callback is None:
            return self._api.pull_message(broker.broker_addr, header, timeout_millis)
        self._api.pull_message_async(broker.broker_addr, header, timeout_millis, pull_callback)
        return None

    def _find_broker(self, mq: MessageQueue) -> FindBrokerResult:
        find = self._routes.find_broker_address_in_subscribe
        broker = find(mq.brokerName, self.recalculate_pull_from_which_node(mq), only_this_broker=False)
        if broker is None:
            self._routes.update_topic_route_info_from_name_server(mq.topic)
            broker = find(mq.brokerName, self.recalculate_pull_from_which_node(mq), only_this_broker=False)
        if broker is None:
            raise MQClientException(f"The broker[{mq.brokerName}] not exist")
        return broker

    def is_moved(self, mq: MessageQueue) -> bool:
        """Return True if the next pull of this queue goes to another broker than the previous one."""
        broker = self._routes.find_broker_address_in_subscribe(
            mq.brokerName, self.recalculate_pull_from_which_node(mq), only_this_broker=False)
        return broker is not None and broker.broker_addr != self._pulled_from.get(mq)

    def recalculate_pull_from_which_node(self, mq: MessageQueue) -> int:
        """Return the id of the broker to pull a queue from: the one that the last answer recommends, else the master.
        """
        if self.connect_broker_by_user:
            return self.default_broker_id
        return self._pull_from_which_node_table.get(mq, mix_all.MASTER_ID)


_FIRST_PAUSE_MS = 20
_CALM_MS = 10_000


class PullRetries:
    """The failed pulls of a consumer, until they are repeated.

    Differs: after a failure that ends if another replica becomes the master, a consumer asks for the route, repeatedly
    and with growing pauses (20 ms, 40 ms, ...), and pulls as soon as the route names another broker. A consumer of 4.9
    pulls from the broker of its cached route again, for up to 30 s.
    """

    def __init__(self, pulls: PullAPIWrapper, routes: ClientRoutes) -> None:
        self._pulls = pulls
        self._routes = routes
        # Broker name -> (the next time to ask, the pause after that); owned by the thread that runs the tasks
        self._asks: dict[str, tuple[int, int]] = {}

    def repeat(
        self, mq: MessageQueue, error: Exception, pull: Callable[[], None], delay_ms: float,
        later: Callable[[Callable[[], None], float], None],
    ) -> None:
        """Call `pull` once: after `delay_ms`, or as soon as the queue is to be pulled from another broker.

        `later` runs a task on the consumer's scheduling thread.
        """
        if self._may_move(mq, error):
            end_ns = time.monotonic_ns() + int(delay_ms * 1e6)
            later(lambda: self._check(mq, pull, end_ns, later), 0)
        else:
            later(pull, delay_ms)

    def _may_move(self, mq: MessageQueue, error: Exception) -> bool:
        if isinstance(error, MQBrokerException) and error.response_code != response_code.SERVICE_NOT_AVAILABLE:
            return False
        return len(self._routes.broker_addr_table.get(mq.brokerName, {})) > 1

    def _check(
        self, mq: MessageQueue, pull: Callable[[], None], end_ns: int,
        later: Callable[[Callable[[], None], float], None],
    ) -> None:
        if self._pulls.is_moved(mq):
            pull()
            return
        next_ns = self._ask(mq)
        now_ns = time.monotonic_ns()
        if self._pulls.is_moved(mq) or now_ns >= end_ns:
            pull()
        else:
            later(lambda: self._check(mq, pull, end_ns, later), max(0, min(next_ns, end_ns) - now_ns) / 1e6)

    def _ask(self, mq: MessageQueue) -> int:
        """Ask for the route, unless it was just asked for because of another queue; return when to ask again."""
        now_ns = time.monotonic_ns()
        next_ns, pause_ms = self._asks.get(mq.brokerName, (0, 0))
        if now_ns < next_ns:
            return next_ns
        if now_ns > next_ns + _CALM_MS * 1_000_000:
            pause_ms = _FIRST_PAUSE_MS
        try:
            self._routes.update_topic_route_info_from_name_server(mq.topic)
        except (RemotingException, MQClientException) as error:
            log.warning("failed to get a new route of topic %s: %s", mq.topic, error)
        except Exception:
            # For example, the answer could not be decoded. The queue has to be pulled again all the same.
            log.exception("route of %s not updated", mq.topic)
        next_ns = time.monotonic_ns() + pause_ms * 1_000_000
        self._asks[mq.brokerName] = next_ns, min(2 * pause_ms, _CALM_MS // 2)
        return next_ns


IDLE_WAIT_MS = 5_000
AFTER_EXCEPTION_MS = 3_000


class PullMessageService(ServiceThread):
    """The thread that sends pull requests in turn. Their answers are handled on the remoting client's threads.

    Java: org.apache.rocketmq.client.impl.consumer.PullMessageService (4.9.8)
    """

    def __init__(self, select_consumer: Callable[[str], MQConsumerInner | None]) -> None:
        super().__init__()
        self.daemon = True
        self._select_consumer = select_consumer  # by group
        self._pull_request_queue: deque[PullRequest] = deque()  # any thread appends, this service takes
        self.scheduled_executor_service = ScheduledService("PullMessageServiceScheduledThread")

    def execute_pull_request_later(self, pull_request: PullRequest, delay_ms: float) -> None:
        """Queue a pull request after a delay."""
        self.execute_task_later(lambda: self.execute_pull_request_immediately(pull_request), delay_ms)

    def execute_pull_request_immediately(self, pull_request: PullRequest) -> None:
        """Queue a pull request."""
        self._pull_request_queue.append(pull_request)
        self.wakeup()

    def execute_task_later(self, task: Callable[[], None], delay_ms: float) -> None:
        """Run a task on the scheduling thread after a delay."""
        if self.stopped:
            log.warning("PullMessageServiceScheduledThread has shutdown")
            return
        self.scheduled_executor_service.schedule(task, delay_ms)

    def run(self) -> None:
        log.info("%s service started", self.get_service_name())
        while not self.stopped:
            while self._pull_request_queue and not self.stopped:
                self._pull_message(self._pull_request_queue.popleft())
            self.wait_for_running(IDLE_WAIT_MS)
        log.info("%s service end", self.get_service_name())

    def shutdown(self, interrupt: bool = False) -> None:
        super().shutdown(interrupt)
        self.scheduled_executor_service.shutdown()

    def _pull_message(self, pull_request: PullRequest) -> None:
        consumer = self._select_consumer(pull_request.consumer_group)
        pull_message = getattr(consumer, "pull_message", None)
        if pull_message is None:
            log.warning("No matched consumer for the PullRequest %s, drop it", pull_request)
            return
        try:
            pull_message(pull_request)
        except BaseException as error:
            # Differs: after an exception in a pull the queue is pulled again; in the original it stalls for 2 minutes,
            # until rebalance detects it
            log.error("Pull Message Service Run Method exception", exc_info=error)
            self.execute_pull_request_later(pull_request, AFTER_EXCEPTION_MS)


class ConsumerHooks:
    """The hooks around calls of a listener. They are registered before `start`; after that the list is only read.

    Java: org.apache.rocketmq.client.impl.consumer.DefaultMQPushConsumerImpl#executeHookBefore (4.9.8)
    """

    def __init__(self) -> None:
        self.consume_message_hook_list: list[ConsumeMessageHook] = []
        self.causes = CauseLog(log)  # errors of the user's code

    def _call(self, hook: Callable[[ConsumeMessageContext], None], context: ConsumeMessageContext) -> None:
        try:
            hook(context)
        except BaseException as error:  # the user's code
            self.causes.raised(error, "failed to execute %s", getattr(hook, "__qualname__", hook))

    def before(
        self, config: ClientConfig, group: str, msgs: list[MessageExt], mq: MessageQueue
    ) -> ConsumeMessageContext | None:
        """Call the hooks before a call of the listener; return None if no hooks are registered."""
        if not self.consume_message_hook_list:
            return None
        context = ConsumeMessageContext(group, msgs, mq, namespace=config.get_namespace())
        for hook in self.consume_message_hook_list:
            self._call(hook.consume_message_before, context)
        return context

    def after(
        self, context: ConsumeMessageContext | None, config: ClientConfig, status: str, success: bool,
        kind: ConsumeReturnType | None = None,
    ) -> None:
        """Call the hooks after a call of the listener."""
        if context is None:
            return
        if kind is not None:
            context.props[mix_all.CONSUME_CONTEXT_TYPE] = kind.name
        context.status, context.success, context.access_channel = status, success, config.access_channel
        for hook in self.consume_message_hook_list:
            self._call(hook.consume_message_after, context)


def return_type(
    status: Any, failed_status: Any, is_exception: bool, begin_ns: int, consume_timeout_min: int
) -> ConsumeReturnType:
    """Return the outcome of a call that began at `begin_ns`; `failed_status` is the status that asks for a retry."""
    if status is None:
        return ConsumeReturnType.EXCEPTION if is_exception else ConsumeReturnType.RETURNNULL
    if time.monotonic_ns() - begin_ns >= consume_timeout_min * 60 * 1_000_000_000:
        return ConsumeReturnType.TIME_OUT
    return ConsumeReturnType.FAILED if status is failed_status else ConsumeReturnType.SUCCESS
