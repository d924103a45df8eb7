"""Members of the demo's group that do wrong, as the environment says: the demo has to see it."""

from __future__ import annotations

import os
import sys

from fastfetch.cli import demo_member

tell = demo_member.tell


def wrong(what: str, *details: object) -> None:
    fault = os.environ["WRONG_MEMBER"]
    if what == "read" and fault == "rereads":
        tell(what, *details)  # and a second time below
    if what == "read" and fault == "skips":
        partition, first, last = details
        tell(what, partition, first, int(str(last)) - 1)  # commits what it did not read
        return
    tell(what, *details)


if __name__ == "__main__":
    demo_member.tell = wrong
    demo_member.main(sys.argv[1:])
