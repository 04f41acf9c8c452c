"""deletedTopics.json as tools read it; rmqha.store.deleted_topics writes it."""

from rmqha.common.mix_all import file2string
from rmqha.common.texts import parse_json
from rmqha.store.config import store_path_config_helper as paths


def read_deleted_topics(root: str) -> dict[str, int]:
    """Deleted topics, and the commit log offsets below which their records are dead; none in a store of 4.9.

    ValueError names a file that can't be read.
    """
    path = paths.get_deleted_topics_path(root)
    try:
        marks = parse_json(file2string(path) or "{}", "its text").get("deletedTopics") or {}
        return {str(topic): int(offset) for topic, offset in marks.items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} can't be read: {error}") from None
