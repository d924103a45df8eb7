"""Every allocation fails once, each in its turn: a MemoryError comes of it or nothing does, and never a crash, a leak of what is
half done, or a wrong record.

A shim in front of malloc fails the n-th call after it was armed; Python's own allocator goes through malloc here, too.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from exact import SANITIZED, child_environment

from fastfetch.testing import encode_batch

SHIM = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
static long left = -1, live = 0;
static void *(*real_malloc)(size_t), *(*real_realloc)(void *, size_t), (*real_free)(void *);
extern void *__libc_calloc(size_t, size_t);
static int fails(void) { return left >= 0 && left-- == 0; }
static void *counted(void *p) {
    live += p != NULL;
    return p;
}
void ff_arm(long n) { left = n; }
long ff_left(void) { long was = left; left = -1; return was; }
long ff_live(void) { return live; }
void *malloc(size_t n) {
    if (!real_malloc) real_malloc = dlsym(RTLD_NEXT, "malloc");
    return fails() ? NULL : counted(real_malloc(n));
}
void *realloc(void *p, size_t n) {
    if (!real_realloc) real_realloc = dlsym(RTLD_NEXT, "realloc");
    if (fails()) return NULL;
    return p ? real_realloc(p, n) : counted(real_realloc(p, n));
}
void *calloc(size_t n, size_t size) { return fails() ? NULL : counted(__libc_calloc(n, size)); }
void free(void *p) {
    if (!real_free) real_free = dlsym(RTLD_NEXT, "free");
    live -= p != NULL;
    real_free(p);
}
"""

RUN = """
import ctypes, gc, json, sys
import fastfetch
from fastfetch.records import trim

shim = ctypes.CDLL(sys.argv[1])
arm, left = shim.ff_arm, shim.ff_left
arm.argtypes, arm.restype, left.argtypes, left.restype = [ctypes.c_long], None, [], ctypes.c_long
data = open(sys.argv[2], "rb").read()

def everything():
    decoded = fastfetch.decode(data, position=3, isolation="read_committed", aborted=[(1, 0)], topic="t")
    blocks = decoded.blocks
    small = blocks[0][1:3].detach()
    return (decoded.next_offset, [block.values() for block in blocks], [block.keys() for block in blocks],
            [block.headers() for block in blocks], [block.records() for block in blocks], small.values(),
            [block.offsets.tolist() for block in blocks], decoded.error)

expected = repr(everything())

def one_by_one():
    failed = passed = 0
    for n in range(100_000):
        trim()
        got = None
        try:
            arm(n)
            got = everything()
        except MemoryError:
            pass
        was = -1
        while True:
            try:
                was = max(was, left())
                break
            except MemoryError:
                pass
        if got is None:
            failed += 1
        else:
            passed += 1
            assert repr(got) == expected, n
            if was > 0:
                return failed, passed

def live():
    gc.collect()
    trim()
    return shim.ff_live()

for _ in range(2):
    one_by_one()
before = live()
failed, passed = one_by_one()
grown = live() - before
assert repr(everything()) == expected
print(json.dumps({"failed": failed, "passed": passed, "grown": grown}))
"""


@pytest.mark.skipif(SANITIZED or not sys.platform.startswith("linux"), reason="needs malloc to itself")
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_each_allocation_fails_in_its_turn(codec: str, tmp_path: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    source, shim, data = tmp_path / "shim.c", tmp_path / "shim.so", tmp_path / "data"
    source.write_text(SHIM)
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(shim), str(source), "-ldl"], check=True)
    records = [(b"key", b"value" * 20, 1_000, [("header", b"x"), ("null", None)])] * 5
    data.write_bytes(b"".join(encode_batch(records, base_offset=5 * n, codec=codec) for n in range(3)))
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(shim), str(data)],
        env=child_environment(LD_PRELOAD=str(shim), PYTHONMALLOC="malloc"),
        capture_output=True, text=True, check=False, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    got = json.loads(done.stdout)
    assert got["failed"] > 50
    assert got["grown"] < 5, "blocks of memory that nobody gives back"
    assert "Exception ignored" not in done.stderr
