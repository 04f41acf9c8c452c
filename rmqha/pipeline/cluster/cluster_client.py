"""Consumers and producers as the options want them, and what to say when the cluster does not do what they ask."""
import os
import re
import time
import uuid
from dataclasses import dataclass

from rmqha.client.consumer.default_mq_pull_consumer import DefaultMQPullConsumer
from rmqha.client.exception import MQBrokerException, MQClientException
from rmqha.client.producer.default_mq_producer import DefaultMQProducer
from rmqha.common import mix_all
from rmqha.common.configuration import ConfigError
from rmqha.pipeline.cluster.client_options import ACCESS_KEY, SECRET_KEY, ClientOptions, client_options
from rmqha.pipeline.options import Options, PipelineError
from rmqha.remoting.exception import (
    RemotingConnectException,
    RemotingException,
    RemotingSendRequestException,
    RemotingTimeoutException,
)
from rmqha.remoting.tls_system_config import use_tls

DEFAULT_GROUP = "rmqha-pipeline"
UNREACHABLE = (MQClientException, MQBrokerException, RemotingException, ConfigError)
# What an endpoint that wants TLS, or a certificate, looks like to a client that has none.
_CLOSED = (RemotingSendRequestException, RemotingTimeoutException)
_DENIED = re.compile(r"(?:\w+\.)*AclException: (.*?)(?:, [\w.$]+\([\w.]+:\d+\))?$")


@dataclass(frozen=True)
class ClusterClient:
    """Whom to ask, and as whom. Goes to the tasks."""

    name_server: str
    group: str
    client: ClientOptions

    def consumer(self) -> DefaultMQPullConsumer:
        """A consumer with a name of its own, not started."""
        consumer = DefaultMQPullConsumer(self.group, self.name_server, self.client.hook)
        self.client.apply(consumer)
        consumer.instance_name = _instance_name()
        return consumer

    def producer(self, group: str) -> DefaultMQProducer:
        """A producer with a name of its own, not started."""
        producer = DefaultMQProducer(group, self.name_server, self.client.hook)
        self.client.apply(producer)
        producer.instance_name = _instance_name()
        return producer

    def said(self, error: BaseException) -> str:
        """On one line why something went wrong: what a broker has answered, or else the network."""
        inner = error
        while isinstance(inner.__cause__, UNREACHABLE):
            inner = inner.__cause__
        text = getattr(inner, "error_message", None) or str(inner)
        text = re.split(r"\nSee |\nFor more", text)[0].replace("\n", " ").strip()
        address = getattr(inner, "broker_addr", None)
        whom = f"broker {address}: " if address else ""
        denied = _DENIED.search(text)
        if denied:
            who = self.client.credentials
            keys = f"{ACCESS_KEY} is {who.access_key!r}" if who else f"set {ACCESS_KEY} and {SECRET_KEY}"
            return f"{whom}access control says: {denied[1]} ({keys})"
        return whom + text + self._hint(inner)

    def _hint(self, error: BaseException) -> str:
        """What may be the matter with a connection."""
        client = self.client
        if not (use_tls() if client.use_tls is None else client.use_tls):
            return " (if it wants TLS, set rocketmq.tls.enable=true)" if isinstance(error, _CLOSED) else ""
        if not isinstance(error, (*_CLOSED, RemotingConnectException)):
            return ""
        shown = client.tls is not None and client.tls.tls_client_cert_path
        return " (over TLS, with a certificate)" if shown else " (over TLS; if it wants a certificate, set " \
                                                               "rocketmq.tls.client.certPath and .keyPath)"


def cluster_client(options: Options) -> ClusterClient:
    """Of the options. PipelineError for wrong or contradicting ones."""
    return ClusterClient(name_server_of(options), _group(options), client_options(options))


def name_server_of(options: Options) -> str:
    """The address. PipelineError when there is none."""
    address = (options.same("nameServer", "namesrvAddr", "rocketmq.namesrvAddr")
               or os.environ.get(mix_all.NAMESRV_ADDR_ENV))
    if not address:
        raise PipelineError(f"{options.where} needs the option nameServer, such as 127.0.0.1:9876")
    return address


def _group(options: Options) -> str:
    given = options.same("group", "consumerGroup")
    prefix = options.text("groupIdPrefix")
    if given is not None and prefix is not None:
        raise PipelineError(f"{options.where}: group names the group, groupIdPrefix makes a new one for each query; "
                            "give one of them")
    return f"{prefix}-{uuid.uuid4().hex}" if prefix else given or DEFAULT_GROUP


def _instance_name() -> str:
    return f"pipeline-{os.getpid()}-{time.monotonic_ns()}"
