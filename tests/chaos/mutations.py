"""Damage, drawn from a seed: of bytes, of trees (JSON, YAML), and of formats around them."""

import gzip
import io
import json
import re
import struct
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import yaml

Damage = Callable[[bytes, Random], bytes]

DEEP = "as deep as can be"  # stands for brackets that json and yaml refuse to write themselves
DEPTH = 3000
ODD_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2**31, 2**63, 10**18, 10**400, -(2**64)),
    *(0.5, -0.0, 1e308, float("inf"), float("nan")),
    *("", "0", "x" * 10_000, "\0", "../../..", "\udcff", "ü€😀", "${name}", "{}", "null"),
    *(DEEP, [], {}, [[]], [None] * 1000, {"": None}, {"a": {"b": []}}, [0] * 20),
    list(range(100_000)),
)


def flip(content: bytes, draw: Random) -> bytes:
    """A few bits."""
    found = bytearray(content)
    for _ in range(draw.choice((1, 1, 1, 4, 32)) if found else 0):
        found[draw.randrange(len(found))] ^= 1 << draw.randrange(8)
    return bytes(found)


def truncate(content: bytes, draw: Random) -> bytes:
    return content[: draw.randrange(len(content) + 1)]


def overwrite(content: bytes, draw: Random) -> bytes:
    """A run of zeros, of ones, or of noise; numbers in headers become huge that way."""
    start, size = draw.randrange(len(content) + 1), draw.choice((1, 2, 4, 8, 64, 4096))
    filling = draw.choice((b"\0" * size, b"\xff" * size, draw.randbytes(size)))
    return content[:start] + filling + content[start + size :]


def cut_out(content: bytes, draw: Random) -> bytes:
    start, size = draw.randrange(len(content) + 1), draw.choice((1, 8, 512, 4096))
    return content[:start] + content[start + size :]


def insert(content: bytes, draw: Random) -> bytes:
    start, size = draw.randrange(len(content) + 1), draw.choice((1, 8, 512, 4096))
    return content[:start] + draw.randbytes(size) + content[start:]


def other_file(content: bytes, draw: Random) -> bytes:
    """Something else altogether: nothing, a web page, a picture's beginning, text, not UTF-8."""
    return draw.choice((b"", b"<html>", b"\x89PNG\r\n", b"[]", b"a: b", b"\xff\xfe\x00", b"PK\3\4"))


BYTE_DAMAGES: tuple[Damage, ...] = (flip, flip, truncate, overwrite, cut_out, insert, other_file)


def of_bytes(content: bytes, draw: Random) -> bytes:
    return draw.choice(BYTE_DAMAGES)(content, draw)


def of_tree(tree: Any, draw: Random) -> Any:
    """One place of a tree: another value, a lost, renamed or added key, a value from elsewhere."""
    if not (places := list(_places(tree))):
        return draw.choice(ODD_VALUES)
    holder, key = draw.choice(places)
    what = draw.randrange(7)
    if what == 0 and isinstance(holder, dict):
        del holder[key]
    elif what == 1 and isinstance(holder, dict):
        holder[draw.choice(("", "extra", "../x", f"{key}x", str(key) * 500))] = holder[key]
    elif what == 2:
        other, there = draw.choice(places)
        holder[key] = json.loads(json.dumps(other[there]))
    elif what == 3 and isinstance(holder[key], list) and holder[key]:
        holder[key] = holder[key] * draw.choice((2, 100, 10_000))
    elif what == 4 and isinstance(holder[key], int):
        holder[key] = draw.choice((-1, 10, 10**4, 10**5, 10**6, 10**9)) * (holder[key] or 1)
    else:
        holder[key] = draw.choice(ODD_VALUES)
    return tree


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Every container of a tree with each of its keys."""
    stack = [tree]
    while stack:
        node = stack.pop()
        for key in list(node) if isinstance(node, dict) else range(len(node)):
            yield node, key
            if isinstance(node[key], dict | list):
                stack.append(node[key])


def of_json(content: bytes, draw: Random) -> bytes:
    if draw.random() < 0.3:
        return of_bytes(content, draw)
    return _encoded(json.dumps(of_tree(json.loads(content), draw)))


def of_yaml(content: bytes, draw: Random) -> bytes:
    if draw.random() < 0.3:
        return draw.choice((*BYTE_DAMAGES, _aliases))(content, draw)
    tree = of_tree(yaml.load(content, yaml.CSafeLoader), draw)
    package = b"# @package _global_\n" if b"@package" in content else b""
    text = json.dumps(tree, ensure_ascii=False)  # but for infinities and for numbers such as 1e-05
    text = text.replace("Infinity", ".inf").replace("NaN", ".nan")
    return package + _encoded(re.sub(r"\b(\d+)e(?=[-\d])", r"\1.0e", text))


def _encoded(text: str) -> bytes:
    deep = "[" * DEPTH + "]" * DEPTH
    return text.replace(f'"{DEEP}"', deep).encode(errors="surrogateescape")


def _aliases(content: bytes, draw: Random) -> bytes:
    """Few lines that stand for 9^12 values."""
    levels = [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)]
    few = levels[: draw.choice((2, 12)) - 1]
    return content + "".join(["\na0: &a0 [x, x, x, x, x, x, x, x, x]\n", *few]).encode()


def of_safetensors(content: bytes, draw: Random) -> bytes:
    """The header is JSON behind its length."""
    if draw.random() < 0.3:
        return of_bytes(content, draw)
    (size,) = struct.unpack("<Q", content[:8])
    header, body = content[8 : 8 + size], content[8 + size :]
    changed = of_json(header, draw)
    length = len(changed) if draw.random() < 0.9 else draw.choice((0, 1, 2**40, 2**63))
    return struct.pack("<Q", length) + changed + body


def of_zip(inner: Damage = of_bytes) -> Damage:
    """A member, with a right checksum around it; or the zip's own bytes; or a bomb."""

    def damage(content: bytes, draw: Random) -> bytes:
        if draw.random() < 0.4:
            return of_bytes(content, draw)
        with zipfile.ZipFile(io.BytesIO(content)) as whole:
            members = {name: whole.read(name) for name in whole.namelist()}
        name = draw.choice(list(members))
        what = draw.randrange(6)
        if what == 0:
            members[draw.choice(("../out", "/abs", "x" * 300, name + "x"))] = members.pop(name)
        elif what == 1 and draw.random() < 0.2:
            members[name] = b"\0" * (300 << 20)
        else:
            members[name] = inner(members[name], draw)
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            for name, member in members.items():
                archive.writestr(name, member)
        return packed.getvalue()

    return damage


def of_tgz(content: bytes, draw: Random) -> bytes:
    """A member, packed and summed up anew; or the archive's own bytes."""
    if draw.random() < 0.4:
        return of_bytes(content, draw)
    with tarfile.open(fileobj=io.BytesIO(content)) as whole:
        members = {m.name: whole.extractfile(m).read() for m in whole if m.isfile()}
    name = draw.choice([name for name, member in members.items() if member])
    damage = of_json if name.endswith(".json") else of_bytes
    members[name] = damage(members[name], draw)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1) as archive:
        for name, member in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(member)
            archive.addfile(entry, io.BytesIO(member))
    return packed.getvalue()


def of_gzip(content: bytes, draw: Random) -> bytes:
    """What is packed, or the file's own bytes; or more than anyone would unpack."""
    if draw.random() < 0.4:
        return of_bytes(content, draw)
    inside = gzip.decompress(content)
    inside = inside + bytes(80 << 20) if draw.random() < 0.05 else of_bytes(inside, draw)
    return gzip.compress(inside, compresslevel=1, mtime=0)


BY_SUFFIX: dict[str, Damage] = {
    **{".json": of_json, ".yaml": of_yaml, ".safetensors": of_safetensors},
    **{".npz": of_zip(), ".tgz": of_tgz, ".gz": of_gzip, ".zip": of_zip()},
}


def damage_for(path: Path) -> Damage:
    """What suits a file, by its name."""
    packed_twice = path.suffix == ".zip" and "npz" in path.name
    return of_zip(of_zip()) if packed_twice else BY_SUFFIX.get(path.suffix, of_bytes)
