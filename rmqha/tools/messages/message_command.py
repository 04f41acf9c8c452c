"""`rmqha message`: show one message by its id, and find messages by a key of theirs."""
import base64
from typing import Any

import click

from rmqha.common.compression import MissingBody
from rmqha.common.configuration import nearest_key
from rmqha.common.message.message import MessageExt
from rmqha.common.program import examples
from rmqha.remoting.addresses import parse_socket_address_addr
from rmqha.tools.admin.cluster_admin import ClusterAdmin
from rmqha.tools.connection import connected, needed_namesrv
from rmqha.tools.manage.completion import complete_topic
from rmqha.tools.manage.masters import Outcomes, cluster_options
from rmqha.tools.messages import lookup
from rmqha.tools.messages.lookup import GroupState, Stored
from rmqha.tools.messages.produce import LONGEST_BODY, as_object, user_properties
from rmqha.tools.terminal import (
    CannotAnswerError,
    WorkFailedError,
    cell,
    counted,
    emit,
    only_one,
    put,
    put_facts,
    render_table,
    size_type,
    time_text,
)
from rmqha.tools.view.questions import text_of

BODY_OF_ROW, BODY_ALONE = 60, 256  # bytes
_BODY_FIELDS = ("body", "bodyBase64", "bodyError")
body_option = click.option("--body", "max_body", type=size_type(0, LONGEST_BODY), help="Bytes of each body to show. "
                           f"Default: {BODY_ALONE}, and {BODY_OF_ROW} in a row of a table.")


@click.group("message")
def message_group() -> None:
    """Show a message by its id, find messages by key.

    All masters are asked at once. Brokers find ids and keys by their message index (messageIndexEnable, on by default).
    """


@message_group.command("show", short_help="Show a message by its id, and its groups.", epilog=examples(
    "rmqha message show C0000202050F794B634298481B190002 -t orders",
    "rmqha message show 0A00000200002A9F0000000000000C3A --body 1M -o json"))
@click.argument("msg_id", metavar="ID")
@click.option("-t", "--topic", multiple=True, callback=only_one, shell_complete=complete_topic,
              help="The message's topic. Only the id that the broker gave works without it.")
@body_option
@cluster_options
def show_command(msg_id: str, topic: str | None, max_body: int | None, namesrv: str | None, cluster: str | None,
                 timeout_s: float, output: str) -> None:
    """Show a message by its id: its properties, its body, where it is stored, and which groups have consumed it.

    ID is the one that the producer got (msgId), or the one that the broker gave: its address and the offset in its log
    (offsetMsgId). A message that was sent again has several records of one id: all are shown. Exit code 0: found; 1:
    not found; 2: wrong usage, or a broker did not answer.
    """
    with connected(needed_namesrv(namesrv), timeout_s) as admin:
        brokers = lookup.serving(admin, cluster)
        outcomes = lookup.by_offset_id(admin, brokers, msg_id)
        if outcomes is None:
            if topic is None:
                raise click.UsageError("give the message's topic with -t: this is not the id that a broker of the "
                                       "cluster gave, and others are found in their topic only")
            outcomes = lookup.by_key(admin, brokers, topic, msg_id, is_unique=True)
        found = lookup.newest_first(outcomes)
        groups = [_groups(admin, each) for each in found]
        _check(admin, outcomes, found, topic, f"id {msg_id}")
    for number, (each, states) in enumerate(zip(found, groups)):
        if output != "table":
            emit({**message_object(each, BODY_ALONE if max_body is None else max_body),
                  "groups": None if states is None else [_group_object(state) for state in states]}, output)
        else:
            if number:
                put("")
            _put_message(each, BODY_ALONE if max_body is None else max_body, states)


@message_group.command("find", short_help="Find the messages with a key.", epilog=examples(
    "rmqha message find -t orders --key 1001", "rmqha message find -t orders --key 1001 -o json"))
@click.option("-t", "--topic", required=True, multiple=True, callback=only_one, shell_complete=complete_topic,
              help="The topic.")
@click.option("-k", "--key", required=True, help="One of the messages' keys, whole.")
@click.option("--count", type=click.IntRange(1, lookup.MOST), default=lookup.MOST, show_default=True,
              help="Show at most this many, the newest.")
@body_option
@cluster_options
def find_command(topic: str, key: str, count: int, max_body: int | None, namesrv: str | None, cluster: str | None,
                 timeout_s: float, output: str) -> None:
    """Find the messages of a topic with a key, the newest first. JSON and YAML have all fields, an object each.

    Exit code 0: found; 1: not found; 2: wrong usage, or a broker did not answer.
    """
    with connected(needed_namesrv(namesrv), timeout_s) as admin:
        outcomes = lookup.by_key(admin, lookup.serving(admin, cluster), topic, key, is_unique=False)
        found = lookup.newest_first(outcomes)
        _check(admin, outcomes, found, topic, f"key {key}")
    shown = found[:count]
    if output != "table":
        for each in shown:
            emit(message_object(each, BODY_ALONE if max_body is None else max_body), output)
    else:
        put(render_table(["stored", "queue@offset", "message id", "tag", "keys", "body"], [
            [time_text(each.message.store_timestamp), _place(each), cell(each.message.msg_id or ""),
             cell(each.message.tags or ""), cell(each.message.keys or ""),
             body_cell(each.message, BODY_OF_ROW if max_body is None else max_body)] for each in shown], set()))
    if len(found) > count or any(len(each) >= lookup.MOST for each in outcomes.values.values()):
        put(f"note: these are the newest; a broker returns at most {lookup.MOST} for one key", err=True)


def _check(admin: ClusterAdmin, outcomes: Outcomes[list[Stored]], found: list[Stored], topic: str | None, what: str
           ) -> None:
    """Print the errors of brokers, and end the command if nothing was found."""
    for broker, error in outcomes.errors.items():
        put(f"{broker.name} ({broker.address}): {error.message}", err=True)
    if found:
        return
    if outcomes.errors:
        every = len(outcomes.errors) + len(outcomes.values)
        raise CannotAnswerError(f"{counted(len(outcomes.errors), 'broker')} of {every} failed, and no other one has a "
                                f"message with {what}")
    if topic is not None:
        known = set(admin.asked(f"name server {admin.namesrv_addr}", admin.api.get_topic_list_from_name_server,
                                admin.timeout_millis).topicList or ())
        if topic not in known:
            near = nearest_key(topic, known)
            raise CannotAnswerError(f"no topic {topic!r} at the name server" + (
                f"; did you mean {near}?" if near else ""))
    raise WorkFailedError(f"no message with {what}" + (f" in topic {topic}" if topic is not None else ""))


def _groups(admin: ClusterAdmin, stored: Stored) -> list[GroupState] | None:
    try:
        return lookup.group_states(admin, stored)
    except CannotAnswerError as error:
        put(f"the groups are not known: {error.message}", err=True)
        return None


# ---- texts


def body_cell(message: MessageExt, most: int) -> str:
    """Return at most `most` bytes of a body, with its control characters escaped."""
    if isinstance(message.body, MissingBody):
        return cell(f"({message.body.reason})")
    part, text, is_cut = _beginning(message.body, most)
    return cell(text if text is not None else f"({len(message.body)} bytes) {part.hex()}") + (" ..." if is_cut else "")


def _beginning(body: bytes | memoryview, most: int) -> tuple[bytes, str | None, bool]:
    """Return at most `most` bytes of a body, their text if they are UTF-8, and whether the body has more."""
    part, is_cut = bytes(body[:most]), most < len(body)
    return part, text_of(part, is_cut), is_cut


def message_object(stored: Stored, most: int) -> dict[str, Any]:
    """Return a message for programs, as `consume -o json` has it, but with at most `most` bytes of its body."""
    message = stored.message
    fields = {name: value for name, value in as_object(message).items() if name not in _BODY_FIELDS}
    return {**fields, "commitLogOffset": message.commit_log_offset, "body": _body_object(message, most)}


def _body_object(message: MessageExt, most: int) -> dict[str, Any]:
    if isinstance(message.body, MissingBody):
        return {"error": message.body.reason}
    part, text, is_cut = _beginning(message.body, most)
    shown = {"base64": base64.b64encode(part).decode()} if text is None else {"text": text}
    return {"size": len(message.body), **shown, "cut": is_cut}


def _place(stored: Stored) -> str:
    return f"{cell(stored.broker.name)}:{stored.message.queue_id}@{stored.message.queue_offset}"


def _put_message(stored: Stored, most: int, states: list[GroupState] | None) -> None:
    message = stored.message
    size = "" if isinstance(message.body, MissingBody) else f", body {len(message.body):,} bytes"
    properties = user_properties(message)
    put_facts({
        "message id": cell(message.msg_id or ""),
        "offset id": cell(getattr(message, "offset_msg_id", None) or ""),
        "topic": cell(message.topic),
        "queue@offset": _place(stored),
        "stored": f"{time_text(message.store_timestamp)} at {stored.broker.address}, commit log offset "
                  f"{message.commit_log_offset}",
        "sent": f"{time_text(message.born_timestamp)} from {parse_socket_address_addr(message.born_host)}",
        "tag": cell(message.tags or "-"),
        "keys": cell(message.keys or "-"),
        "properties": cell(", ".join(f"{name}={value}" for name, value in properties.items()) or "-"),
        "retries": str(message.reconsume_times),
        "size": f"{message.store_size:,} bytes{size}",
        "body": body_cell(message, most)})
    if states is None:
        return
    put("")
    if states:
        put(render_table(["group", "consumed", "members"], [
            [cell(state.group), _consumed_text(state), str(state.members)] for state in states], {"members"}))
    else:
        put("no group consumes this topic")


def _consumed_text(state: GroupState) -> str:
    if state.consumed is None:
        return "unknown: the group has no offset in this queue"
    said = "yes" if state.consumed else "not yet"
    if state.filtered:
        said += ", its subscription leaves out this tag"
    return said + (", it pulls: its offsets may be elsewhere" if state.pulls else "")


def _group_object(state: GroupState) -> dict[str, Any]:
    return {"group": state.group, "consumed": state.consumed, "members": state.members, "filtered": state.filtered,
            "pulls": state.pulls}
