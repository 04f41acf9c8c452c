"""Completion of names from the cluster: topics, groups, clusters and brokers.

    shell, at <Tab> --words typed so far--> click --ctx--> name server, masters --> names

Pass a callback as `shell_complete=`. It uses -n, the context or $NAMESRV_ADDR as the command itself would. It returns
within `LIMIT_S` and prints no error: a shell shows the names that it gets, or none.
"""
import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import click

from rmqha.tools.terminal import CannotAnswerError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from rmqha.tools.admin.cluster_admin import ClusterAdmin

log = logging.getLogger("RocketmqTools")

TIMEOUT_S = 1.0  # of one answer
LIMIT_S = 2.0  # of all together, with the command that prints a context's secret key
# Names that a shell gets. The first and the last of all matches are among them, so that the shell finds the right
# common beginning.
MOST_NAMES = 1000

Complete = Callable[[click.Context, click.Parameter, str], "list[CompletionItem]"]


def _completion(names: "Callable[[ClusterAdmin, str], Iterable[str]]") -> Complete:
    """Return a callback that completes with the names that `names(admin, incomplete)` returns."""
    def complete(ctx: click.Context, _param: click.Parameter, incomplete: str) -> "list[CompletionItem]":
        from click.shell_completion import CompletionItem

        from rmqha.tools.replication.ask import in_parallel

        if not logging.getLogger().handlers:
            logging.getLogger().addHandler(logging.NullHandler())
        found = in_parallel(lambda text: _found(ctx, names, text), [incomplete], LIMIT_S * 1000, lambda _text: [])
        return [CompletionItem(name) for name in _fewer(found[incomplete])]
    return complete


def _found(ctx: click.Context, names: "Callable[[ClusterAdmin, str], Iterable[str]]", incomplete: str) -> list[str]:
    """Return the matching names, sorted; none after any error."""
    try:
        with ctx.scope(cleanup=False), _admin(ctx) as admin:
            return sorted({name for name in names(admin, incomplete) if name.startswith(incomplete)})
    # A shell would print a traceback into the line that is being typed.
    except Exception:
        log.debug("no completion", exc_info=True)
        return []


@contextlib.contextmanager
def _admin(ctx: click.Context) -> "Iterator[ClusterAdmin]":
    from rmqha.tools.connection import connected, needed_namesrv  # here: most words of a shell need no client

    with connected(needed_namesrv(ctx.params.get("namesrv")), TIMEOUT_S) as admin:
        yield admin


def _fewer(names: list[str]) -> list[str]:
    """Return at most MOST_NAMES of sorted names, the first and the last among them."""
    if len(names) <= MOST_NAMES:
        return names
    step = (len(names) - 1) / (MOST_NAMES - 1)
    return [names[round(number * step)] for number in range(MOST_NAMES)]


def _topics(admin: "ClusterAdmin", incomplete: str) -> Iterable[str]:
    """Return the topics of the name server; retry and dead letter topics only if a `%` was typed."""
    topics = admin.fetch_all_topic_list().topicList
    return topics if incomplete.startswith("%") else (topic for topic in topics if not topic.startswith("%"))


def _groups(admin: "ClusterAdmin", _incomplete: str) -> Iterable[str]:
    """Return the groups of all masters that answer, without RocketMQ's own."""
    from rmqha.common import mix_all
    from rmqha.tools.admin.default_mq_admin_ext import SYSTEM_GROUPS
    from rmqha.tools.replication.ask import in_parallel

    def ask(address: str) -> set[str]:
        try:
            return set(admin.ask_broker(address, admin.api.get_all_subscription_group,
                                        admin.timeout_millis).subscriptionGroupTable)
        except CannotAnswerError as error:
            log.debug("no groups of %s: %s", address, error.message)
            return set()
    masters = [broker.address for broker in admin.brokers() if broker.is_master]
    found = set[str]().union(*in_parallel(ask, masters, admin.timeout_millis, lambda _address: set()).values())
    return {group for group in found if group not in SYSTEM_GROUPS and not mix_all.is_sys_consumer_group(group)}


def _dead_letter_groups(admin: "ClusterAdmin", _incomplete: str) -> Iterable[str]:
    """Return the groups that have a dead letter topic."""
    from rmqha.common.mix_all import DLQ_GROUP_TOPIC_PREFIX as PREFIX

    return {topic.removeprefix(PREFIX) for topic in admin.fetch_all_topic_list().topicList if topic.startswith(PREFIX)}


def _clusters(admin: "ClusterAdmin", _incomplete: str) -> Iterable[str]:
    """Return the clusters of the name server."""
    return {broker.cluster for broker in admin.brokers()}


def _brokers(admin: "ClusterAdmin", incomplete: str) -> Iterable[str]:
    """Return the names of all brokers; their addresses only after a `:` or a digit at the beginning."""
    brokers = admin.brokers()
    names = {broker.name for broker in brokers}
    return names | {broker.address for broker in brokers} if incomplete[:1].isdigit() or ":" in incomplete else names


complete_topic = _completion(_topics)
complete_group = _completion(_groups)
complete_dead_letter_group = _completion(_dead_letter_groups)
complete_cluster = _completion(_clusters)
complete_broker = _completion(_brokers)
