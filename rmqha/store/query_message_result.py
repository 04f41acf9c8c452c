"""Messages found by key, still in the map."""
from collections.abc import Callable

from rmqha.store.select_mapped_buffer_result import SelectMappedBufferResult


class QueryMessageResult:
    """Slices of the map, and how far the index had come. `release` gives the slices back.

    Java: org.apache.rocketmq.store.QueryMessageResult (4.9.8)
    """

    __slots__ = ("message_maped_list", "message_buffer_list", "index_last_update_timestamp",
                 "index_last_update_phyoffset", "buffer_total_size")

    def __init__(self) -> None:
        self.message_maped_list: list[SelectMappedBufferResult] = []
        self.message_buffer_list: list[memoryview] = []
        self.index_last_update_timestamp = 0  # ms
        self.index_last_update_phyoffset = 0
        self.buffer_total_size = 0  # bytes

    def add_message(self, maped_buffer: SelectMappedBufferResult) -> None:
        """Add one message; it is released with this result."""
        self.message_maped_list.append(maped_buffer)
        self.message_buffer_list.append(maped_buffer.buffer)
        self.buffer_total_size += maped_buffer.size

    def keep(self, is_wanted: Callable[[memoryview], bool]) -> None:
        """Keep only the records that are wanted; give the others back."""
        found, self.message_maped_list, self.message_buffer_list = self.message_maped_list, [], []
        self.buffer_total_size = 0
        for select in found:
            if is_wanted(select.buffer):
                self.add_message(select)
            else:
                select.release()

    def release(self) -> None:
        """Give all slices back; idempotent."""
        for select in self.message_maped_list:
            select.release()
