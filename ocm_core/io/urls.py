"""Addresses with credentials in them: how they are used, and how they are shown."""

from __future__ import annotations

from base64 import b64encode
from re import IGNORECASE, sub
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import Request

from ocm_core.errors import OcmError

SCHEMES = ("file", "http", "https")
_USER = r"(?<=//)[^/?#]*@"  # user:password@ behind the scheme
_SECRET = r"((?:^|[?&;])[^=&;#]*(?:key|pass|secret|sig|token|credential)[^=&;#]*=)[^&;#]*"


def split_url(url: str) -> SplitResult:
    """The parts of an address that can be downloaded from, or an error that shows no secret."""
    expected = f"expected a URL that begins with {', '.join(SCHEMES)}"
    try:
        parts = urlsplit(url)
        _ = parts.port  # read only now, and it may be no number
    except ValueError:
        raise OcmError(f"{redacted(url)}: {expected}, with a host and a port that exist") from None
    if parts.scheme not in SCHEMES:
        raise OcmError(f"{redacted(url)}: {expected}")
    return parts


def redacted(url: str) -> str:
    """For messages and records: without user and password, and without keys in the query."""
    return sub(_SECRET, r"\1...", sub(_USER, "", url), flags=IGNORECASE)


def request(url: str, headers: dict[str, str]) -> Request:
    """User and password of the address go into a header, which is not sent on to other hosts."""
    parts = split_url(url)
    asked = Request(
        parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl(), headers=headers
    )
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        token = b64encode(pair.encode()).decode()
        asked.add_unredirected_header("Authorization", f"Basic {token}")
    return asked
