"""docs/c-api.md against the headers: every function, field and status is there, and the rest of what it names exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = (ROOT / "docs" / "c-api.md").read_text()
INCLUDE = ROOT / "include" / "fastfetch"
STRUCTS = {
    "capi.h": ("ff_decode_options", "ff_decoded_block", "ff_decoded", "ff_capi"),
    "columns.h": ("ff_columns",),
    "record_headers.h": ("ff_header", "ff_headers"),
    "fetch.h": ("ff_fetch_walk", "ff_fetch_partition", "ff_fetch_endpoint"),
}


def code_of(header: str) -> str:
    """Without comments."""
    return re.sub(r"/\*.*?\*/", "", (INCLUDE / header).read_text(), flags=re.DOTALL)


def fields(header: str, struct: str) -> list[str]:
    [body] = re.findall(r"typedef struct \{([^}]*)\} " + struct + ";", code_of(header))
    members = [line.strip() for line in body.split(";") if line.strip()]
    found = [re.search(r"\(\*(\w+)\)", member) or re.search(r"(\w+)(?:\[\d+\])?$", member) for member in members]
    assert all(found)
    return [name.group(1) for name in found if name is not None]


@pytest.mark.parametrize(("header", "struct"), [(header, struct) for header, names in STRUCTS.items() for struct in names])
def test_every_field_is_documented(header: str, struct: str) -> None:
    """In the table of its struct, or, for the small ones, in its line."""
    names = fields(header, struct)
    assert len(names) >= 2
    first = "function of `ff_capi`" if struct == "ff_capi" else f"`{struct}`"
    found = re.search(rf"^(?:\| )?{first}[^\n]*\n(?:\|[^\n]*\n)*", PAGE, re.MULTILINE)
    assert found is not None
    names = [name for name in names if name not in ("version", "revision")]  # they have a chapter
    text = found.group()
    assert not [name for name in names if not re.search(rf"`{name}[`(]", text)]


def test_every_status_is_documented() -> None:
    [body] = re.findall(r"typedef enum \{(.*?)\} ff_status", code_of("status.h"), re.DOTALL)
    names = [name.split("=")[0].strip() for name in body.split(",")]
    assert names == re.findall(r"^\| `(FF_\w+)` \|", PAGE, re.MULTILINE)


def test_what_is_named_exists() -> None:
    everything = "".join(path.read_text() for path in [*INCLUDE.glob("*.h"), *(ROOT / "fastfetch" / "kernels").glob("*.pxd")])
    named = set(re.findall(r"\b(?:ff|FF)_\w+", PAGE))
    assert len(named) > 50
    assert not {name for name in named if not re.search(rf"\b{name}\b", everything)}
    assert {path.name for path in INCLUDE.glob("*.h")} <= set(re.findall(r"`(\w+\.h)`", PAGE))


def test_cython_declares_the_structs_as_c_does() -> None:
    """A field that the .pxd lacks is no error, but one that C lacks is; and the capsule's own module has to know them all."""
    cython = (ROOT / "fastfetch" / "records" / "capi.pyx").read_text()
    for struct in STRUCTS["capi.h"]:
        [body] = re.findall(rf"ctypedef struct {struct}:\n((?:        .*\n)+)", cython)
        declared = {re.search(r"\(\*(\w+)\)|(\w+)$", line).group(0).strip("(*)") for line in body.strip().splitlines()}  # type: ignore[union-attr]
        assert declared == set(fields("capi.h", struct)) - {"reserved"}, struct
