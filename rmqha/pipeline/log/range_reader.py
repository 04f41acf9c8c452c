"""Reading byte ranges of logs in the tasks: from records to record batches, and the handling of damaged places."""
import logging
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from rmqha.pipeline.format_options import Options, PipelineError
from rmqha.pipeline.log.columns import BlockColumns, BodyError, hole_batch
from rmqha.pipeline.log.log_scan import Block, ByteRange, Hole, VanishedError, scan_range
from rmqha.pipeline.log.ranges import LogPartition
from rmqha.pipeline.table import RowFilter, arrow_schema, check_schema, is_kafka
from rmqha.pipeline.worker import briefly, settle

log = logging.getLogger("RocketmqPipeline")

PERMISSIVE, DROP_MALFORMED, FAIL_FAST = MODES = ("PERMISSIVE", "DROPMALFORMED", "FAILFAST")
_ROWS_OF_A_BATCH = 32768


class RangeReader:
    """Reads partitions in the tasks; shared by the table and the stream."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self.options = options
        self.schema = check_schema(schema, options)
        self.kafka = is_kafka(options)
        self.mode = options.choice("mode", MODES, PERMISSIVE)
        self.verify_crc = options.boolean("verifyCrc", True)
        self.decompress = options.boolean("decompress", True)
        self.fail_on_data_loss = options.boolean("failOnDataLoss", True)
        self.row_filter = RowFilter()

    @briefly
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the record batches of a partition."""
        assert isinstance(partition, LogPartition)
        settle()
        schema = arrow_schema(self.schema)
        for span in partition.ranges:
            try:
                yield from self._read(span, schema, partition.log_name)
            except VanishedError:
                if self.fail_on_data_loss:
                    raise
                log.warning("%s has vanished: leaving out its messages", span.path)

    def _read(self, span: ByteRange, schema: pa.Schema, name: str) -> Iterator[pa.RecordBatch]:
        for found in scan_range(span, self.verify_crc):
            if isinstance(found, Hole):
                yield from self._hole(found, schema, name)
            elif self._is_wanted(span, found):
                yield from self._batches(span, found, schema, name)

    def _batches(self, span: ByteRange, block: Block, schema: pa.Schema, name: str) -> Iterator[pa.RecordBatch]:
        chosen = self.row_filter.choose(block)
        columns = BlockColumns(block, chosen, name, self.verify_crc, self.decompress, self.mode != FAIL_FAST,
                               span.file_start)
        if not len(columns):
            return
        body = "value" if self.kafka else "body"
        try:
            for batch in columns.batches(schema, self.kafka):
                if self.mode == DROP_MALFORMED and body in schema.names and batch.column(body).null_count:
                    batch = batch.filter(batch.column(body).is_valid())
                for first in range(0, len(batch), _ROWS_OF_A_BATCH):
                    yield batch.slice(first, _ROWS_OF_A_BATCH)
                # Free it before the next one is made.
                del batch
        except BodyError as error:
            raise PipelineError(f"{span.path} at byte {error.offset - span.file_start}: {error}") from error

    def _is_wanted(self, span: ByteRange, block: Block) -> bool:
        if block.crc_ok or self.mode == PERMISSIVE or not self.verify_crc:
            return len(block.rows) > 0
        offset = int(block.rows["offset"][0])
        self._malformed(span.path, offset, offset - span.file_start, "the CRC of the body is wrong")
        return False

    def _hole(self, hole: Hole, schema: pa.Schema, name: str) -> Iterator[pa.RecordBatch]:
        self._malformed(hole.path, hole.offset, hole.offset - hole.file_start, hole.reason)
        if self.mode == PERMISSIVE and self.row_filter.is_open:
            yield hole_batch(hole, schema, name, self.kafka)

    def _malformed(self, path: str, offset: int, position: int, reason: str) -> None:
        what = f"{path} at byte {position} (offset {offset} of the log): {reason}"
        if self.mode == FAIL_FAST:
            raise PipelineError(f"{what}. mode=PERMISSIVE keeps such places as rows with crcOk false, "
                                "mode=DROPMALFORMED skips them")
        log.warning("%s", what)
