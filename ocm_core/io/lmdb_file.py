"""Byte ranges of the values in an LMDB file, found without mapping it into memory.

The `lmdb` library is not used for reading because it trusts its file: of a database cut short at 24
places, 24 end the process with SIGBUS, which Python cannot catch (lmdb 3.0.0). Here every number is
checked against the page or the file that it points into. Format 1, as LMDB 0.9 writes it on 64-bit
little-endian machines, one unnamed database without duplicates:

    page      number u64, pad u16, flags u16, then lower and upper u16 (overflow: pages u32)
    meta      magic u32, version u32, address u64, map size u64, two databases, last page u64,
              transaction u64
    database  page size u32 (in the first), flags u16, depth u16, three counts of pages u64,
              entries u64, root page u64
    node      low u16, high u16, flags u16, key size u16, key, then the value or its overflow page
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

from ocm_core.io.members import ByteRange
from ocm_core.io.reading import reading

_PAGE = struct.Struct("<QHHHH")
_META = struct.Struct("<IIQQ")
_DATABASE = struct.Struct("<IHHQQQQQ")
_NODE = struct.Struct("<HHHH")
_NUMBER = struct.Struct("<Q")
_MAGIC, _VERSION = 0xBEEFC0DE, 1
_BRANCH, _LEAF, _IS_META = 0x01, 0x02, 0x08
_IN_OVERFLOW = 0x01  # the only flag of a node that plain databases use
_NO_ROOT = 2**64 - 1  # an empty database
_PAGE_SIZES = (4096, 8192, 16384, 32768)


class _Tree(NamedTuple):
    file: IO[bytes]
    page_size: int
    size: int  # of the file
    root: int
    entries: int
    transaction: int

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


def lmdb_ranges(path: Path, where: object, remedy: str) -> list[ByteRange]:
    """Return every key with the place of its value, in the order of the keys."""
    with reading(where, "a whole LMDB database", remedy), path.open("rb") as file:
        tree = _newest(file)
        entries = list(_walk(tree, tree.root, set())) if tree.root != _NO_ROOT else []
        if len(entries) != tree.entries:
            raise ValueError(f"{len(entries)} entries, and it says that it has {tree.entries}")
    return entries


def _newest(file: IO[bytes]) -> _Tree:
    """Return the tree of the later transaction; there are two meta pages."""
    size = os.fstat(file.fileno()).st_size
    head = file.read(_PAGE.size + _META.size + 2 * _DATABASE.size + 2 * _NUMBER.size)
    page_size = _DATABASE.unpack_from(head, _PAGE.size + _META.size)[0]
    if page_size not in _PAGE_SIZES:
        raise ValueError(f"pages of {page_size} bytes")
    empty = _Tree(file, page_size, size, _NO_ROOT, 0, 0)
    return max((_meta(empty, number) for number in (0, 1)), key=lambda tree: tree.transaction)


def _meta(tree: _Tree, number: int) -> _Tree:
    page = tree.page(number, _IS_META)
    magic, version, _, _ = _META.unpack_from(page, _PAGE.size)
    if (magic, version) != (_MAGIC, _VERSION):
        raise ValueError(f"magic number {magic:#x} and version {version}")
    databases = _PAGE.size + _META.size
    *_, entries, root = _DATABASE.unpack_from(page, databases + _DATABASE.size)
    (transaction,) = _NUMBER.unpack_from(page, databases + 2 * _DATABASE.size + _NUMBER.size)
    return tree._replace(root=root, entries=entries, transaction=transaction)


def _walk(tree: _Tree, number: int, seen: set[int]) -> Iterator[ByteRange]:
    if number in seen:
        raise ValueError(f"page {number} is reached twice")
    seen.add(number)
    page = tree.page(number, _BRANCH | _LEAF)
    _, _, flags, lower, _ = _PAGE.unpack_from(page)
    for slot in range(_PAGE.size, lower, 2):
        (start,) = struct.unpack_from("<H", page, slot)
        low, high, bits, key_size = _NODE.unpack_from(page, start)
        begin = start + _NODE.size + key_size
        if flags & _BRANCH:
            yield from _walk(tree, low | high << 16 | bits << 32, seen)
            continue
        key, size = page[start + _NODE.size : begin], low | high << 16
        if bits == _IN_OVERFLOW:
            (overflow,) = _NUMBER.unpack_from(page, begin)
            yield ByteRange(key, tree.offset(overflow, _PAGE.size, size), size)
        elif bits or begin + size > tree.page_size:
            raise ValueError(f"a value of page {number} that does not lie in it")
        else:
            yield ByteRange(key, tree.offset(number, begin, size), size)
