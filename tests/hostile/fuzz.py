"""Mutated record sets against decode(), each in a malloc block of exactly its size.

    python tests/hostile/fuzz.py [INPUTS [SEED]]     200,000 inputs and seed 1 if not said otherwise
    python tests/hostile/fuzz.py --one NUMBER [SEED] repeat one input: print it and what came of it

What may come: records or a documented error, offsets that rise, spans inside the data; and for one input in sixteen exactly what
the oracle gives. The inputs follow from the seed alone. They are decoded in a child process that notes each input's number before
it is touched, so that a crash names the input that made it. `make sanitize` runs this with the kernels under ASan and UBSan; a
change to the harness is worth nothing until a planted over-read is found again.
"""

from __future__ import annotations

import mmap
import os
import random
import struct
import sys
import time
from pathlib import Path
from typing import Any, Literal

sys.path[:0] = [str(Path(__file__).resolve().parent.parent)]  # this is a script: nobody has put tests/ on the path

import reference  # noqa: E402
from codecs_reference import provider  # noqa: E402
from exact import exactly  # noqa: E402
from mutation import mutated, seeds  # noqa: E402

import fastfetch  # noqa: E402
from fastfetch import errors  # noqa: E402

SAMPLE = 16
POSITIONS = (None, None, 0, 1, 3, 100, 2**63 - 1)
ABORTED = ((), ((7, 0),), ((1000, 0), (2000, 2)), ((7, 0), (8, 3), (7, 5)))


class Wrong(Exception):  # noqa: N818
    """An outcome that no input may have."""


def made(number: int, seed: int, sets: list[bytes]) -> tuple[bytes, dict[str, Any], Literal["python", "system"]]:
    """The input of that number, the arguments it is decoded with, and the codec provider."""
    rng = random.Random(seed << 40 | number)
    data = mutated(rng.choice(sets), sets, rng)
    arguments: dict[str, Any] = {
        "position": rng.choice(POSITIONS),
        "isolation": rng.choice(("read_uncommitted", "read_committed")),
        "aborted": rng.choice(ABORTED),
        "check_crcs": rng.random() < 0.75,
        "lz4_content_checksum": rng.random() < 0.9,
    }
    return data, arguments, "python" if number % 8 == 7 else "system"


def read(decoded: fastfetch.Decoded, size: int, position: int | None) -> None:
    """Touch all that was made, and hold it to the invariants."""
    last = -1 if position is None else position - 1
    for block in decoded.blocks:
        data = block.data
        block.headers()
        for values, starts, lengths in (
            (block.keys(), block.key_starts, block.key_lengths), (block.values(), block.value_starts, block.value_lengths),
        ):  # fmt: skip
            for value, start, length in zip(values, starts.tolist(), lengths.tolist(), strict=True):
                if not 0 <= start <= len(data) or max(length, 0) > len(data) - start or length < -1:
                    raise Wrong(f"a span outside the data: {start} + {length} of {len(data)}")
                if value != (None if length < 0 else data[start : start + length]):
                    raise Wrong("a value that is not what its span holds")
        for offset in block.offsets.tolist():
            if offset <= last:
                raise Wrong(f"offset {offset} after {last}")
            last = offset
        if block.next_offset <= last:
            raise Wrong(f"next offset {block.next_offset} after {last}")
    if not 0 <= decoded.consumed <= size:
        raise Wrong(f"consumed {decoded.consumed} of {size}")
    if decoded.next_offset is not None and decoded.next_offset <= last:
        raise Wrong(f"next offset {decoded.next_offset} after {last}")
    if decoded.error is not None and not isinstance(decoded.error, errors.CorruptBatchError):
        raise Wrong(f"not a documented error: {decoded.error!r}")
    str(decoded.error)


def run(number: int, seed: int, sets: list[bytes], compare: bool) -> reference.Expected | None:
    data, arguments, codecs = made(number, seed, sets)
    with provider(codecs):
        with exactly(data) as view:
            decoded = fastfetch.decode(view, **arguments)
            read(decoded, len(data), arguments["position"])
            if not compare:
                return None
            ours = reference.seen(decoded)
        oracle = reference.decode(data, **arguments)
    for name in ("error", "next_offset", "consumed", "records"):
        got, wanted = getattr(ours, name), getattr(oracle, name)
        if got != wanted:
            raise Wrong(f"{name}: {got}\n  but the oracle says {wanted}")
    return ours


def work(inputs: int, seed: int, note: mmap.mmap) -> int:
    sets = seeds()
    begun = time.perf_counter()
    for number in range(inputs):
        note[:8] = struct.pack("<q", number)
        try:
            run(number, seed, sets, number % SAMPLE == 0)
        except Exception as error:
            print(f"{type(error).__name__}: {error}", flush=True)
            return 1
        if number % 20_000 == 19_999:
            print(f"  {number + 1:,} inputs, {number / (time.perf_counter() - begun):,.0f}/s", flush=True)
    note[:8] = struct.pack("<q", inputs)
    return 0


def one(number: int, seed: int) -> None:
    data, arguments, codecs = made(number, seed, seeds())
    print(data.hex(), arguments, codecs, sep="\n", flush=True)
    print(run(number, seed, seeds(), compare=True))


def main() -> None:
    numbers = [int(argument) for argument in sys.argv[1:] if argument != "--one"]
    if "--one" in sys.argv:
        one(numbers[0], numbers[1] if len(numbers) > 1 else 1)
        return
    inputs = numbers[0] if numbers else 200_000
    seed = numbers[1] if len(numbers) > 1 else 1
    note = mmap.mmap(-1, mmap.PAGESIZE)
    begun = time.perf_counter()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = work(inputs, seed, note)
        finally:
            sys.stdout.flush()
            os._exit(code)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    (number,) = struct.unpack("<q", note[:8])
    if status:
        sys.exit(f"input {number} failed ({status}): python tests/hostile/fuzz.py --one {number} {seed}")
    seconds = time.perf_counter() - begun
    compared = (inputs + SAMPLE - 1) // SAMPLE
    rate = f"{inputs:,} inputs in {seconds:.0f} s ({inputs / seconds:,.0f}/s)"
    print(f"fuzz: {rate}, {compared:,} compared with the oracle, no fault")


if __name__ == "__main__":
    main()
