"""The fuzzer runs, repeats itself, and says which input failed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from exact import child_environment

FUZZ = Path(__file__).with_name("fuzz.py")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", str(FUZZ), *arguments]
    return subprocess.run(command, env=child_environment(), capture_output=True, text=True, check=False)


def test_two_thousand_inputs():
    """`make sanitize` runs a hundred times as many."""
    done = run("2000", "7")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].startswith("fuzz: 2,000 inputs in ")
    assert done.stdout.splitlines()[-1].endswith("no fault")


def test_an_input_can_be_repeated_by_its_number():
    first, second = run("--one", "123", "7"), run("--one", "123", "7")
    assert first.returncode == 0, first.stderr
    assert first.stdout == second.stdout
    assert bytes.fromhex(first.stdout.splitlines()[0])


BROKEN = """
import runpy, sys
sys.argv = ["fuzz.py", "50", "7"]
import fastfetch
right = fastfetch.decode
def wrong(data, **arguments):
    decoded = right(data, **arguments)
    if len(decoded) > 1:
        {fault}
    return decoded
fastfetch.decode = wrong
runpy.run_path({path!r}, run_name="__main__")
"""


def test_a_crash_and_a_stray_exception_name_the_input():
    for fault in ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "raise RuntimeError"):
        code = BROKEN.format(fault=fault, path=str(FUZZ))
        done = subprocess.run([sys.executable, "-c", code], env=child_environment(), capture_output=True, text=True, check=False)
        assert done.returncode != 0
        assert "fuzz.py --one " in done.stderr
        number = int(done.stderr.rpartition("--one ")[2].split()[0])
        assert 0 <= number < 50
