"""Real Apache Kafka brokers on loopback, for the live tests and the end-to-end benchmarks.

Needs Java 17 and, for the first run of a version, Maven: the jars are resolved through ``pom.xml`` beside this file (about
45 MB, once) and kept in ``$FASTFETCH_KAFKA_JARS`` or the user's cache folder. Nothing is installed, nothing listens beyond
127.0.0.1, and a cluster and its data are gone when its ``with`` block ends.

    with KafkaCluster(folder, brokers=3) as cluster:
        cluster.bootstrap_servers        # "127.0.0.1:port,..."
        cluster.partition_folder("orders", 0)

Nodes run KRaft; the first three are its voters. Versions before 3.3 get a ZooKeeper, which comes with their jars. From the
command line, for trying things by hand:

    python tests/live/kafka_cluster.py [VERSION [BROKERS]]     # prints the bootstrap servers, runs until Ctrl-C
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

DEFAULT_VERSION = "4.1.0"
OLDEST_VERSION = "2.8.2"
HOST = "127.0.0.1"
START_SECONDS = 90  # a broker is ready after about 3; a loaded machine gets time
PORTS = range(10_000, 20_000)  # below those that systems give to outgoing connections
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


@dataclass(kw_only=True)
class Server:
    """A process with a folder of its own that listens on a port: a broker, or a ZooKeeper."""

    name: str
    folder: Path
    port: int
    paused: bool = False
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def log(self) -> Path:
        return self.folder / "server.log"

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def end(self, how: signal.Signals) -> None:
        """Send a signal that ends it, and wait until it has."""
        if self.process is None:
            return
        self.process.send_signal(signal.SIGCONT)  # a paused process would not see SIGTERM
        self.process.send_signal(how)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(10)
        self.process = None
        self.paused = False

    def log_tail(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        errors = [line for line in lines[:-12] if " ERROR " in line or "Exception" in line][-4:]
        return "\n".join([*errors, *lines[-12:]])


@dataclass(kw_only=True)
class Node(Server):
    """One broker, and a voter of the metadata quorum if it has a controller port."""

    id: int
    controller_port: int | None = None


class KafkaCluster:
    """A cluster in a folder of its own.

    ``settings`` are broker properties that go over the ones chosen here. With ``racks`` node n is in rack "rack<n>".
    """

    def __init__(
        self,
        folder: Path,
        *,
        version: str = DEFAULT_VERSION,
        brokers: int = 1,
        racks: bool = False,
        settings: Mapping[str, object] | None = None,
        jvm: Sequence[str] = SMALL_JVM,
    ) -> None:
        self.version = version
        self.folder = folder
        self.settings = dict(settings or {})
        self.jvm = list(jvm)
        self.nodes: list[Node] = []
        self._count = brokers
        self._racks = racks
        self._keeper: Server | None = None  # where the version needs a ZooKeeper
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
        """Start all nodes, and return when each of them sees the others and groups can be used."""
        jars(self.version)
        for attempt in range(3):
            self._lay_out()
            try:
                if self._keeper is None:
                    self._format()
                else:
                    self._start_keeper(self._keeper)
                self.launch(*(node.id for node in self.nodes))
            except ClusterError:
                # A port was free when it was chosen and may have been taken by anybody until the broker bound it.
                taken = any("Address already in use" in server.log_tail() for server in self._servers())
                if attempt == 2 or not taken:
                    raise
                self._kill_servers()
            else:
                return

    def stop(self) -> None:
        """End everything at once and delete the data: nobody reads it again."""
        self._kill_servers()
        shutil.rmtree(self.folder, ignore_errors=True)

    def kill(self, *node_ids: int) -> None:
        """SIGKILL, as when a machine dies."""
        for node_id in node_ids:
            self.node(node_id).end(signal.SIGKILL)

    def terminate(self, node_id: int) -> None:
        """SIGTERM: the node hands its leaderships over and ends."""
        self.node(node_id).end(signal.SIGTERM)

    def launch(self, *node_ids: int) -> None:
        """Start nodes that don't run, and wait until they are back."""
        for node_id in node_ids:
            self._launch(self.node(node_id))
        self._wait_ready()

    def restart(self, node_id: int, *, clean: bool = True) -> None:
        """Stop one node (in good order if ``clean``), start it again, wait until it is back."""
        (self.terminate if clean else self.kill)(node_id)
        self.launch(node_id)

    def pause(self, node_id: int) -> None:
        """SIGSTOP: connections stay open, and nobody answers."""
        self._signal(node_id, signal.SIGSTOP, paused=True)

    def resume(self, node_id: int) -> None:
        self._signal(node_id, signal.SIGCONT, paused=False)

    @contextlib.contextmanager
    def silent(self, node_id: int) -> Iterator[None]:
        """Paused for the length of a block."""
        self.pause(node_id)
        try:
            yield
        finally:
            self.resume(node_id)

    def heal(self) -> None:
        """Resume what is paused and start what has ended."""
        for node in self.nodes:
            if node.paused:
                self.resume(node.id)
        if dead := [node.id for node in self.nodes if not node.running]:
            self.launch(*dead)

    def _signal(self, node_id: int, which: signal.Signals, *, paused: bool) -> None:
        node = self.node(node_id)
        if node.process is None:
            raise ClusterError(f"node {node_id} does not run")
        node.process.send_signal(which)
        node.paused = paused

    def _servers(self) -> list[Server]:
        return [*self.nodes, *([] if self._keeper is None else [self._keeper])]

    def _kill_servers(self) -> None:
        for server in self._servers():
            server.end(signal.SIGKILL)

    # ------------------------------------------------------------------------------------------- the pieces

    def _lay_out(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        with_keeper = _number(self.version) < (3, 3)
        voters = 0 if with_keeper else min(3, self._count)
        ports = iter(_free_ports(self._count + voters + with_keeper))
        self.nodes = [
            Node(
                id=number,
                name=f"node {number}",
                folder=self.folder / f"node{number}",
                port=next(ports),
                controller_port=next(ports) if number <= voters else None,
            )
            for number in range(1, self._count + 1)
        ]
        if with_keeper:
            self._keeper = Server(name="ZooKeeper", folder=self.folder / "zookeeper", port=next(ports))
        for node in self.nodes:
            node.folder.mkdir(parents=True)
            properties = "".join(f"{key}={value}\n" for key, value in self._properties(node).items())
            (node.folder / "server.properties").write_text(properties)

    def _properties(self, node: Node) -> dict[str, object]:
        copies = min(3, self._count)
        properties: dict[str, object] = self._membership(node) | {
            "advertised.listeners": f"PLAINTEXT://{HOST}:{node.port}",
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
            "group.consumer.min.session.timeout.ms": 500,
            "group.consumer.min.heartbeat.interval.ms": 100,
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
        if self._racks:
            # A consumer in the rack of a replica is sent there to read (KIP-392), others to the leader.
            properties["broker.rack"] = f"rack{node.id}"
            properties["replica.selector.class"] = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
        return properties | self.settings

    def _membership(self, node: Node) -> dict[str, object]:
        """How a node finds the others; a dead one is out after three seconds."""
        listener = f"PLAINTEXT://{HOST}:{node.port}"
        if self._keeper is not None:
            return {
                "broker.id": node.id,
                "listeners": listener,
                "zookeeper.connect": f"{HOST}:{self._keeper.port}",
                "zookeeper.session.timeout.ms": 3000,
            }
        voters = [other for other in self.nodes if other.controller_port is not None]
        is_voter = node.controller_port is not None
        return {
            "node.id": node.id,
            "process.roles": "broker,controller" if is_voter else "broker",
            "controller.quorum.voters": ",".join(f"{other.id}@{HOST}:{other.controller_port}" for other in voters),
            "controller.listener.names": "CONTROLLER",
            "listeners": f"{listener},CONTROLLER://{HOST}:{node.controller_port}" if is_voter else listener,
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "broker.session.timeout.ms": 3000,
            "broker.heartbeat.interval.ms": 500,
        }

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

    def _start_keeper(self, keeper: Server) -> None:
        keeper.folder.mkdir()
        config = keeper.folder / "zookeeper.properties"
        config.write_text(
            f"dataDir={keeper.data}\nclientPort={keeper.port}\nclientPortAddress={HOST}\ntickTime=500\nmaxClientCnxns=0\n"
            "admin.enableServer=false\n4lw.commands.whitelist=srvr,dump\nforceSync=no\n"
        )
        self._run(keeper, "-Dzookeeper.jmx.log4j.disable=true", "org.apache.zookeeper.server.quorum.QuorumPeerMain", config)
        deadline = time.monotonic() + START_SECONDS
        while "Mode:" not in self._ask_keeper(keeper, b"srvr"):
            self._check(keeper, deadline)
            time.sleep(0.05)

    def _ask_keeper(self, keeper: Server, command: bytes) -> str:
        """One of ZooKeeper's four-letter commands; "" as long as nobody answers."""
        with contextlib.suppress(OSError), socket.create_connection((HOST, keeper.port), 1) as link:
            link.sendall(command)
            with link.makefile(encoding="utf-8") as answer:
                return answer.read()
        return ""

    def _launch(self, node: Node) -> None:
        if self._keeper is not None:
            # A killed node's entry stays until its session ends, and a node that finds its own does not start.
            deadline = time.monotonic() + START_SECONDS
            while f"/brokers/ids/{node.id}\n" in self._ask_keeper(self._keeper, b"dump"):
                self._check(self._keeper, deadline)
                time.sleep(0.05)
        self._run(node, "kafka.Kafka", node.folder / "server.properties")

    def _run(self, server: Server, *arguments: object) -> None:
        command = self._java(*arguments)
        # Ended by the kernel if this process dies without cleaning up. util-linux has setpriv nearly everywhere; elsewhere a
        # killed test run leaves its broker behind, and that is all.
        if shutil.which("setpriv"):
            command = ["setpriv", "--pdeathsig", "KILL", *command]
        with server.log.open("ab") as log:
            # A session of its own: Ctrl-C at the terminal is for the tests, which then stop the broker themselves.
            server.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=server.folder, start_new_session=True
            )

    def _wait_ready(self) -> None:
        """Until every running node answers with all of them and a controller, and the offsets topic has its leaders."""
        # Asked by an independent client: a fault of ours must not look like a broker that does not start.
        from confluent_kafka import Consumer, KafkaException, TopicPartition
        from confluent_kafka.admin import AdminClient

        deadline = time.monotonic() + START_SECONDS
        wanted = {node.id for node in self.nodes if node.running and not node.paused}
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
                self._check(next(node for node in self.nodes if node.id in wanted), deadline)
        finally:
            asking.close()

    def _check(self, server: Server, deadline: float) -> None:
        if not server.running:
            raise ClusterError(f"{server.name} ended while starting:\n{server.log_tail()}")
        if time.monotonic() > deadline:
            raise ClusterError(f"{server.name} was not ready after {START_SECONDS} s:\n{server.log_tail()}")


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


def _free_ports(count: int) -> list[int]:
    """Different free ports, that no outgoing connection is given while their node is down: one that tries to reach a port of that
    range where nobody listens may be given it itself. All are held until the last is known."""
    with contextlib.ExitStack() as held:
        found: list[int] = []
        for port in random.sample(PORTS, len(PORTS)):
            probe = held.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                probe.bind((HOST, port))
                found.append(port)
            if len(found) == count:
                return found
    raise ClusterError(f"no {count} free ports between {PORTS.start} and {PORTS.stop}")


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
