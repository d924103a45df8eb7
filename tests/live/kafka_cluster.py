"""Real Apache Kafka brokers on loopback, for the live tests and the end-to-end benchmarks.

Needs Java 17 and, for the first run of a version, Maven: the jars are resolved through ``pom.xml`` beside this file (about
45 MB, once) and kept in ``$FASTFETCH_KAFKA_JARS`` or the user's cache folder. Nothing is installed, nothing listens beyond
127.0.0.1, and a cluster and its data are gone when its ``with`` block ends.

    with KafkaCluster(folder, brokers=3) as cluster:
        cluster.bootstrap_servers        # "127.0.0.1:port,..."
        cluster.partition_folder("orders", 0)

Nodes run KRaft; the first three are its voters. From the command line, for trying things by hand:

    python tests/live/kafka_cluster.py [VERSION [BROKERS]]     # prints the bootstrap servers, runs until Ctrl-C
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

DEFAULT_VERSION = "4.1.0"
HOST = "127.0.0.1"
START_SECONDS = 90  # a broker is ready after about 3; a loaded machine gets time
SMALL_JVM = ("-Xms64m", "-Xmx320m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")  # starts sooner, serves slower


class ClusterError(Exception):
    """A broker could not be fetched, started or stopped; the message says which and shows the end of its log."""


def missing_tools(version: str = DEFAULT_VERSION) -> str | None:
    """One sentence on what this machine lacks for running a broker, or None."""
    if shutil.which("java") is None:
        return "a real broker needs Java 17 or later, and there is no java on PATH"
    said = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    if found is None or int(found.group(1)) < 17:
        return f"a real broker needs Java 17 or later; `java -version` says {said.strip().splitlines()[:1]}"
    if not _jar_folder(version).is_dir() and shutil.which("mvn") is None:
        return f"Kafka {version} is not in {_jar_folder(version).parent} yet, and there is no mvn on PATH to fetch it"
    return None


def _jar_folder(version: str) -> Path:
    own = os.environ.get("FASTFETCH_KAFKA_JARS")
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return (Path(own) if own else Path(cache) / "fastfetch" / "kafka") / version


def jars(version: str) -> Path:
    """The folder with the jars of one version, fetched with Maven on first use."""
    folder = _jar_folder(version)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.is_dir():
            return folder
        with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
            fetched = Path(temporary) / "jars"  # renamed when whole: a half-fetched folder would be taken for a cache
            pom = Path(__file__).with_name("pom.xml")
            done = subprocess.run(
                ["mvn", "-q", "-B", "-f", pom, f"-Dkafka.version={version}", "dependency:copy-dependencies",
                 f"-DoutputDirectory={fetched}"],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
            )  # fmt: skip
            if done.returncode:
                raise ClusterError(f"Maven could not fetch Kafka {version}:\n{done.stdout[-2000:]}")
            fetched.rename(folder)
    return folder


@dataclass
class Node:
    """One broker, and a voter of the metadata quorum if it has a controller port."""

    id: int
    folder: Path
    port: int
    controller_port: int | None
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def log(self) -> Path:
        return self.folder / "broker.log"

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def log_tail(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        errors = [line for line in lines[:-12] if " ERROR " in line or "Exception" in line][-4:]
        return "\n".join([*errors, *lines[-12:]])


class KafkaCluster:
    """A cluster in a folder of its own. ``settings`` are broker properties that go over the ones chosen here."""

    def __init__(
        self,
        folder: Path,
        *,
        version: str = DEFAULT_VERSION,
        brokers: int = 1,
        settings: Mapping[str, object] | None = None,
        jvm: Sequence[str] = SMALL_JVM,
    ) -> None:
        self.version = version
        self.folder = folder
        self.settings = dict(settings or {})
        self.jvm = list(jvm)
        self.nodes: list[Node] = []
        self._count = brokers
        # 22 characters of URL-safe base64 are a Kafka uuid; a leading dash would be taken for an option.
        self._cluster_id = "F" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:22]

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{HOST}:{node.port}" for node in self.nodes)

    def node(self, node_id: int) -> Node:
        return next(node for node in self.nodes if node.id == node_id)

    def partition_folder(self, topic: str, partition: int, node_id: int = 1) -> Path:
        """Where a node keeps the segments of a partition."""
        return self.node(node_id).data / f"{topic}-{partition}"

    # ------------------------------------------------------------------------------------------ start and stop

    def start(self) -> None:
        """Format and start all nodes, and return when each of them sees the others and groups can be used."""
        jars(self.version)
        for attempt in range(3):
            self._lay_out()
            self._format()
            try:
                for node in self.nodes:
                    self._launch(node)
                self._wait_ready()
            except ClusterError:
                # A port was free when it was chosen and may have been taken by anybody until the broker bound it.
                taken = any("Address already in use" in node.log_tail() for node in self.nodes)
                if attempt == 2 or not taken:
                    raise
                self.kill_all()
            else:
                return

    def stop(self) -> None:
        """End every node at once and delete the data: nobody reads it again."""
        self.kill_all()
        shutil.rmtree(self.folder, ignore_errors=True)

    def kill(self, node_id: int) -> None:
        """SIGKILL, as when a machine dies."""
        self._end(self.node(node_id), signal.SIGKILL)

    def kill_all(self) -> None:
        for node in self.nodes:
            self._end(node, signal.SIGKILL)

    def restart(self, node_id: int, *, clean: bool = True) -> None:
        """Stop one node (in good order if ``clean``), start it again, wait until it is back."""
        node = self.node(node_id)
        self._end(node, signal.SIGTERM if clean else signal.SIGKILL)
        self._launch(node)
        self._wait_ready()

    def _end(self, node: Node, how: signal.Signals) -> None:
        if node.process is None:
            return
        node.process.send_signal(signal.SIGCONT)  # a paused process would not see SIGTERM
        node.process.send_signal(how)
        try:
            node.process.wait(30)
        except subprocess.TimeoutExpired:
            node.process.kill()
            node.process.wait(10)
        node.process = None

    # ------------------------------------------------------------------------------------------- the pieces

    def _lay_out(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        voters = min(3, self._count)
        ports = iter(_free_ports(self._count + voters))
        self.nodes = [
            Node(number, self.folder / f"node{number}", next(ports), next(ports) if number <= voters else None)
            for number in range(1, self._count + 1)
        ]
        for node in self.nodes:
            node.folder.mkdir(parents=True)
            properties = "".join(f"{key}={value}\n" for key, value in self._properties(node).items())
            (node.folder / "server.properties").write_text(properties)

    def _properties(self, node: Node) -> dict[str, object]:
        voters = [other for other in self.nodes if other.controller_port is not None]
        copies = min(3, self._count)
        listeners = [f"PLAINTEXT://{HOST}:{node.port}"]
        if node.controller_port is not None:
            listeners.append(f"CONTROLLER://{HOST}:{node.controller_port}")
        properties: dict[str, object] = {
            "node.id": node.id,
            "process.roles": "broker" if node.controller_port is None else "broker,controller",
            "controller.quorum.voters": ",".join(f"{other.id}@{HOST}:{other.controller_port}" for other in voters),
            "controller.listener.names": "CONTROLLER",
            "listeners": ",".join(listeners),
            "advertised.listeners": listeners[0],
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": node.data,
            "auto.create.topics.enable": "false",
            "default.replication.factor": copies,
            # Fifty partitions of each internal topic are half of a start.
            "offsets.topic.num.partitions": 4,
            "offsets.topic.replication.factor": copies,
            "transaction.state.log.num.partitions": 4,
            "transaction.state.log.replication.factor": copies,
            "transaction.state.log.min.isr": 1,
            # Sessions, rebalances and the failure of a node in seconds instead of minutes.
            "group.initial.rebalance.delay.ms": 0,
            "group.min.session.timeout.ms": 500,
            "broker.session.timeout.ms": 3000,
            "broker.heartbeat.interval.ms": 500,
            # The cleaner and retention look once a second, so that tests can wait for them.
            "log.cleaner.backoff.ms": 500,
            "log.cleaner.dedupe.buffer.size": 4 << 20,
            "log.retention.check.interval.ms": 1000,
            # Tests use fixed timestamps, which lie years back: by age, everything would be deleted a second after it came.
            "log.retention.ms": -1,
            "log.initial.task.delay.ms": 500,
        }
        if _number(self.version) >= (4, 0):
            properties["share.coordinator.state.topic.replication.factor"] = copies
            properties["share.coordinator.state.topic.min.isr"] = 1
        return properties | self.settings

    def _java(self, *arguments: object, level: str = "info") -> list[str]:
        logging = ("defaultLogLevel=" + level, "showDateTime=true", "dateTimeFormat=HH:mm:ss.SSS")
        return [
            "java", *self.jvm, "-Djava.net.preferIPv4Stack=true", *("-Dorg.slf4j.simpleLogger." + item for item in logging),
            "-cp", str(jars(self.version) / "*"), *map(str, arguments),
        ]  # fmt: skip

    def _format(self) -> None:
        """Write the cluster id and the metadata version into each data folder, all nodes side by side."""
        tools = [
            subprocess.Popen(
                self._java("kafka.tools.StorageTool", "format", "--cluster-id", self._cluster_id, "--config",
                           node.folder / "server.properties", level="warn"),
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            )
            for node in self.nodes
        ]  # fmt: skip
        for tool in tools:
            output, _ = tool.communicate()
            if tool.returncode:
                raise ClusterError(f"kafka.tools.StorageTool could not format a data folder:\n{output[-2000:]}")

    def _launch(self, node: Node) -> None:
        command = self._java("kafka.Kafka", node.folder / "server.properties")
        # Ended by the kernel if this process dies without cleaning up. util-linux has setpriv nearly everywhere; elsewhere a
        # killed test run leaves its broker behind, and that is all.
        if shutil.which("setpriv"):
            command = ["setpriv", "--pdeathsig", "KILL", *command]
        with node.log.open("ab") as log:
            # A session of its own: Ctrl-C at the terminal is for the tests, which then stop the broker themselves.
            node.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=node.folder, start_new_session=True
            )

    def _wait_ready(self) -> None:
        """Until every running node answers with all of them and a controller, and the offsets topic has its leaders."""
        # Asked by an independent client: a fault of ours must not look like a broker that does not start.
        from confluent_kafka import Consumer, KafkaException, TopicPartition
        from confluent_kafka.admin import AdminClient

        deadline = time.monotonic() + START_SECONDS
        wanted = {node.id for node in self.nodes if node.running}
        for node in self.nodes:
            while node.id in wanted:
                self._check(node, deadline)
                with contextlib.suppress(OSError):
                    socket.create_connection((HOST, node.port), 1).close()
                    break
                time.sleep(0.05)
        quiet = {"bootstrap.servers": self.bootstrap_servers, "log_level": 0}
        for node in self.nodes:
            while node.id in wanted:
                self._check(node, deadline)
                with contextlib.suppress(KafkaException):
                    seen = AdminClient(quiet | {"bootstrap.servers": f"{HOST}:{node.port}"}).list_topics(timeout=5)
                    if wanted <= set(seen.brokers) and seen.controller_id >= 0:
                        break
                time.sleep(0.05)
        # The first look for a coordinator makes the broker create the offsets topic; later ones then need not wait for it.
        asking = Consumer(quiet | {"group.id": "ready"})
        try:
            while True:
                with contextlib.suppress(KafkaException):
                    asking.committed([TopicPartition("__consumer_offsets", 0)], timeout=5)
                    return
                self._check(next(node for node in self.nodes if node.running), deadline)
        finally:
            asking.close()

    def _check(self, node: Node, deadline: float) -> None:
        if not node.running:
            raise ClusterError(f"node {node.id} ended while starting:\n{node.log_tail()}")
        if time.monotonic() > deadline:
            raise ClusterError(f"node {node.id} was not ready after {START_SECONDS} s:\n{node.log_tail()}")


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


def _free_ports(count: int) -> list[int]:
    """Different free ports. All are held until the last is known, or the system could hand one out twice."""
    with contextlib.ExitStack() as held:
        probes = [held.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind((HOST, 0))
        return [probe.getsockname()[1] for probe in probes]


def main() -> None:
    version = sys.argv[1] if len(sys.argv) > 1 else DEFAULT_VERSION
    brokers = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    if reason := missing_tools(version):
        sys.exit(reason)
    with KafkaCluster(Path(tempfile.mkdtemp(prefix="fastfetch-kafka-")), version=version, brokers=brokers) as cluster:
        print(cluster.bootstrap_servers, flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()


if __name__ == "__main__":
    main()
