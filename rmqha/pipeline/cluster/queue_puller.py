"""Pulling in tasks: from the master, or where its broker sends the client, or from a slave while the master is gone."""
from collections.abc import Iterator

from rmqha.client.consumer.default_mq_pull_consumer import DefaultMQPullConsumer
from rmqha.client.exception import MQClientException
from rmqha.client.results import PullResult
from rmqha.common.message.message import MessageQueue
from rmqha.common.mix_all import MASTER_ID
from rmqha.pipeline.cluster.cluster_client import UNREACHABLE, ClusterClient
from rmqha.pipeline.cluster.queue_offsets import named
from rmqha.pipeline.options import PipelineError
from rmqha.remoting.exception import RemotingException


class QueuePuller:
    """Pulls any queue with one consumer, which runs."""

    def __init__(self, cluster: ClusterClient, consumer: DefaultMQPullConsumer, expression: str, batch_size: int,
                 timeout_ms: int) -> None:
        self._cluster, self._consumer = cluster, consumer
        self._expression, self._batch_size, self._timeout_ms = expression, batch_size, timeout_ms
        self._stand_in: dict[str, int] = {}  # broker name -> id of the slave that answers in its master's place

    def pull(self, queue: MessageQueue, offset: int) -> PullResult:
        """What is there from `offset` on. PipelineError when nobody has it or answers, and when a broker refuses.

        A slave that is behind has no say in what is gone: then the master is asked.
        """
        asked, result = self._ask(queue, offset)
        if asked != MASTER_ID and result.max_offset <= offset:
            self._stand_in.pop(queue.brokerName, None)
            self._choose(queue, MASTER_ID)
            asked, result = self._ask(queue, offset)
            if asked != MASTER_ID and result.max_offset <= offset:
                raise PipelineError(f"{named(queue)} at offset {offset}: the master does not answer, and slave {asked} "
                                    f"has come to {result.max_offset} only")
        return result

    def _ask(self, queue: MessageQueue, offset: int) -> tuple[int, PullResult]:
        """(broker id that was asked, its answer)."""
        failed: Exception | None = None
        for broker_id in self._ids(queue):
            self._choose(queue, broker_id)
            try:
                result = self._consumer.pull(queue, self._expression, offset, self._batch_size, self._timeout_ms)
            except (MQClientException, RemotingException) as error:
                failed = failed or error
                continue
            except UNREACHABLE as error:
                failed = error
                break
            if failed is not None:
                self._stand_in[queue.brokerName] = broker_id
            return broker_id, result
        assert failed is not None
        raise PipelineError(f"{named(queue)} at offset {offset}: {self._cluster.said(failed)}") from None

    def _ids(self, queue: MessageQueue) -> Iterator[int]:
        """The ids of those who may have a queue, in the order in which they are asked."""
        impl = self._consumer.default_mq_pull_consumer_impl
        wrapped = self._consumer.queue_with_namespace(queue)
        first = self._stand_in.get(queue.brokerName, impl.pull_api_wrapper.recalculate_pull_from_which_node(wrapped))
        yield first
        yield from sorted(set(impl.mq_client_factory.broker_addr_table.get(queue.brokerName, ())) - {first})

    def _choose(self, queue: MessageQueue, broker_id: int) -> None:
        impl = self._consumer.default_mq_pull_consumer_impl
        impl.pull_api_wrapper.update_pull_from_which_node(self._consumer.queue_with_namespace(queue), broker_id)
