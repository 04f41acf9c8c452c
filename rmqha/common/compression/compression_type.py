"""The compression types that a record's SYSFLAG can name."""
import enum


class CompressionType(enum.Enum):
    """LZ4 frames, ZSTD frames or zlib streams.

    Java: org.apache.rocketmq.common.compression.CompressionType (4.9.8)
    """

    LZ4 = 1
    ZSTD = 2
    ZLIB = 3

    @staticmethod
    def of(name: str) -> "CompressionType":
        """The type called `name`, in any case and with blanks around it; ValueError for another."""
        try:
            return CompressionType[name.strip().upper()]
        except KeyError:
            raise ValueError(f"Unsupported compress type name: {name}") from None

    @staticmethod
    def find_by_value(value: int) -> "CompressionType":
        """The type of the three bits. 0 is ZLIB, as in records of older versions. ValueError for another."""
        return CompressionType(value or 3)

    @property
    def compression_flag(self) -> int:
        """The type's bits at their place in SYSFLAG."""
        return self.value << 8
