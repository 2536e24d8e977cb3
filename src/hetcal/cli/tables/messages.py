"""The uncompressed size of the record batches of an Arrow file, from its own metadata, before any batch is read.

pyarrow does not report it. In the Arrow IPC format the footer lists the positions of the messages, a message lists its
buffers, and a compressed buffer begins with its uncompressed size; the metadata are FlatBuffers tables.
"""

import mmap
import struct
from pathlib import Path

FOOTER_END = 10  # the length of the footer and the six letters after it
DICTIONARY_BATCH = 2
CONTINUATION = -1


class Metadata:
    """The part of FlatBuffers that is needed here."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data = data

    def number(self, format: str, place: int) -> int:
        return int(struct.unpack_from(f"<{format}", self.data, place)[0])

    def follow(self, place: int) -> int:
        return place + self.number("I", place)

    def field(self, table: int, slot: int) -> int | None:
        """The position of a field of a table; None if the table omits it."""
        directory = table - self.number("i", table)
        entry = 4 + 2 * slot
        offset = self.number("H", directory + entry) if entry < self.number("H", directory) else 0
        return table + offset if offset else None

    def child(self, table: int, slot: int) -> int:
        place = self.field(table, slot)
        if place is None:
            raise struct.error("a table is missing")
        return self.follow(place)

    def structs(self, table: int, slot: int, format: str) -> list[tuple[int, ...]]:
        place = self.field(table, slot)
        if place is None:
            return []
        start = self.follow(place)
        size = struct.calcsize(format)
        return [
            struct.unpack_from(format, self.data, start + 4 + size * index) for index in range(self.number("I", start))
        ]


def largest_batch(path: Path) -> int:
    """The uncompressed bytes of the largest record batch and of all dictionaries, which are in memory together.

    Raises:
        struct.error: If the metadata point outside the file.
    """
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        metadata = Metadata(data)
        end = len(data) - FOOTER_END
        start = end - metadata.number("i", end)
        footer = metadata.follow(start)
        dictionaries = [uncompressed_size(metadata, *block) for block in metadata.structs(footer, 2, "<qi4xq")]
        batches = [uncompressed_size(metadata, *block) for block in metadata.structs(footer, 3, "<qi4xq")]
    return sum(dictionaries) + max(batches, default=0)


def uncompressed_size(metadata: Metadata, start: int, header_size: int, body_size: int) -> int:
    """The uncompressed bytes of the body of one message."""
    # Old files have no continuation mark before the length of the metadata.
    message = metadata.follow(start + (8 if metadata.number("i", start) == CONTINUATION else 4))
    batch = metadata.child(message, 2)
    kind = metadata.field(message, 1)
    if kind is not None and metadata.number("B", kind) == DICTIONARY_BATCH:
        batch = metadata.child(batch, 1)
    if metadata.field(batch, 3) is None:  # not compressed
        return body_size
    total = 0
    for offset, length in metadata.structs(batch, 2, "<qq"):
        if length:
            size = metadata.number("q", start + header_size + offset)
            total += length if size < 0 else size  # -1: this buffer is not compressed
    return total
