"""The options minOffsetsPerTrigger and maxTriggerDelay, with the same meaning as in Spark's Kafka connector."""
import time

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, ReadMinRows

from rmqha.pipeline.format_options import Options, PipelineError

OPTIONS = ("minOffsetsPerTrigger", "maxTriggerDelay", "maxOffsetsPerTrigger")
_DEFAULT_DELAY_MS = 15 * 60_000


class TriggerDelay:
    """Delays small batches. Each start of a query has its own; the first batch is never delayed.

    PipelineError for wrong or contradicting options.
    """

    def __init__(self, options: Options) -> None:
        self.max_rows = options.integer("maxOffsetsPerTrigger", least=1)
        self.min_rows = options.integer("minOffsetsPerTrigger", least=1)
        self._delay_ms = options.duration("maxTriggerDelay", _DEFAULT_DELAY_MS)
        if self.min_rows is None and "maxTriggerDelay" in options:
            raise PipelineError(f"{options.where}: maxTriggerDelay needs minOffsetsPerTrigger")
        if self.min_rows is not None and self.max_rows is not None and self.min_rows > self.max_rows:
            raise PipelineError(f"{options.where}: minOffsetsPerTrigger={self.min_rows} is more than "
                                f"maxOffsetsPerTrigger={self.max_rows}")
        # When the last batch was taken, monotonic seconds.
        self._last: float | None = None

    @property
    def limit(self) -> ReadLimit:
        """The limit to report to Spark."""
        if self.max_rows is not None:
            return ReadMaxRows(self.max_rows)
        return ReadAllAvailable() if self.min_rows is None else ReadMinRows(self.min_rows)

    def holds_back(self, waiting: int, limit: ReadLimit) -> bool:
        """Return whether to delay a batch of the `waiting` messages. `limit` is what Spark asks for now: if it asks for
        everything, nothing is delayed.
        """
        if self.min_rows is None or isinstance(limit, ReadAllAvailable):
            return False
        now = time.monotonic()
        if waiting < self.min_rows and self._last is not None and (now - self._last) * 1000 < self._delay_ms:
            return True
        if waiting:
            self._last = now
        return False
