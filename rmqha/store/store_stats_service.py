"""The statistics of a store: messages and bytes, rates, and the latency of puts.

    putting threads (under the put lock), pulling threads --count--> counters
    StoreStatsService: samples every second, logs every minute
"""
import logging
import operator
import threading
from bisect import bisect_left
from collections import deque
from typing import TYPE_CHECKING

from rmqha.common.service_thread import ServiceThread
from rmqha.common.stats import Distribution
from rmqha.common.util_all import current_time_millis

if TYPE_CHECKING:
    from rmqha.store.append import Totals

log = logging.getLogger("RocketmqStore")

FREQUENCY_OF_SAMPLING_MS = 1000
MAX_RECORDS_OF_SAMPLING = 60 * 10
PRINT_TPS_INTERVAL_S = 60
PUT_MESSAGE_ENTIRE_TIME_MAX_DESC = (
    "[<=0ms]", "[0~10ms]", "[10~50ms]", "[50~100ms]", "[100~200ms]", "[200~500ms]", "[500ms~1s]", "[1~2s]", "[2~3s]",
    "[3~4s]", "[4~5s]", "[5~10s]", "[10s~]",
)
# The exclusive upper bounds (ms) of all but the first and the last of these.
_DISTRIBUTION = (10, 50, 100, 200, 500, 1000, 2000, 3000, 4000, 5000, 10000)
# The columns of a sample.
PUTS, FOUND, MISSED, GOT = 1, 2, 3, 4
# Bucket width and number of buckets: 0-20, 20-50, 50-100, 100-200, 200-500, 500-1000 ms, 1-10 s.
_BUCKETS = ((1, 20), (2, 15), (5, 10), (10, 10), (50, 6), (100, 5), (1000, 9))
_LONG_MAX = (1 << 63) - 1
# The bounds (ms) that `put_times` reports.
_TOLD_MS = (1, 2, 3, 5, 10, 20, 30, 50, 75, 100, 200, 500, 1000, 2000, 5000, 10000)


def _bucket_bounds() -> list[int]:
    bounds, bound = [], 0
    for width, times in _BUCKETS:
        for _ in range(times):
            bound += width
            bounds.append(bound)
    return [*bounds, _LONG_MAX]


class StoreStatsService(ServiceThread):
    """The counters of one store. Times are in ms.

    Java: org.apache.rocketmq.store.StoreStatsService (4.9.8)
    """

    def __init__(self) -> None:
        super().__init__()
        # Guards everything below.
        self._lock = threading.Lock()
        self.put_message_topic_times_total: dict[str, int] = {}
        self.put_message_topic_size_total: dict[str, int] = {}  # bytes
        self.put_message_failed_times = 0
        self.get_message_times_total_found = 0
        self.get_message_times_total_miss = 0
        self.get_message_transfered_msg_count = 0
        self.put_message_entire_time_max = 0
        self.get_message_entire_time_max = 0
        self.dispatch_max_buffer = 0
        self.message_store_boot_timestamp = current_time_millis()
        self._bounds = _bucket_bounds()
        self._buckets = [0] * len(self._bounds)
        self._last_buckets: list[int] = []
        # The sums of all minutes before the present one.
        self._earlier_buckets = [0] * len(self._bounds)
        self._put_ms_total = 0
        self._distribution = [0] * len(PUT_MESSAGE_ENTIRE_TIME_MAX_DESC)
        self._last_distribution: list[int] | None = None
        # (time ms, puts, gets that found, gets that missed, messages got)
        self._samples: deque[tuple[int, int, int, int, int]] = deque(maxlen=MAX_RECORDS_OF_SAMPLING + 1)
        self._last_print_timestamp = current_time_millis()

    def count_put(self, topic: str, times: int, size: int) -> None:
        """Count `times` appended messages of `size` bytes in all."""
        times_total, size_total = self.put_message_topic_times_total, self.put_message_topic_size_total
        with self._lock:
            times_total[topic] = times_total.get(topic, 0) + times
            size_total[topic] = size_total.get(topic, 0) + size

    def count_get(self, found: bool, messages: int, elapsed_ms: int) -> None:
        """Count one get and its `messages`, if it found any."""
        with self._lock:
            if found:
                self.get_message_times_total_found += 1
                self.get_message_transfered_msg_count += messages
            else:
                self.get_message_times_total_miss += 1
            if elapsed_ms > self.get_message_entire_time_max:
                self.get_message_entire_time_max = elapsed_ms

    def count_put_failed(self) -> None:
        """Count one put that was not appended."""
        with self._lock:
            self.put_message_failed_times += 1

    def set_put_message_entire_time_max(self, value: int, times: int = 1) -> None:
        """Record that a put, or each of several, took `value` ms from call to answer."""
        with self._lock:
            self._count_time(value, times)

    def count_puts(self, totals: "Totals", elapsed_ms: int, times: int) -> None:
        """Count rows that were put together, and their latency.

        It is `count_put` and `set_put_message_entire_time_max` in one call.
        """
        times_total, size_total = self.put_message_topic_times_total, self.put_message_topic_size_total
        with self._lock:
            for topic, (count, size) in totals.items():
                times_total[topic] = times_total.get(topic, 0) + count
                size_total[topic] = size_total.get(topic, 0) + size
            self._count_time(elapsed_ms, times)

    def _count_time(self, value: int, times: int) -> None:
        bucket = distribution = 0
        if value > 0:
            bucket, distribution = bisect_left(self._bounds, value), 1 + bisect_left(_DISTRIBUTION, value + 1)
        self._buckets[bucket] += times
        self._distribution[distribution] += times
        self._put_ms_total += value * times
        if value > self.put_message_entire_time_max:
            self.put_message_entire_time_max = value

    def find_put_message_entire_time_px(self, px: float) -> float:
        """Return the latency (ms) within which the fraction `px` of the last minute's puts completed.

        It is interpolated within its bucket.
        """
        buckets = self._last_buckets
        index = int(sum(buckets) * px)
        passed, lower = 0, 0
        for bound, count in zip(self._bounds, buckets):
            if index <= passed + count:
                return lower + ((bound - lower) * (index - passed) / count if count else 0)
            passed, lower = passed + count, bound
        return 0.0

    def put_times(self) -> Distribution:
        """Return the distribution of the latency of all puts since the start, which was measured in whole ms."""
        with self._lock:
            counts = list(map(operator.add, self._earlier_buckets, self._buckets))
            total_ms = self._put_ms_total
        told, at = [], 0
        for bound in (*_TOLD_MS, _LONG_MAX):
            end = bisect_left(self._bounds, bound) + 1
            told.append(sum(counts[at:end]))
            at = end
        return Distribution([bound / 1000 for bound in _TOLD_MS], told, total_ms / 1000)

    def last_distribution(self) -> list[int]:
        """Return the last whole minute's number of puts in each range of PUT_MESSAGE_ENTIRE_TIME_MAX_DESC.

        All are zero in the first minute.
        """
        return self._last_distribution or [0] * len(PUT_MESSAGE_ENTIRE_TIME_MAX_DESC)

    def get_put_message_times_total(self) -> int:
        """Return the number of messages put since the start."""
        return sum(self.put_message_topic_times_total.copy().values())

    def get_put_message_size_total(self) -> int:
        """Return the number of bytes put since the start."""
        return sum(self.put_message_topic_size_total.copy().values())

    def get_format_runtime(self) -> str:
        """Return the time since the start in words."""
        seconds = (current_time_millis() - self.message_store_boot_timestamp) // 1000
        minutes, seconds = divmod(seconds, 60)
        hours, minutes = divmod(minutes, 60)
        days, hours = divmod(hours, 24)
        return f"[ {days:,} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"

    def get_runtime_info(self) -> dict[str, str]:
        """Return the store's part of the broker's runtime info."""
        times = self.get_put_message_times_total() or 1
        return {
            "bootTimestamp": str(self.message_store_boot_timestamp),
            "runtime": self.get_format_runtime(),
            "putMessageEntireTimeMax": str(self.put_message_entire_time_max),
            "putMessageTimesTotal": str(times),
            "putMessageFailedTimes": str(self.put_message_failed_times),
            "putMessageSizeTotal": str(self.get_put_message_size_total()),
            "putMessageDistributeTime": self._distribution_text(self._last_distribution),
            "putMessageAverageSize": str(self.get_put_message_size_total() / times),
            "dispatchMaxBuffer": str(self.dispatch_max_buffer),
            "getMessageEntireTimeMax": str(self.get_message_entire_time_max),
            "putTps": self._three_tps(1),
            "getFoundTps": self._three_tps(2),
            "getMissTps": self._three_tps(3),
            "getTotalTps": self._three_tps(2, 3),
            "getTransferedTps": self._three_tps(4),
            "putLatency99": f"{self.find_put_message_entire_time_px(0.99):.2f}",
            "putLatency999": f"{self.find_put_message_entire_time_px(0.999):.2f}",
        }

    def __str__(self) -> str:
        return "".join(f"\t{key}: {value}\r\n" for key, value in self.get_runtime_info().items())

    def run(self) -> None:
        log.info("%s service started", self.get_service_name())
        while not self.stopped:
            self.wait_for_running(FREQUENCY_OF_SAMPLING_MS)
            self.sampling()
            self._print_tps()
        log.info("%s service end", self.get_service_name())

    def sampling(self) -> None:
        """Take one sample of the counters."""
        with self._lock:
            self._samples.append((
                current_time_millis(), self.get_put_message_times_total(), self.get_message_times_total_found,
                self.get_message_times_total_miss, self.get_message_transfered_msg_count))

    def _print_tps(self) -> None:
        now = current_time_millis()
        if now <= self._last_print_timestamp + PRINT_TPS_INTERVAL_S * 1000:
            return
        self._last_print_timestamp = now
        log.info("[STORETPS] put_tps %s get_found_tps %s get_miss_tps %s get_transfered_tps %s",
                 *(self._tps(PRINT_TPS_INTERVAL_S, column) for column in (1, 2, 3, 4)))
        with self._lock:
            self._last_distribution, self._distribution = self._distribution, [0] * len(self._distribution)
            self._last_buckets, self._buckets = self._buckets, [0] * len(self._buckets)
            self._earlier_buckets = list(map(operator.add, self._earlier_buckets, self._last_buckets))
        log.info("[PAGECACHERT] TotalPut %s, PutMessageDistributeTime %s", sum(self._last_distribution),
                 self._distribution_text(self._last_distribution))

    def _three_tps(self, *columns: int) -> str:
        return " ".join(self._tps(seconds, *columns) for seconds in (10, 60, 600))

    def _tps(self, seconds: int, *columns: int) -> str:
        """Return `tps` as text; empty while it is unknown (0.0 for a sum, as in Java)."""
        tps = self.tps(seconds, *columns)
        return str(tps) if tps is not None else "0.0" if len(columns) > 1 else ""

    def tps(self, seconds: int, *columns: int) -> float | None:
        """Return the rate per second of the sum of `columns` over the last `seconds` samples.

        Return None while there are fewer samples.
        """
        with self._lock:
            samples = self._samples
            if len(samples) <= seconds:
                return None
            last, before = samples[-1], samples[-(seconds + 1)]
        elapsed_ms = last[0] - before[0]
        if not elapsed_ms:
            return 0.0
        return sum((last[column] - before[column]) / elapsed_ms * 1000 for column in columns)

    @staticmethod
    def _distribution_text(distribution: list[int] | None) -> str:
        if distribution is None:
            return "null"
        return "".join(f"{text}:{count} " for text, count in zip(PUT_MESSAGE_ENTIRE_TIME_MAX_DESC, distribution))
