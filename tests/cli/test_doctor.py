from __future__ import annotations

import json

from click.testing import CliRunner

import fastfetch
from fastfetch.cli import main


def test_json() -> None:
    done = CliRunner().invoke(main, ["doctor", "--json"])
    assert (done.exit_code, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert found["versions"]["fastfetch"] == fastfetch.__version__
    assert "missing" not in (found["versions"][name] for name in ("numpy", "click", "rich"))
    info = fastfetch.build_info()
    assert found["crc32c"]["in use"] == info["crc32c"]
    assert set(found["codecs"]) == {"gzip", "snappy", "lz4", "zstd"}


def test_text_names_each_codec_and_its_provider() -> None:
    done = CliRunner().invoke(main, ["doctor"])
    assert done.exit_code == 0
    for name, (provider, _) in fastfetch.build_info()["codecs"].items():
        assert any(name in line and provider in line for line in done.stdout.splitlines())
    assert fastfetch.build_info()["crc32c"] in done.stdout


def test_version() -> None:
    done = CliRunner().invoke(main, ["--version"])
    assert done.stdout == f"kfetch, version {fastfetch.__version__}\n"


def test_help_lists_the_commands() -> None:
    done = CliRunner().invoke(main, ["--help"])
    assert done.exit_code == 0
    for command in ("demo", "cat", "dump", "doctor"):
        assert f"\n  {command} " in done.stdout
    nothing = CliRunner().invoke(main, [])
    assert (nothing.exit_code, nothing.stdout) == (2, "")
    assert "Usage" in nothing.stderr
