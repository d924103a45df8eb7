"""Taking turns."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fastfetch.benchmark.contest import ReadingError, alternate, gc_off, run


def test_everyone_takes_turns_in_an_order_that_is_reversed() -> None:
    taken: list[tuple[int, str]] = []

    told: list[tuple[int, str]] = []

    def go(name: str, turn: int) -> str:
        assert told[-1] == (turn, name)
        taken.append((turn, name))
        return name * turn

    outcomes = list(alternate(["a", "b", "c"], 2, go, before=lambda name, turn: told.append((turn, name))))
    assert taken == told
    assert taken == [(0, "c"), (0, "b"), (0, "a"), (1, "a"), (1, "b"), (1, "c"), (2, "c"), (2, "b"), (2, "a")]
    assert outcomes[2:5] == [(0, "a", ""), (1, "a", "a"), (1, "b", "b")]


@pytest.mark.parametrize("fails_in", [0, 1])
def test_one_that_fails_is_told_once_and_the_others_go_on(fails_in: int) -> None:
    def go(name: str, turn: int) -> str:
        if name == "b" and turn == fails_in:
            raise ReadingError("b is broken")
        return name

    got = [(turn, name, str(outcome)) for turn, name, outcome in alternate(["a", "b", "c"], 2, go)]
    assert [each for each in got if each[1] == "b"][-1] == (fails_in, "b", "b is broken")
    assert [name for _, name, _ in got].count("b") == fails_in + 1
    assert [name for turn, name, _ in got if turn == 2] == ["c", "a"]


def child(code: str) -> list[str]:
    return [sys.executable, "-c", code]


TURN = 'print(\'{"seconds": 1.5, "cpu": 1.0, "records": 7}\', flush=True)'


def test_the_turn_is_what_the_process_prints() -> None:
    for noise in ("", "print('some library says hello'); "):
        turn = run(child(noise + TURN), "it failed", 30)
        assert (turn.seconds, turn.records, turn.ages_us) == (1.5, 7, None)


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("import sys; sys.exit('one\\ntwo')", "it failed: two"),
        ("print('well')", "it failed: it ended well, and printed no turn"),
        ("pass", "it failed: it ended well, and printed no turn"),
        ("print('[1]')", "it failed: it ended well, and printed no turn"),
        ("raise SystemExit(3)", "it failed: it ended with 3 and said nothing"),
        ("import time; time.sleep(60)", "it failed within 0.5 s"),
    ],
)
def test_a_process_that_fails_says_why(code: str, why: str) -> None:
    with pytest.raises(ReadingError, match=f"^{why}$"):
        run(child(code), "it failed", 0.5 if "sleep" in code else 30)


def test_the_caller_hears_when_the_process_is_ready() -> None:
    heard: list[str] = []
    turn = run(child(f"print('ready', flush=True); {TURN}"), "it failed", 30, lambda: heard.append("ready"))
    assert (heard, turn.records) == (["ready"], 7)
    with pytest.raises(ReadingError, match="it failed: no"):
        run(child("import sys; sys.exit('no')"), "it failed", 30, lambda: heard.append("ready"))
    assert heard == ["ready"]


def test_an_interrupt_ends_the_process_and_what_it_started(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    code = (
        "import os, subprocess, sys, time\n"
        "other = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        f"open({str(pids)!r} + '.part', 'w').write(f'{{os.getpid()}} {{other.pid}}')\n"
        f"os.rename({str(pids)!r} + '.part', {str(pids)!r})\n"
        "time.sleep(60)\n"
    )

    def interrupt() -> None:
        wait_until(pids.exists)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        run(child(code), "it failed", 60)
    for pid in map(int, pids.read_text().split()):
        wait_until(lambda pid=pid: not is_running(pid))  # type: ignore[misc]


def is_running(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()  # nobody may have waited for it yet
    except FileNotFoundError:
        return False


def wait_until(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_garbage_is_not_collected_meanwhile() -> None:
    assert gc.isenabled()
    with gc_off():
        assert not gc.isenabled()
    assert gc.isenabled()
