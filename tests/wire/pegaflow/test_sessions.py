"""An instance lives as long as its session stream; its blocks live on."""

import os
import pathlib
import subprocess
import sys
import threading

import pytest

import raw_client
from engine import connect, hashes, kv_split
from kvd_server import eventually
from pegaflow.pegaflow import PegaFlowError

HERE = pathlib.Path(__file__).resolve().parent


@pytest.fixture
def start_client(server):
    """Starts session_client.py; its shared memory is removed at the end."""
    processes, memories = [], []

    def start(instance, namespace="model"):
        process = subprocess.Popen(
            [sys.executable, str(HERE / "session_client.py"), server.endpoint, instance, namespace],
            stdout=subprocess.PIPE, text=True)
        processes.append(process)
        for line in process.stdout:
            if line.startswith("memory "):
                memories.append(line.split()[1])
            if line.startswith("ready"):
                return process
        raise AssertionError(f"the client ended with {process.wait()}")

    yield start
    for process in processes:
        process.kill()
        process.wait()
        process.stdout.close()
    for name in memories:
        os.unlink(f"/dev/shm/{name}")


def gone(server, instance):
    return lambda: instance not in server.instances()


def test_opening_a_session_returns_promptly(client):
    """The client waits for response headers, which the stream must send by itself."""
    opened = threading.Event()
    thread = threading.Thread(
        target=lambda: (client.start_session_watcher("engine", "model", 1, 1), opened.set()),
        daemon=True)
    thread.start()
    assert opened.wait(60)


def test_a_session_without_an_instance_name_is_refused(server):
    stub, _ = raw_client.connect(server)
    code, text = raw_client.refusal(
        lambda request, timeout: list(stub.Session(request, timeout=timeout)),
        raw_client.pb.SessionRequest(instance_id="", namespace="n"), timeout=60)
    assert code.name == "INVALID_ARGUMENT" and "instance" in text


def test_a_session_may_come_before_the_registration(server, simple):
    watcher = connect(server)
    watcher.start_session_watcher("later", "model", 1, 1)
    assert "later" not in server.instances()
    assert simple.query([]).num_hit_blocks == 0


def test_a_closed_session_removes_its_instance_and_keeps_the_blocks(server, simple, make_worker):
    watcher = connect(server)
    watcher.start_session_watcher("engine", "model", 1, 1)
    keys = hashes(2)
    simple.save([0, 1], keys)
    lease = simple.query(keys).lease
    saved = simple.block("layer.0", 0)
    del watcher
    eventually(gone(server, "engine"), 60, "the end of the instance")
    for call in (lambda: simple.query(keys), lambda: simple.save([0], keys[:1]),
                 lambda: simple.client.release(lease)):
        with pytest.raises(PegaFlowError) as failure:
            call()
        assert type(failure.value) is PegaFlowError
    again = make_worker(connect(server), "again", "model", simple.layers.values()).register()
    found = again.query(keys)
    assert found.num_hit_blocks == 2
    again.load(found.lease, [6, 7])
    assert again.block("layer.0", 6) == saved


def test_a_newer_session_takes_over(server, simple):
    older, newer = connect(server), connect(server)
    older.start_session_watcher("engine", "model", 1, 1)
    newer.start_session_watcher("engine", "model", 1, 1)
    del older
    keys = hashes(20)
    for index, key in enumerate(keys):
        simple.save([index % 8], [key])
    assert server.instances() == ["engine"]
    assert simple.query(keys).num_hit_blocks == 20
    del newer
    eventually(gone(server, "engine"), 60, "the end of the instance")


def test_a_killed_client_is_noticed_and_its_blocks_stay(server, start_client, make_worker):
    process = start_client("victim")
    eventually(lambda: "victim" in server.instances(), 60, "the registration")
    process.kill()
    line = server.wait_for_line(r"dropped \d+ CUDA tensors for instance victim", 5)
    assert "dropped 2 CUDA tensors" in line
    eventually(gone(server, "victim"), 5, "the end of the instance")
    layers = [kv_split(f"layer.{i}", 8, 4096) for i in range(2)]
    heir = make_worker(connect(server), "heir", "model", layers).register()
    found = heir.query(hashes(2, "victim"))
    assert found.num_hit_blocks == 2
    heir.load(found.lease, [6, 7])


def test_a_killed_client_takes_no_other_instance_along(server, start_client, simple):
    process = start_client("victim")
    keys = hashes(3)
    simple.save([0, 1, 2], keys)
    process.kill()
    for _ in range(200):
        found = simple.query(keys)
        simple.load(found.lease, [5, 6, 7])
    eventually(gone(server, "victim"), 60, "the end of the instance")
    assert simple.block("layer.0", 5) == simple.block("layer.0", 0)


def test_a_dead_instance_may_register_again_under_its_name(server, start_client, make_worker):
    start_client("victim").kill()
    eventually(gone(server, "victim"), 60, "the end of the instance")
    second = start_client("victim")
    assert server.instances() == ["victim"]
    second.kill()
    eventually(gone(server, "victim"), 60, "the end of the second life")


def test_many_sessions_open_and_close(server):
    stub, _ = raw_client.connect(server)
    for index in range(100):
        stream = stub.Session(raw_client.pb.SessionRequest(
            instance_id=f"i{index}", namespace="n", tp_size=1, world_size=1))
        stream.initial_metadata()
        stream.cancel()
    assert server.instances() == []
    assert connect(server).health() == (True, "")


def test_unregister_under_an_open_session_ends_the_instance_once(server, simple):
    watcher = connect(server)
    watcher.start_session_watcher("engine", "model", 1, 1)
    assert simple.client.unregister_context("engine") == (True, "")
    assert server.instances() == []
    simple.register()
    del watcher
    eventually(gone(server, "engine"), 60, "the end of the instance")
