"""Message totals of today and yesterday."""
import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqha.store.default_message_store import DefaultMessageStore

log = logging.getLogger("RocketmqBroker")


class BrokerStats:
    """Totals of puts and gets at the last two midnights and now; `record` is called at each midnight.

    Java: org.apache.rocketmq.store.stats.BrokerStats (4.9.8)
    """

    def __init__(self, default_message_store: "DefaultMessageStore") -> None:
        self._store = default_message_store
        self.msg_put_total_yesterday_morning = 0
        self.msg_put_total_today_morning = 0
        self.msg_get_total_yesterday_morning = 0
        self.msg_get_total_today_morning = 0

    def record(self) -> None:
        """Shift today to yesterday."""
        self.msg_put_total_yesterday_morning = self.msg_put_total_today_morning
        self.msg_get_total_yesterday_morning = self.msg_get_total_today_morning
        self.msg_put_total_today_morning = self.msg_put_total_today_now
        self.msg_get_total_today_morning = self.msg_get_total_today_now
        log.info("yesterday put message total: %d",
                 self.msg_put_total_today_morning - self.msg_put_total_yesterday_morning)
        log.info("yesterday get message total: %d",
                 self.msg_get_total_today_morning - self.msg_get_total_yesterday_morning)

    @property
    def msg_put_total_today_now(self) -> int:
        """Messages put since the store started."""
        return self._store.store_stats_service.get_put_message_times_total()

    @property
    def msg_get_total_today_now(self) -> int:
        """Messages given out since the store started."""
        return self._store.store_stats_service.get_message_transfered_msg_count
