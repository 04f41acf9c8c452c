"""The 40 bytes at the beginning of an index file."""
from rmqha.store.bulk.bulk_layout import IndexCounters
from rmqha.store.index.index_layout import HEADER, INDEX_HEADER_SIZE


class IndexHeader:
    """Counters of one index file, in memory and in its map. Written by the dispatching thread alone.

    Java: org.apache.rocketmq.store.index.IndexHeader (4.9.8)
    """

    __slots__ = ("_buffer", "begin_timestamp", "end_timestamp", "begin_phy_offset", "end_phy_offset",
                 "hash_slot_count", "index_count")

    def __init__(self, buffer: memoryview) -> None:
        self._buffer = buffer
        self.begin_timestamp = 0  # ms
        self.end_timestamp = 0  # ms
        self.begin_phy_offset = 0
        self.end_phy_offset = 0
        self.hash_slot_count = 0
        self.index_count = 1  # number of the next entry

    def load(self) -> None:
        """Read the counters from the map."""
        self.counters = IndexCounters(*HEADER.unpack_from(self._buffer))
        if self.index_count <= 0:
            self.index_count = 1

    @property
    def counters(self) -> IndexCounters:
        """All of them, as the bulk kernel takes and returns them."""
        return IndexCounters(self.begin_timestamp, self.end_timestamp, self.begin_phy_offset, self.end_phy_offset,
                             self.hash_slot_count, self.index_count)

    @counters.setter
    def counters(self, counters: IndexCounters) -> None:
        (self.begin_timestamp, self.end_timestamp, self.begin_phy_offset, self.end_phy_offset, self.hash_slot_count,
         self.index_count) = counters

    def update_byte_buffer(self) -> None:
        """Write the counters into the map."""
        self._buffer[:INDEX_HEADER_SIZE] = HEADER.pack(
            self.begin_timestamp, self.end_timestamp, self.begin_phy_offset, self.end_phy_offset, self.hash_slot_count,
            self.index_count)
