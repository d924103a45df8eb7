"""Names to addresses: every answer is used, one that hangs comes last, and a slow resolver costs one thread."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable

import pytest

from fastfetch.net.resolver import Address, Resolver

Found = list[Address] | str


def address(host: str) -> Address:
    return socket.AF_INET, (host, 9092)


A, B, C = address("192.0.2.1"), address("192.0.2.2"), address("192.0.2.3")


class Names:
    """What the system's resolver says, and when."""

    def __init__(self) -> None:
        self.known: dict[str, list[Address]] = {}
        self.gate = threading.Event()
        self.gate.set()
        self.asked = 0

    def getaddrinfo(self, host: str, port: int, **kwargs: int) -> list[tuple[int, int, int, str, object]]:
        if kwargs["flags"]:
            raise socket.gaierror(-2, "not a literal address")
        self.asked += 1
        assert self.gate.wait(20)
        if host not in self.known:
            raise socket.gaierror(-2, "Name or service not known")
        return [(family, socket.SOCK_STREAM, 6, "", where) for family, where in self.known[host]]


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    names = Names()
    monkeypatch.setattr(socket, "getaddrinfo", names.getaddrinfo)
    return names


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def resolve(resolver: Resolver, host: str = "kafka") -> Found:
    found: list[Found] = []
    resolver.resolve(host, 9092, found.append)
    wait_until(lambda: bool(found))
    return found[0]


def test_a_literal_address_needs_no_thread() -> None:
    found: list[Found] = []
    Resolver().resolve("127.0.0.1", 9092, found.append)
    assert found == [[(socket.AF_INET, ("127.0.0.1", 9092))]]


def test_addresses_come_in_the_resolvers_order_without_repeats(names: Names) -> None:
    names.known["kafka"] = [B, A, B, C]
    assert resolve(Resolver()) == [B, A, C]


def test_a_name_is_looked_up_anew_each_time(names: Names) -> None:
    resolver = Resolver()
    assert resolve(resolver) == "the name can't be resolved: Name or service not known"
    names.known["kafka"] = [A]
    assert resolve(resolver) == [A]
    names.known["kafka"] = [B]
    assert resolve(resolver) == [B]


def test_an_address_that_hung_comes_last_until_it_answers(names: Names) -> None:
    names.known["kafka"] = [A, B, C]
    resolver = Resolver()
    resolver.hung("kafka", 9092, A)
    assert resolve(resolver) == [B, C, A]
    resolver.hung("kafka", 9092, B)
    assert resolve(resolver) == [C, A, B]
    resolver.hung("kafka", 9092, A)
    assert resolve(resolver) == [C, B, A]
    resolver.connected("kafka", 9092, B)
    assert resolve(resolver) == [B, C, A]
    assert resolve(resolver, "kafka") == [B, C, A]


def test_addresses_that_a_name_has_no_longer_are_forgotten(names: Names) -> None:
    resolver = Resolver()
    for n in range(100):
        gone = address(f"198.51.100.{n}")
        names.known["kafka"] = [gone, A]
        resolver.hung("kafka", 9092, gone)
        assert resolve(resolver) == [A, gone]
    assert len(resolver._hung["kafka", 9092]) == 1


def test_a_slow_resolver_is_asked_once_for_all(names: Names) -> None:
    names.known["kafka"] = [A]
    names.gate.clear()
    resolver = Resolver()
    found: list[Found] = []
    before = threading.active_count()
    for _ in range(50):
        resolver.resolve("kafka", 9092, found.append)
    assert threading.active_count() == before + 1
    names.gate.set()
    wait_until(lambda: len(found) == 50)
    assert found == [[A]] * 50
    assert names.asked == 1
    assert resolve(resolver) == [A]
    assert names.asked == 2


def test_no_thread_to_be_had_is_an_answer(names: Names, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    resolver = Resolver()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        said = resolve(resolver)
    assert "can't start new thread" in said
    names.known["kafka"] = [A]
    assert resolve(resolver) == [A]


@pytest.mark.parametrize("name", ["x" * 300, "a..b", "null\0byte", "\udcff", "", "no-such-name.invalid"])
def test_what_is_no_name_is_an_answer_too(name: str) -> None:
    """Hosts come from brokers, too: nothing in one may end the thread that asks."""
    assert resolve(Resolver(), name)
