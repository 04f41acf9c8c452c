"""A message for people: its fields one a line, its body in a file, and what became of it in each group."""
import errno
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

from rmqha.common import util_all
from rmqha.common.message.message import MessageExt
from rmqha.common.texts import is_folder_name
from rmqha.remoting.addresses import parse_socket_address_addr
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.admin.message_questions import ASK_ERRORS, message_track_detail
from rmqha.tools.command.message.message_text import message_fields, null, offset_msg_id, properties_text
from rmqha.tools.command.output import Document, Part
from rmqha.tools.command.stack_trace import stack_trace

BODY_FOLDER = Path("/tmp/rocketmq/msgbodys")


def print_msg(
    admin: DefaultMQAdminExt, msg: MessageExt, with_offset_id: bool = True, number: int = 0
) -> Iterator[Part]:
    """The report. `number`: which of several messages with one id; their bodies get files of their own.

    Java: org.apache.rocketmq.tools.command.message.QueryMsgByIdSubCommand#printMsg (4.9.8)
    """
    path = create_body_file(msg, number)
    lines = [("OffsetID:", null(offset_msg_id(msg)))] if with_offset_id else []
    lines += [
        ("Topic:", msg.topic),
        ("Tags:", f"[{null(msg.tags)}]"),
        ("Keys:", f"[{null(msg.keys)}]"),
        ("Queue ID:", msg.queue_id),
        ("Queue Offset:", msg.queue_offset),
        ("CommitLog Offset:", msg.commit_log_offset),
        ("Reconsume Times:", msg.reconsume_times),
        ("Born Timestamp:", util_all.time_millis_to_human_string2(msg.born_timestamp)),
        ("Store Timestamp:", util_all.time_millis_to_human_string2(msg.store_timestamp)),
        ("Born Host:", parse_socket_address_addr(msg.born_host)),
        ("Store Host:", parse_socket_address_addr(msg.store_host)),
        ("System Flag:", msg.sys_flag),
        ("Properties:", properties_text(msg.properties)),
        ("Message Body Path:", path),
    ]
    text = "".join(f"{name:<20} {value}\n" for name, value in lines)
    yield Document(text, {**message_fields(msg), "bodyPath": str(path)})
    try:
        tracks = message_track_detail(admin, msg)
    except ASK_ERRORS as error:
        yield stack_trace(error)
        return
    yield "\n\n" if tracks else "\n\nWARN: No Consumer"
    for track in tracks:
        yield Document(str(track), {"consumerGroup": track.consumerGroup, "trackType": track.trackType.name,
                                    "exceptionDesc": track.exceptionDesc})


def create_body_file(msg: MessageExt, number: int = 0) -> Path:
    """Write the body into a file named by the message's id; a file of that name is replaced. OSError."""
    # Differs: an id comes out of the message's properties; one that is more than a file's name gives way to the
    # offset id
    name = msg.msg_id or ""
    end = f"_{number}" if number > 0 else ""
    if not is_folder_name(name) or not is_folder_name(name + end):
        name = str(offset_msg_id(msg))
    path = BODY_FOLDER / (name + end)
    BODY_FOLDER.mkdir(parents=True, exist_ok=True)
    for folder in (BODY_FOLDER.parent, BODY_FOLDER):
        _check_owner(folder)
    _put_in_place(path, msg.body)
    return path


def _check_owner(folder: Path) -> None:
    """OSError for a link that another user has put where everybody may write: it leads wherever he likes."""
    found = os.lstat(folder)
    if stat.S_ISLNK(found.st_mode) and found.st_uid not in (0, os.geteuid()):
        raise OSError(errno.ELOOP, f"it is a link of user {found.st_uid}, and is not followed: remove it", str(folder))


def _put_in_place(path: Path, body: bytes | memoryview) -> None:
    """Write a file beside, and give it the name. Differs: a link of that name is replaced, where the original writes
    into what it leads to."""
    part = path.parent / f".body.{secrets.token_hex(8)}.part"
    fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        with open(fd, "wb") as file:
            file.write(body)
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
