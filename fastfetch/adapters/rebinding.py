"""Names of another client, rebound to ours: all or none of them, and put back exactly."""

from __future__ import annotations

import inspect
import re
import threading
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any

from fastfetch.errors import UsageError

__all__ = ["Installed", "Rebinding", "check_parameters", "check_version"]


def check_version(client: str, version: str, known: Sequence[str]) -> None:
    """Raise UsageError unless `version` belongs to one of the `known` series ("0.14" stands for 0.14.0, 0.14.1, …)."""
    found = re.match(r"\d+\.\d+", version)
    if found is None or found.group() not in known:
        raise UsageError(
            f"{client} {version} is not a version this adapter knows; it knows {', '.join(known)}. Nothing was changed: "
            f"install one of these, or a fastfetch that knows {version}"
        )


def check_parameters(client: str, what: Callable[..., Any], expected: Sequence[str]) -> None:
    """Raise UsageError unless `what` has just these parameters, by name and in order."""
    found = list(inspect.signature(what).parameters)
    if found != list(expected):
        raise UsageError(
            f"{client}: {what.__qualname__} takes ({', '.join(found)}), not ({', '.join(expected)}): somebody else has changed "
            "it, or this is not the release it says it is. Nothing was changed"
        )


class Installed:
    """What install() returns. As a context manager it takes back on leaving what that very call installed; a second install() of
    the same changes nothing, and leaving its context neither."""

    def __init__(self, undo: Callable[[], None] | None) -> None:
        self._undo = undo

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if self._undo is not None:
            self._undo()


class Rebinding:
    """What one adapter has rebound. `seam` is the seam that is installed, or None.

    `names(seam)` checks that the client has the shape this adapter knows and yields (owner, name, replacement); an owner is a
    module or a class that has the name itself. It is asked while nothing is installed.
    """

    def __init__(
        self, client: str, known: Sequence[str], seams: Sequence[str], names: Callable[[str], Iterable[tuple[Any, str, Any]]]
    ):
        self.seam: str | None = None
        self._client = client
        self._known = known
        self._seams = seams
        self._names = names
        self._lock = threading.RLock()
        self._bound: list[tuple[Any, str, Any, Any]] = []  # owner, name, before, now

    def install(self, seam: str, version: str) -> Installed:
        """Bind the names of a seam: all of them, or none and an exception. Does nothing if that seam is installed."""
        if seam not in self._seams:
            raise ValueError(f"seam must be {' or '.join(map(repr, self._seams))}; got {seam!r}")
        with self._lock:
            if self.seam == seam:
                return Installed(None)
            if self.seam is not None:
                raise UsageError(f"{self._client}: seam {self.seam!r} is installed; uninstall() that before installing {seam!r}")
            check_version(self._client, version, self._known)
            try:
                for owner, name, replacement in list(self._names(seam)):
                    self._bound.append((owner, name, vars(owner)[name], replacement))
                    setattr(owner, name, replacement)
                self.seam = seam
            except (AttributeError, LookupError) as error:
                self._undo()
                raise UsageError(
                    f"{self._client} {version} lacks what this adapter rebinds ({error}). Nothing was changed"
                ) from error
            except BaseException:
                self._undo()
                raise
        return Installed(self.uninstall)

    def uninstall(self) -> None:
        """Put everything back; does nothing if nothing is installed. Raises UsageError, and changes nothing, if somebody else has
        rebound one of the names meanwhile."""
        with self._lock:
            for owner, name, _, now in self._bound:
                if vars(owner).get(name) is not now:
                    raise UsageError(
                        f"{owner.__name__}.{name} has been rebound by somebody else since install(): that has to be undone first"
                    )
            self._undo()

    def _undo(self) -> None:
        self.seam = None
        while self._bound:
            owner, name, before, now = self._bound[-1]
            if vars(owner).get(name) is now:  # else it was this one that could not be bound
                setattr(owner, name, before)
            self._bound.pop()
