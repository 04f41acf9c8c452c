"""Held pulls of a broker with light message queues."""
from rmqha.broker.longpolling.pull_request_hold_service import PullRequestHoldService
from rmqha.common import mix_all


class LmqPullRequestHoldService(PullRequestHoldService):
    """Forgets the lists of light queues that nobody waits for: there may be very many of them.

    Java: org.apache.rocketmq.broker.longpolling.LmqPullRequestHoldService (4.9.8)
    """

    def check_hold_request(self) -> None:
        """One scan of all held pulls."""
        super().check_hold_request()
        for key, many in list(self.pull_request_table.items()):
            # Differs: a list takes nobody any more once it is forgotten; in the original a pull may be added to it
            # meanwhile, and is never answered
            if mix_all.is_lmq(key[0]) and many.close_if_empty():
                self.pull_request_table.pop(key, None)
