"""Which replica becomes the master, of those that live."""
from __future__ import annotations

from collections.abc import Collection, Mapping

from rmqha.controller.broker_liveness import BrokerLiveInfo


def elect(sync_state_set: Collection[int], all_replicas: Collection[int] | None, old_master: int | None,
          preferred: int | None, alive: Mapping[int, BrokerLiveInfo]) -> int | None:
    """The id of a replica that lives and is in sync; None when there is none.

    The old master if it lives, unless another one is preferred. The preferred one or none. Else the one whose log goes
    furthest. `all_replicas`: those who may become it, though messages are lost, when nobody in sync can.

    Java: org.apache.rocketmq.controller.elect.impl.DefaultElectPolicy (5.1.4)
    """
    elected = _elect_among(sync_state_set, old_master, preferred, alive)
    if elected is None and all_replicas is not None:
        elected = _elect_among(all_replicas, old_master, preferred, alive)
    return elected


def _elect_among(replicas: Collection[int], old_master: int | None, preferred: int | None,
                 alive: Mapping[int, BrokerLiveInfo]) -> int | None:
    candidates = [id_ for id_ in replicas if id_ in alive]
    if old_master in candidates and preferred in (None, old_master):
        return old_master
    if preferred is not None:
        return preferred if preferred in candidates else None
    return min(candidates, key=lambda id_: _rank(alive[id_], id_), default=None)


def _rank(info: BrokerLiveInfo, broker_id: int) -> tuple[int, int, int, int]:
    # Differs: offsets are compared as they are: 5.1.4 casts their difference to an int, which may change its sign
    return -info.epoch, -info.max_offset, info.priority, broker_id
