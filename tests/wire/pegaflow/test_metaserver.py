"""kvd's metaserver beside PegaFlow's own program from the wheel: same requests, same answers.

PegaFlow's server, the other client of this contract, does not start without a GPU; so both are
asked with stubs that are generated from the contract.
"""

import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.request

import grpc
import pegaflow
import pytest
from grpc_tools import protoc

from kvd_server import BINARY, ENVIRONMENT, eventually

PROTO = pathlib.Path(__file__).resolve().parents[3] / "transport" / "grpc" / "proto"
THEIRS = pathlib.Path(pegaflow.__file__).parent / "pegaflow-metaserver-py"
RUN_1 = "67e55044-10b1-426f-9247-bb680e5fe0c8"
RUN_2 = "67e55044-10b1-426f-9247-bb680e5fe0c9"


def _generate():
    folder = tempfile.mkdtemp(prefix="kvd-wire-meta-")
    # In a package of its own: raw_client has registered engine.proto in this process already.
    status = protoc.main(["protoc", f"-I{PROTO}", f"--python_out={folder}",
                          f"--grpc_python_out={folder}", str(PROTO / "metaserver.proto")])
    assert status == 0, f"protoc ended with {status}"
    import raw_client  # noqa: F401  provides engine_pb2
    sys.path.insert(0, folder)
    import metaserver_pb2
    import metaserver_pb2_grpc
    sys.path.remove(folder)
    return metaserver_pb2, metaserver_pb2_grpc


pb, pb_grpc = _generate()

# Newer releases answer prefix queries in another way; this is the contract of the pinned one.
pytestmark = pytest.mark.skipif(pegaflow.__version__ != "0.23.12",
                                reason="compares with the metaserver of 0.23.12")


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Metaserver:
    """One program of the contract; both take the same flags."""

    def __init__(self, *command):
        self.address = f"127.0.0.1:{_free_port()}"
        self.http = f"127.0.0.1:{_free_port()}"
        self.process = subprocess.Popen(
            [*command, "--addr", self.address, "--http-addr", self.http, "--node-stale-secs", "2"],
            env=ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)
        channel = grpc.insecure_channel(self.address, [("grpc.max_send_message_length", -1)])
        grpc.channel_ready_future(channel).result(timeout=60)
        self.stub = pb_grpc.MetaServerStub(channel)

    def ask(self, method, **fields):
        """What came back, in a form that two programs can agree on."""
        request = getattr(pb, method + "Request")(**fields)
        try:
            answer = getattr(self.stub, method)(request, timeout=30)
        except grpc.RpcError as error:
            text = error.details()
            return error.code(), text.split(":")[0]  # what is wrong with a UUID is said freely
        if method == "QueryPrefixBlocks":
            return sorted((each.node, each.prefix_len) for each in answer.nodes)
        return str(answer)

    def metrics(self):
        with urllib.request.urlopen(f"http://{self.http}/metrics", timeout=60) as answer:
            return answer.read().decode()

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=60)


@pytest.fixture
def both():
    ours, theirs = Metaserver(BINARY, "metaserver"), Metaserver(str(THEIRS))
    yield ours, theirs
    theirs.end()
    assert ours.end() == 0


def agree(both, method, **fields):
    ours, theirs = (each.ask(method, **fields) for each in both)
    assert ours == theirs, f"{method} {fields}"
    return ours


def hashes(first, count):
    return [b"%032d" % number for number in range(first, first + count)]


def test_refusals_and_edges_are_the_same(both):
    node = "10.0.0.1:50055"
    session = {"node": node, "node_id": RUN_1}
    block = {"namespace": "ns", "block_hashes": hashes(0, 3)}
    agree(both, "InsertBlockHashes", **session, **block)  # unknown node
    agree(both, "HeartbeatNode", node=node, node_id="no uuid")
    for spelling in (RUN_1, RUN_1.upper(), RUN_1.replace("-", ""), "{" + RUN_1 + "}"):
        agree(both, "HeartbeatNode", node=node, node_id=spelling)
    agree(both, "HeartbeatNode", node=node, node_id=RUN_2)  # stale session
    for method in ("InsertBlockHashes", "RemoveBlockHashes"):
        agree(both, method, node=node, node_id=RUN_2, **block)
        agree(both, method, node=node, node_id="x", **block)
        agree(both, method, node=node, node_id="x", namespace="ns", block_hashes=[])
        agree(both, method, **session, namespace="ns", block_hashes=hashes(0, 3) + hashes(0, 1))
    agree(both, "QueryPrefixBlocks", namespace="ns", block_hashes=[])
    agree(both, "UnregisterNode", node="other:1", node_id=RUN_1)
    agree(both, "UnregisterNode", node=node, node_id=RUN_2)
    agree(both, "UnregisterNode", **session)
    agree(both, "UnregisterNode", **session)


def test_a_long_random_script_gets_the_same_answers(both):
    seed = int(os.environ.get("KVD_WIRE_SEED", random.randrange(1 << 30)))
    print(f"KVD_WIRE_SEED={seed}")
    chance = random.Random(seed)
    nodes = [f"10.0.0.{number}:50055" for number in range(5)]
    for _ in range(600):
        for node in nodes if chance.random() < 0.3 else []:
            agree(both, "HeartbeatNode", node=node, node_id=RUN_1)
        session = {"node": chance.choice(nodes), "node_id": RUN_1}
        blocks = {"namespace": chance.choice(["a", "b"]),
                  "block_hashes": hashes(chance.randrange(60), chance.randrange(1, 25))}
        choice = chance.random()
        if choice < 0.4:
            agree(both, "InsertBlockHashes", **session, **blocks)
        elif choice < 0.6:
            agree(both, "RemoveBlockHashes", **session, **blocks)
        elif choice < 0.97:
            agree(both, "QueryPrefixBlocks", **blocks)
        else:
            agree(both, "UnregisterNode", **session)
            agree(both, "HeartbeatNode", **session)


def test_7_a_silent_node_is_hidden_and_its_next_run_starts_empty(both):
    node = "10.0.0.1:50055"
    agree(both, "HeartbeatNode", node=node, node_id=RUN_1)
    agree(both, "InsertBlockHashes", node=node, node_id=RUN_1, namespace="ns",
          block_hashes=hashes(0, 3))
    query = {"namespace": "ns", "block_hashes": hashes(0, 3)}
    assert agree(both, "QueryPrefixBlocks", **query) == [(node, 3)]
    for each in both:
        eventually(lambda each=each: each.ask("QueryPrefixBlocks", **query) == [], 60, "hiding")
    agree(both, "HeartbeatNode", node=node, node_id=RUN_2)
    assert agree(both, "QueryPrefixBlocks", **query) == []
    agree(both, "InsertBlockHashes", node=node, node_id=RUN_1, namespace="ns",
          block_hashes=hashes(0, 3))  # the run before is refused


def test_every_series_of_theirs_has_its_name_here(both):
    agree(both, "HeartbeatNode", node="a:1", node_id=RUN_1)
    names = [set(re.findall(r"^# TYPE (pegaflow_\S+)", each.metrics(), re.M)) for each in both]
    assert names[1] <= names[0]
    assert names[1]


def test_6_an_insert_of_more_than_4_mib_is_taken_here():
    ours = Metaserver(BINARY, "metaserver")
    ours.ask("HeartbeatNode", node="a:1", node_id=RUN_1)
    answer = ours.ask("InsertBlockHashes", node="a:1", node_id=RUN_1, namespace="ns",
                      block_hashes=hashes(0, 300_000))
    assert "inserted_count: 300000" in answer
    assert ours.end() == 0
