"""The producer's part of transactions.

    sender's thread: half message -> listener.execute_local_transaction -> END_TRANSACTION (one-way)
    ClientRemotingProcessor --broker checks--> TransactionCheckThread_<group>_<n>: listener.check_local_transaction ->
        END_TRANSACTION

A message must be delivered if, and only if, a local transaction (of a database, say) commits. No order of two steps
guarantees that: the process can die between them. So the message is stored first as a half message, which consumers
do not see. Then the local transaction runs, and END_TRANSACTION has the broker deliver the message or drop it.

END_TRANSACTION is one-way and is not retried. It can get lost, and the process can die before it sends it. The
transaction check covers all these cases: the broker periodically looks for half messages without an outcome that are
older than its `transactionTimeOut`, and asks a producer of the same group. Any live producer of the group may be asked,
also one in another process. The listener must therefore find the outcome in durable storage, not in its own memory, and
must answer UNKNOW while the transaction is still running.

An UNKNOW, an exception, or a result of another type leaves the half message pending, and the broker checks again later,
up to `transactionCheckMax` times; then it gives the message up, and moves it to a system topic. So nothing is lost if
this producer drops a check because too many are waiting. If the half message was not stored with SEND_OK, the local
transaction does not run at all, and the message is rolled back.
"""
import logging
from typing import Any

from rmqha.client import exception
from rmqha.client.exception import MQBrokerException, MQClientException
from rmqha.client.hooks import LocalTransactionState, TransactionListener, TransactionSendResult
from rmqha.client.impl.default_mq_producer_impl import DefaultMQProducerImpl
from rmqha.client.impl.mq_client_instance import FindInstance
from rmqha.client.producer.producer_config import TransactionProducerConfig
from rmqha.client.results import SendResult, SendStatus
from rmqha.common import sys_flags
from rmqha.common.message import message_const, message_decoder
from rmqha.common.message.message import Message, MessageExt
from rmqha.common.protocol.client_headers import CheckTransactionStateRequestHeader, EndTransactionRequestHeader
from rmqha.common.threads import NamedThreadPool, RejectedExecutionError
from rmqha.remoting.exception import RemotingException

log = logging.getLogger("RocketmqClient")

_OUTCOMES = {
    LocalTransactionState.COMMIT_MESSAGE: sys_flags.TRANSACTION_COMMIT_TYPE,
    LocalTransactionState.ROLLBACK_MESSAGE: sys_flags.TRANSACTION_ROLLBACK_TYPE,
    LocalTransactionState.UNKNOW: sys_flags.TRANSACTION_NOT_TYPE,
}
_CHECK_TIMEOUT_MS = 3_000


class TransactionMQProducerImpl(DefaultMQProducerImpl):
    """The implementation of TransactionMQProducer.

    Java: org.apache.rocketmq.client.impl.producer.DefaultMQProducerImpl#sendMessageInTransaction (4.9.8)
    """

    def __init__(self, config: TransactionProducerConfig, find_client: FindInstance) -> None:
        super().__init__(config, find_client)
        self.config: TransactionProducerConfig = config
        self._check_executor: NamedThreadPool | None = None  # set by init_transaction_env

    def init_transaction_env(self) -> None:
        """Prepare for the brokers' transaction checks."""
        config = self.config
        self._check_executor = NamedThreadPool(
            f"TransactionCheckThread_{config.producer_group[:100]}_", config.check_thread_pool_max_size,
            config.check_request_hold_max)

    def destroy_transaction_env(self) -> None:
        """Stop the threads for checks. Idempotent."""
        if self._check_executor is not None:
            self._check_executor.shutdown()

    def check_transaction_state(
        self, addr: str, msg: MessageExt, header: CheckTransactionStateRequestHeader
    ) -> None:
        """Check the local transaction of `msg` on a check thread, because a broker asks for its outcome."""
        assert self._check_executor is not None  # brokers ask only started producers
        try:
            self._check_executor.submit(self._check, addr, msg, header)
        except RejectedExecutionError:
            log.warning("CheckTransactionState, too many checks are waiting, the broker will check again: %s", header)

    def _check(self, addr: str, msg: MessageExt, header: CheckTransactionStateRequestHeader) -> None:
        listener, group = self.config.transaction_listener, self.config.producer_group
        if listener is None:
            log.warning("CheckTransactionState, pick transactionListener by group[%s] failed", group)
            return
        state, remark = None, None
        try:
            state = self._checked(listener.check_local_transaction(msg), "checkLocalTransaction")
        except BaseException as error:
            # The user's code failed. The broker checks again
            self.hooks.causes.raised(
                error, "Broker call checkTransactionState, but checkLocalTransactionState exception")
            remark = f"checkLocalTransactionState Exception: {type(error).__name__}, {error}"
        msg_id = msg.get_property(message_const.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX) or msg.msg_id
        assert msg_id is not None  # a decoded message has one
        end = EndTransactionRequestHeader(
            bname=header.bname, producerGroup=group, tranStateTableOffset=header.tranStateTableOffset,
            commitLogOffset=header.commitLogOffset, commitOrRollback=_OUTCOMES[state or LocalTransactionState.UNKNOW],
            fromTransactionCheck=True, msgId=msg_id, transactionId=header.transactionId)
        if state is not LocalTransactionState.COMMIT_MESSAGE:
            log.warning("when broker check, client says %s of this transaction, %s", state, end)
        self.hooks.end_transaction(msg, end.msgId, addr, state or LocalTransactionState.UNKNOW, True)
        self._end_transaction_oneway(addr, end, remark, _CHECK_TIMEOUT_MS)

    def send_message_in_transaction(
        self, user_msg: Message, listener: TransactionListener, arg: Any
    ) -> TransactionSendResult:
        """Send `msg` in a transaction; see the facade."""
        exception.check_is_no_batch(user_msg, "sent in a transaction")
        msg = self.with_namespace(user_msg)
        msg.clear_property(message_const.PROPERTY_DELAY_TIME_LEVEL)
        exception.check_message(msg, self.config.max_message_size)
        msg.put_property(message_const.PROPERTY_TRANSACTION_PREPARED, "true")
        msg.put_property(message_const.PROPERTY_PRODUCER_GROUP, self.config.producer_group)
        try:
            result = self.send(msg, self.config.send_msg_timeout)
        except (MQClientException, MQBrokerException, RemotingException) as error:
            raise MQClientException("send message Exception") from error
        state, remark = LocalTransactionState.ROLLBACK_MESSAGE, None
        if result.send_status is SendStatus.SEND_OK:
            state, remark = self._execute(user_msg, listener, arg)
            msg.transaction_id = user_msg.transaction_id
        self._end_transaction(msg, result, state, remark)
        return TransactionSendResult(
            send_status=result.send_status, msg_id=result.msg_id, message_queue=result.message_queue,
            queue_offset=result.queue_offset, transaction_id=result.transaction_id,
            offset_msg_id=result.offset_msg_id, region_id=result.region_id, trace_on=result.trace_on,
            local_transaction_state=state)

    def _execute(
        self, msg: Message, listener: TransactionListener, arg: Any
    ) -> tuple[LocalTransactionState, str | None]:
        msg.transaction_id = msg.get_property(message_const.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX)
        try:
            state = self._checked(listener.execute_local_transaction(msg, arg), "executeLocalTransaction")
        except BaseException as error:
            # The user's code failed. The broker will check
            self.hooks.causes.raised(error, "executeLocalTransactionBranch exception, %s", msg)
            return LocalTransactionState.UNKNOW, f"executeLocalTransactionBranch exception: {error!r}"
        if state is not LocalTransactionState.COMMIT_MESSAGE:
            log.info("executeLocalTransactionBranch return %s, %s", state, msg)
        return state or LocalTransactionState.UNKNOW, None

    def _checked(self, state: Any, what: str) -> LocalTransactionState | None:
        """Return the listener's result; None if it is not a state, so that the broker checks again."""
        if isinstance(state, LocalTransactionState):
            return state
        self.hooks.causes.returned(state, "%s return %s, not a LocalTransactionState: the broker will check again",
                                   what, "null" if state is None else repr(state))
        return None

    def _end_transaction(
        self, msg: Message, result: SendResult, state: LocalTransactionState, remark: str | None
    ) -> None:
        msg_id, broker_name = result.msg_id, result.message_queue.brokerName
        assert msg_id is not None  # `send` gives each message one
        header = EndTransactionRequestHeader(
            bname=broker_name, producerGroup=self.config.producer_group,
            tranStateTableOffset=result.queue_offset,
            commitLogOffset=message_decoder.decode_message_id(result.offset_msg_id or msg_id).offset,
            commitOrRollback=_OUTCOMES[state], msgId=msg_id, transactionId=result.transaction_id)
        addr = self.routes.find_broker_address_in_publish(broker_name)
        if addr is None:
            log.warning("local transaction execute %s, but the address of broker %s is unknown", state, broker_name)
            return
        self.hooks.end_transaction(msg, msg_id, addr, state, False)
        self._end_transaction_oneway(addr, header, remark, self.config.send_msg_timeout)

    def _end_transaction_oneway(
        self, addr: str, header: EndTransactionRequestHeader, remark: str | None, timeout_ms: float
    ) -> None:
        """Send the outcome. A failure is only logged, because the broker checks again."""
        try:
            self.mq_client_factory.mq_client_api_impl.end_transaction_oneway(addr, header, remark, timeout_ms)
        except RemotingException as error:
            log.warning("endTransactionOneway exception, %s: %s", header, error)
