"""Unpacking what comes from a file, up to a size: a few bytes may stand for very many."""
import zlib

ZLIB, GZIP = zlib.MAX_WBITS, zlib.MAX_WBITS | 16


def inflate(data: bytes, most: int, kind: int = ZLIB) -> bytes:
    """The unpacked bytes of one stream. ValueError when it is damaged or cut off, or has more than `most` bytes."""
    stream = zlib.decompressobj(kind)
    try:
        unpacked = stream.decompress(data, most + 1)
    except zlib.error as error:
        raise ValueError(f"the compressed bytes are damaged: {error}") from None
    if len(unpacked) > most:
        raise ValueError(f"it unpacks to more than {most} bytes")
    if not stream.eof:
        raise ValueError("the compressed bytes end too early")
    return unpacked
