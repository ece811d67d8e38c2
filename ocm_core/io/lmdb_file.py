"""Byte ranges of the values in an LMDB file, found without mapping it into memory.

The `lmdb` library trusts its file: one that is cut short ends the process with SIGBUS (lmdb 3.0.0).
Here every number is checked against the page or the file that it points into. Format 1, as LMDB 0.9
writes it on 64-bit little-endian machines, one unnamed database without duplicates:

    page      number u64, pad u16, flags u16, then lower and upper u16 (overflow: pages u32)
    meta      magic u32, version u32, address u64, map size u64, two databases, last page u64,
              transaction u64
    database  page size u32 (in the first), flags u16, depth u16, three counts of pages u64,
              entries u64, root page u64
    node      low u16, high u16, flags u16, key size u16, key, then the value or its overflow page
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

from ocm_core.io.archives import ByteRange
from ocm_core.io.reading import reading

_PAGE = struct.Struct("<QHHHH")
_META = struct.Struct("<IIQQ" + 2 * "IHHQQQQQ" + "QQ")
_NODE = struct.Struct("<HHHH")
_MAGIC, _VERSION = 0xBEEFC0DE, 1
_BRANCH, _LEAF, _IS_META = 0x01, 0x02, 0x08
_IN_OVERFLOW = 0x01  # the only flag of a node that plain databases use
_NO_ROOT = 2**64 - 1  # an empty database
_PAGE_SIZES = (4096, 8192, 16384, 32768)


class _Pages(NamedTuple):
    file: IO[bytes]
    page_size: int
    size: int  # of the file

    def page(self, number: int, flags: int) -> bytes:
        self.file.seek(self.offset(number, 0, self.page_size))
        page = self.file.read(self.page_size)
        stated = _PAGE.unpack_from(page)
        if stated[0] != number or stated[2] & (_BRANCH | _LEAF | _IS_META) & ~flags:
            raise ValueError(f"page {number} says that it is page {stated[0]}, or of another kind")
        return page

    def offset(self, number: int, within: int, size: int) -> int:
        """Return where bytes of a page lie in the file, which must contain them."""
        start = number * self.page_size + within
        if start + size > self.size:
            raise ValueError(f"page {number} ends after the file itself")
        return start

    def meta(self, number: int) -> tuple[int, int, int]:
        """Return transaction, root and entries, as one of the two meta pages states them."""
        magic, version, *facts = _META.unpack_from(self.page(number, _IS_META), _PAGE.size)
        if (magic, version) != (_MAGIC, _VERSION):
            raise ValueError(f"magic number {magic:#x} and version {version}")
        *_, entries, root, _, transaction = facts
        return transaction, root, entries


def lmdb_ranges(path: Path, where: object, remedy: str) -> list[ByteRange]:
    """Return every key with the place of its value, in the order of the keys."""
    with reading(where, "a whole LMDB database", remedy), path.open("rb") as file:
        page_size = _META.unpack_from(file.read(_PAGE.size + _META.size), _PAGE.size)[4]
        if page_size not in _PAGE_SIZES:
            raise ValueError(f"pages of {page_size} bytes")
        pages = _Pages(file, page_size, path.stat().st_size)
        _, root, stated = max(pages.meta(0), pages.meta(1))  # the later transaction
        entries = list(_walk(pages, root, set())) if root != _NO_ROOT else []
        if len(entries) != stated:
            raise ValueError(f"{len(entries)} entries, and it says that it has {stated}")
    return entries


def _walk(pages: _Pages, number: int, seen: set[int]) -> Iterator[ByteRange]:
    if number in seen:
        raise ValueError(f"page {number} is reached twice")
    seen.add(number)
    page = pages.page(number, _BRANCH | _LEAF)
    _, _, flags, lower, _ = _PAGE.unpack_from(page)
    for slot in range(_PAGE.size, lower, 2):
        (start,) = struct.unpack_from("<H", page, slot)
        low, high, bits, key_size = _NODE.unpack_from(page, start)
        begin = start + _NODE.size + key_size
        if flags & _BRANCH:
            yield from _walk(pages, low | high << 16 | bits << 32, seen)
            continue
        key, size = page[start + _NODE.size : begin], low | high << 16
        if bits == _IN_OVERFLOW:
            (overflow,) = struct.unpack_from("<Q", page, begin)
            yield ByteRange(key, pages.offset(overflow, _PAGE.size, size), size)
        elif bits or begin + size > pages.page_size:
            raise ValueError(f"a value of page {number} that does not lie in it")
        else:
            yield ByteRange(key, pages.offset(number, begin, size), size)
