"""How many bytes the bodies of one answer may have in all, once they are decompressed.

A limit for each body is no limit for a list: 64 records of a few hundred KiB can hold 64 times 256 MiB.
"""
from typing import Self

from rmqha.common.compression import compressor_factory
from rmqha.common.compression.compressor_factory import MAX_DECOMPRESSED_SIZE, CompressionError, TooLargeError
from rmqha.common.sysflag import message_sys_flag

MOST_IN_ALL = MAX_DECOMPRESSED_SIZE
MOST_EACH = MOST_IN_ALL // 4  # of a list: one body that is too large leaves room for the others


class MissingBody(bytes):
    """An empty body in place of one that can't be decompressed; `reason` for people."""

    reason: str

    def __new__(cls, reason: str) -> Self:
        """An empty one."""
        body = super().__new__(cls)
        body.reason = reason
        return body

    def __repr__(self) -> str:
        return f"<no body: {self.reason}>"

    def __reduce__(self) -> tuple[type[Self], tuple[str]]:
        return type(self), (self.reason,)


class BodyBudget:
    """For the bodies of one answer, on one thread. `most_each`: of one body, `most` of all together.

    A body beyond the limit counts with the bytes that were decompressed to find that out, so that many of them take no
    more time than memory.
    """

    def __init__(self, most: int = MOST_IN_ALL, most_each: int = MOST_EACH) -> None:
        self.most, self.most_each = most, most_each
        self._left = most

    @property
    def left(self) -> int:
        """Bytes that may still come."""
        return self._left

    def plain(self, body: bytes, sys_flag: int) -> bytes:
        """The body of a record decompressed, or as it is when its `sys_flag` says that it is not compressed.

        TooLargeError beyond a limit, CompressionError for damage and for a library that is missing.
        """
        if not sys_flag & message_sys_flag.COMPRESSED_FLAG:
            return body
        limit = min(self.most_each, self._left)
        if limit <= 0:
            raise self._too_large(0)
        try:
            compressor = compressor_factory.get_compressor(message_sys_flag.get_compression_type(sys_flag))
            plain = compressor.decompress(body, limit)
        except TooLargeError as error:
            self._left -= limit
            raise self._too_large(limit) from error
        except CompressionError:
            raise
        except ValueError as error:  # a type that is not known
            raise CompressionError(str(error)) from error
        self._left -= len(plain)
        return plain

    def _too_large(self, limit: int) -> TooLargeError:
        if limit == self.most_each:
            return TooLargeError(f"the body decompresses to more than {limit} bytes")
        return TooLargeError(f"the bodies of one answer decompress to more than {self.most} bytes, and this one does "
                             "not fit any more: ask for it alone")
