"""Paths of a store's files below its root folder.

Java: org.apache.rocketmq.store.config.StorePathConfigHelper (4.9.8)

`read_deleted_topics` reads deletedTopics.json for tools; rmqha.store.deleted_topics writes it.
"""
import os

from rmqha.common.mix_all import file2string
from rmqha.common.texts import parse_json


def get_store_path_consume_queue(root_dir: str) -> str:
    """Folder of the consume queues: `<topic>/<queueId>/<offset>` below it."""
    return os.path.join(root_dir, "consumequeue")


def get_store_path_consume_queue_ext(root_dir: str) -> str:
    """Folder of the extension files of the consume queues."""
    return os.path.join(root_dir, "consumequeue_ext")


def get_store_path_index(root_dir: str) -> str:
    """Folder of the key index files."""
    return os.path.join(root_dir, "index")


def get_store_checkpoint(root_dir: str) -> str:
    """The checkpoint file."""
    return os.path.join(root_dir, "checkpoint")


def get_queue_ends(root_dir: str) -> str:
    """Where the consume queues end, as a clean stop has noted it."""
    return os.path.join(root_dir, "consumequeue.ends")


def get_abort_file(root_dir: str) -> str:
    """The file that exists while a broker runs and after it crashed."""
    return os.path.join(root_dir, "abort")


def get_diverged_file(root_dir: str) -> str:
    """What a slave has found of queues that are not its master's; there only when it has found something."""
    return os.path.join(root_dir, "diverged.json")


def get_scrub_file(root_dir: str) -> str:
    """The file that says how far a slave was compared with its master."""
    return os.path.join(root_dir, "scrub.json")


def get_diverged_folder(root_dir: str) -> str:
    """What was cut off from the log, because the master did not have it, or behind a damaged record: a file each, named
    after its offset."""
    return os.path.join(root_dir, "diverged")


def get_lock_file(root_dir: str) -> str:
    """The file that a running broker holds locked."""
    return os.path.join(root_dir, "lock")


def get_delay_offset_store_path(root_dir: str) -> str:
    """The file with the delivery progress of each delay level."""
    return os.path.join(root_dir, "config", "delayOffset.json")


def get_deleted_topics_path(root_dir: str) -> str:
    """The file of the topics that were deleted while their records lie in the log."""
    return os.path.join(root_dir, "config", "deletedTopics.json")


def get_broker_identity(root_dir: str) -> str:
    """File of a replica's identity, when roles change."""
    return os.path.join(root_dir, "brokerIdentity")


def read_deleted_topics(root: str) -> dict[str, int]:
    """Deleted topics, and the commit log offsets below which their records are dead; none in a store of 4.9.

    ValueError names a file that can't be read.
    """
    path = get_deleted_topics_path(root)
    try:
        marks = parse_json(file2string(path) or "{}", "its text").get("deletedTopics") or {}
        return {str(topic): int(offset) for topic, offset in marks.items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} can't be read: {error}") from None
