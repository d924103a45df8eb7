"""What only a real process shows: pipes that close, signals, the exit code of the program."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from fastfetch.testing import Broker

from .folders import batch, orders

COMMAND = [sys.executable, "-m", "fastfetch"]
# The promise is 250 ms; starting and ending Python on a busy machine comes on top.
PROMPT_S = 2.0


def start(*arguments: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen([*COMMAND, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def ends(process: subprocess.Popen[bytes], code: int) -> None:
    began = time.monotonic()
    try:
        assert process.wait(30) == code
        took = time.monotonic() - began
        assert process.stderr is not None
        assert process.stderr.read() == b""
        assert took < PROMPT_S
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdout, process.stderr):
            assert stream is not None
            stream.close()


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """More than a pipe holds."""
    folder = tmp_path / "large-0"
    folder.mkdir()
    (folder / f"{0:020d}.log").write_bytes(b"".join(batch(o, 100) for o in range(0, 50_000, 100)))
    return folder


def test_a_closed_pipe_ends_it_without_a_word(large: Path) -> None:
    process = start("cat", large, "-f", "json")
    assert process.stdout is not None
    assert process.stdout.readline().startswith(b'{"topic": "large"')
    process.stdout.close()
    ends(process, 0)


@pytest.mark.parametrize("arguments", [["cat", "-f", "json"], ["dump", "-q"], ["dump", "--records", "--json"]])
def test_head(large: Path, arguments: list[str]) -> None:
    line = " ".join([*COMMAND, *arguments, str(large)]) + " | head -n 1; echo ${PIPESTATUS[0]} >&2"
    done = subprocess.run(["bash", "-c", line], capture_output=True, check=True)
    assert done.stdout.count(b"\n") == 1
    assert done.stderr == b"0\n"


def test_ctrl_c_while_the_pipe_is_full(large: Path) -> None:
    process = start("cat", large)
    assert process.stdout is not None
    process.stdout.read(1)
    time.sleep(0.3)  # the pipe is full now and the process waits in write()
    process.send_signal(signal.SIGINT)
    ends(process, 130)


def test_ctrl_c_while_following_a_folder(tmp_path: Path) -> None:
    process = start("cat", orders(tmp_path), "-F", "-o", "-1")
    assert process.stdout is not None
    assert process.stdout.readline() == b"value 199\n"
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    ends(process, 130)


def test_a_pipe_that_closes_while_nothing_comes(tmp_path: Path) -> None:
    process = start("cat", orders(tmp_path), "-F", "-o", "-1")
    assert process.stdout is not None
    assert process.stdout.readline() == b"value 199\n"
    process.stdout.close()
    ends(process, 0)


@pytest.mark.parametrize("how", ["ctrl-c", "pipe"])
def test_the_same_for_a_topic(how: str) -> None:
    with Broker() as broker:
        broker.create_topic("orders")
        broker.append("orders", 0, batch(0))
        process = start("cat", "orders", "-b", broker.bootstrap_servers, "-o", "9")
        assert process.stdout is not None
        assert process.stdout.readline() == b"value 9\n"
        broker.append("orders", 0, batch(10))
        assert process.stdout.readline() == b"value 10\n"
        if how == "pipe":
            process.stdout.close()
        else:
            process.send_signal(signal.SIGINT)
        ends(process, 130 if how == "ctrl-c" else 0)


def test_ctrl_c_while_the_broker_cannot_be_reached() -> None:
    process = start("cat", "orders", "-b", "127.0.0.1:1", "-X", "default.api.timeout.ms=20000")
    time.sleep(1.5)
    process.send_signal(signal.SIGINT)
    ends(process, 130)


def test_ctrl_c_ends_the_demo() -> None:
    process = start("demo", "--records", "100000000", "-q")
    time.sleep(3)
    process.send_signal(signal.SIGINT)
    ends(process, 130)


def test_a_full_disk_is_one_sentence(large: Path) -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full")
    with open("/dev/full", "wb") as full:
        done = subprocess.run([*COMMAND, "cat", str(large)], stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 1
    assert done.stderr == b"kfetch: [Errno 28] No space left on device\n"


def test_start_is_quick_and_the_library_stays_out_of_the_way() -> None:
    """rich is for progress and tables: `cat` into a pipe does not import it."""
    script = """if True:
        import sys
        from fastfetch.cli import main
        main(["cat", "--help"], standalone_mode=False)
        print("rich" in sys.modules, file=sys.stderr)
    """
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "Usage" in done.stdout
    assert done.stderr == "False\n"


def on_a_terminal(*arguments: object, env: dict[str, str] | None = None) -> tuple[bytes, bytes, int]:
    """(stdout, what a terminal on stderr was sent, exit code)."""
    terminal, theirs = pty.openpty()
    seen = bytearray()

    def read() -> None:
        while True:
            try:
                data = os.read(terminal, 65536)
            except OSError:  # EIO: the other end is closed
                return
            if not data:
                return
            seen.extend(data)

    reader = threading.Thread(target=read)
    reader.start()
    process = subprocess.Popen(
        [*COMMAND, *map(str, arguments)], stdout=subprocess.PIPE, stderr=theirs, env=os.environ | {"TERM": "xterm"} | (env or {})
    )
    os.close(theirs)
    assert process.stdout is not None
    out = process.stdout.read()
    process.stdout.close()
    code = process.wait(60)
    reader.join(10)
    os.close(terminal)
    return out, bytes(seen), code


def test_progress_shows_on_a_terminal_and_only_there(large: Path) -> None:
    out, seen, code = on_a_terminal("cat", large, "-f", "%o ")
    assert (code, len(out.split())) == (0, 50_000)
    assert b"records" in seen
    assert b"/s" in seen
    out, seen, code = on_a_terminal("cat", large, "-f", "%o ", "--quiet")
    assert (code, len(out.split()), seen) == (0, 50_000, b"")


def test_no_color_is_honoured(large: Path) -> None:
    color = re.compile(rb"\x1b\[[0-9;]*[1-9][0-9;]*m")
    for arguments in (["cat", large], ["demo", "--records", "300000"]):
        _, seen, code = on_a_terminal(*arguments)
        assert code == 0
        assert color.search(seen)
        _, seen, code = on_a_terminal(*arguments, env={"NO_COLOR": "1"})
        assert code == 0
        assert not color.search(seen), seen


def test_errors_on_a_terminal_stand_on_a_line_of_their_own(large: Path) -> None:
    path = next(large.glob("*.log"))
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    _, seen, code = on_a_terminal("cat", large)
    assert code == 3
    last = seen.strip().replace(b"\r", b"\n").rpartition(b"\n")[2]
    assert b"kfetch: CRC mismatch" in last
