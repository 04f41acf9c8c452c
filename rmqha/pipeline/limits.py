"""How much of a batch each part of a source may take."""
from collections.abc import Mapping
from typing import Any, TypeVar

KeyT = TypeVar("KeyT", bound=Any)


def shares(backlog: Mapping[KeyT, int], most: int) -> dict[KeyT, int]:
    """At most `most` in all: of each its part of the backlog, at least one of some, those with most first."""
    total = sum(backlog.values())
    if total <= most:
        return dict(backlog)
    found = {key: count * most // total for key, count in backlog.items()}
    left = most - sum(found.values())
    for key in sorted(backlog, key=lambda each: (found[each] - backlog[each], each)):
        if left and found[key] < backlog[key]:
            found[key] += 1
            left -= 1
    return found
