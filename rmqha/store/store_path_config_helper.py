"""The paths of a store's files below its root folder.

Java: org.apache.rocketmq.store.config.StorePathConfigHelper (4.9.8)

`read_deleted_topics` reads deletedTopics.json for tools; rmqha.store.deleted_topics writes it.
"""
import os

from rmqha.common.mix_all import file2string
from rmqha.common.texts import parse_json


def get_store_path_consume_queue(root_dir: str) -> str:
    """Return the folder of the consume queues, which has the files `<topic>/<queueId>/<offset>`."""
    return os.path.join(root_dir, "consumequeue")


def get_store_path_consume_queue_ext(root_dir: str) -> str:
    """Return the folder of the extension files of the consume queues."""
    return os.path.join(root_dir, "consumequeue_ext")


def get_store_path_index(root_dir: str) -> str:
    """Return the folder of the key index files."""
    return os.path.join(root_dir, "index")


def get_store_checkpoint(root_dir: str) -> str:
    """Return the path of the checkpoint file."""
    return os.path.join(root_dir, "checkpoint")


def get_queue_ends(root_dir: str) -> str:
    """Return the path of the file with the queue ends that a clean stop saved."""
    return os.path.join(root_dir, "consumequeue.ends")


def get_abort_file(root_dir: str) -> str:
    """Return the path of the file that exists while a broker runs, and after a crash."""
    return os.path.join(root_dir, "abort")


def get_diverged_file(root_dir: str) -> str:
    """Return the path of the file in which a slave reports queues that differ from its master's.

    The file exists only if a difference was found.
    """
    return os.path.join(root_dir, "diverged.json")


def get_scrub_file(root_dir: str) -> str:
    """Return the path of the file with a slave's progress in comparing its log with its master's."""
    return os.path.join(root_dir, "scrub.json")


def get_diverged_folder(root_dir: str) -> str:
    """Return the folder of the bytes that were cut off from the log, in files that are named after their offsets.

    They were not in the master's log, or followed a damaged record.
    """
    return os.path.join(root_dir, "diverged")


def get_lock_file(root_dir: str) -> str:
    """Return the path of the file that a running broker keeps locked."""
    return os.path.join(root_dir, "lock")


def get_delay_offset_store_path(root_dir: str) -> str:
    """Return the path of the file with the delivery progress of each delay level."""
    return os.path.join(root_dir, "config", "delayOffset.json")


def get_deleted_topics_path(root_dir: str) -> str:
    """Return the path of the file with the deleted topics whose records are still in the log."""
    return os.path.join(root_dir, "config", "deletedTopics.json")


def get_broker_identity(root_dir: str) -> str:
    """Return the path of the file with a replica's identity, for brokers that change roles."""
    return os.path.join(root_dir, "brokerIdentity")


def read_deleted_topics(root: str) -> dict[str, int]:
    """Return the deleted topics and the commit log offsets below which their records are dead.

    A store of 4.9 has no such file, so the result is empty. Raise ValueError, with the file's path, if it can't be
    read.
    """
    path = get_deleted_topics_path(root)
    try:
        marks = parse_json(file2string(path) or "{}", "its text").get("deletedTopics") or {}
        return {str(topic): int(offset) for topic, offset in marks.items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} can't be read: {error}") from None
