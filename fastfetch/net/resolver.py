"""Names to addresses, off everybody's way, and in an order that gets past one that swallows packets."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable

__all__ = ["Address", "Resolver"]

Address = tuple[int, tuple[str | int | bytes, ...]]
Name = tuple[str, int]
Done = Callable[[list[Address] | str], None]


class Resolver:
    """One client's resolver. A name is looked up anew for every connection: addresses change.

    An address that refuses is passed over within one attempt. One at which the connect hangs takes the whole attempt with it, and
    a list of addresses begins with the same one each time; so those that hung come last.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asking: dict[Name, list[Done]] = {}
        self._hung: dict[Name, list[Address]] = {}  # the latest last

    def resolve(self, host: str, port: int, done: Done) -> None:
        """Find the host's addresses and call `done` with them, or with the reason why there are none.

        A literal address is answered at once. A name may take the system's resolver many seconds, which would be everybody's: it
        gets a thread for the while, one a name, and `done` is called from there.
        """
        try:
            literal = _addresses(host, port, socket.AI_NUMERICHOST)
        except (OSError, ValueError):  # ValueError: nothing that could be a name, as the resolver will say
            pass
        else:
            done(literal)
            return
        with self._lock:
            is_first = (host, port) not in self._asking
            self._asking.setdefault((host, port), []).append(done)
        if not is_first:
            return
        try:
            threading.Thread(target=self._ask, args=(host, port), name=f"fastfetch-resolve-{host}", daemon=True).start()
        except RuntimeError as error:
            self._tell((host, port), f"no thread to resolve the name with: {error}")

    def connected(self, host: str, port: int, address: Address) -> None:
        with self._lock:
            hung = self._hung.get((host, port))
            if hung is not None and address in hung:
                hung.remove(address)

    def hung(self, host: str, port: int, address: Address) -> None:
        """A connect to this address came to nothing in all the time that it had."""
        with self._lock:
            hung = self._hung.setdefault((host, port), [])
            if address in hung:
                hung.remove(address)
            hung.append(address)

    def _ask(self, host: str, port: int) -> None:
        outcome: list[Address] | str
        try:
            outcome = _addresses(host, port, 0)
        except (OSError, ValueError) as error:
            outcome = f"the name can't be resolved: {getattr(error, 'strerror', None) or error}"
        else:
            with self._lock:
                hung = [address for address in self._hung.pop((host, port), ()) if address in outcome]
                if hung:
                    self._hung[host, port] = hung
            outcome = [address for address in outcome if address not in hung] + hung
        self._tell((host, port), outcome)

    def _tell(self, name: Name, outcome: list[Address] | str) -> None:
        with self._lock:
            waiting = self._asking.pop(name)
        for done in waiting:
            done(outcome)


def _addresses(host: str, port: int, flags: int) -> list[Address]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    return list(dict.fromkeys((family, address) for family, _, _, _, address in found))
