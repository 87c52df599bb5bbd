"""Engines that come, go and die in the middle of everything: what they held is given back."""

import pathlib
import random
import subprocess
import sys
import threading

import pytest

from engine import Place, blocks_first, connect, finish, hashes, kv_split
from kvd_server import eventually
from pegaflow.pegaflow import PegaFlowError, PyLoadState

HERE = pathlib.Path(__file__).resolve().parent


def still_held(server):
    """Leases, pins and half-filled blocks, as far as there are any."""
    store = server.get_json("/status")["store"]
    return {name: store[name] for name in
            ("leases", "leased_blocks", "pinned_bytes", "inflight_bytes") if store[name] != 0}


def expect_nothing_held(server):
    last = {}

    def given_back():
        last.update(held=still_held(server))
        return not last["held"]

    try:
        eventually(given_back, 60, "the return of every lease and pin")
    except AssertionError as late:
        raise AssertionError(f"{late}: {last}") from None


def remove_memories(pid):
    """A killed client cannot unlink its shared memory."""
    for path in pathlib.Path("/dev/shm").glob(f"kvd-wire-{pid}-*"):
        path.unlink()


def test_engines_killed_in_the_middle_leave_nothing_behind(start_server):
    server, source = start_server(pool="32mb"), random.Random(9)
    for round_number in range(6):
        processes = [subprocess.Popen(
            [sys.executable, str(HERE / "stress_client.py"), server.endpoint,
             f"engine-{index}", "model", str(100 * round_number + index), "60"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for index in range(4)]
        eventually(lambda: len(server.instances()) == 4, 60, "four registrations")
        threading.Event().wait(source.uniform(0.05, 0.6))
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()
            remove_memories(process.pid)
        eventually(lambda: server.instances() == [], 60, "the end of all four")
    expect_nothing_held(server)
    eventually(lambda: server.log.count("dropped 3 CUDA tensors for instance") == 6 * 4, 5,
               "a line about each death")


@pytest.mark.parametrize("how", ["unregister", "cleanup", "session"])
def test_an_instance_that_ends_under_load_ends_cleanly(server, make_worker, how):
    """Calls that are under way succeed or are refused; none hangs, and none pins for ever."""
    layers = [kv_split("a", 64, 16 * 1024), blocks_first("b", 64, 32 * 1024)]
    worker = make_worker(connect(server), "engine", "model", layers)
    stop, unexpected = threading.Event(), []

    def work(seed):
        client, number = connect(server), 0
        while not stop.is_set():
            number += 1
            keys = hashes(8, f"{seed} {number % 7}")
            try:
                client.save("engine", 0, 0, 0, [(n, list(range(8)), keys) for n in ("a", "b")])
                found = client.query_prefetch("engine", keys, req_id=f"{seed}-{number}")
                if not found.num_hit_blocks:
                    continue
                state = PyLoadState()
                client.load("engine", 0, 0, state.shm_name(), [["a", "b"]],
                            [(bytes(found.lease), [list(range(8, 8 + found.num_hit_blocks))])])
                if finish(state) not in (1, -1):
                    unexpected.append(state.get_state())
            except PegaFlowError:
                pass
            except Exception as failure:
                unexpected.append(failure)
                return

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for _ in range(25):
        watcher = connect(server)
        worker.register()
        if how == "session":
            watcher.start_session_watcher("engine", "model", 1, 1)
        threading.Event().wait(0.03)
        if how == "unregister":
            assert worker.client.unregister_context("engine") == (True, "")
        elif how == "cleanup":
            assert server.http("POST", "/instances/cleanup?id=engine", b"")[0] == 200
        del watcher
        eventually(lambda: server.instances() == [], 60, "the end of the instance")
    stop.set()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "a call hangs"
    assert not unexpected
    expect_nothing_held(server)


def test_the_memory_is_flushed_again_and_again_under_load(server, make_worker):
    layers = [kv_split("a", 64, 4096)]
    workers = [make_worker(connect(server), f"e{i}", "model", layers, seed=i).register()
               for i in range(3)]
    stop, failures = threading.Event(), []

    def work(worker, seed):
        number = 0
        while not stop.is_set():
            number += 1
            keys = hashes(8, f"{seed} {number}")
            try:
                worker.save(list(range(8)), keys)
                found = worker.query(keys, f"r{number}")
                if not found.num_hit_blocks:
                    continue
                targets = list(range(32, 32 + found.num_hit_blocks))
                worker.load(found.lease, targets)
                for index, target in enumerate(targets):
                    assert worker.block("a", target) == worker.block("a", index)
            except PegaFlowError as ended:
                if "unknown or expired" not in str(ended):
                    failures.append(ended)
            except AssertionError as wrong:
                failures.append(wrong)
                return

    threads = [threading.Thread(target=work, args=(w, i)) for i, w in enumerate(workers)]
    for thread in threads:
        thread.start()
    for _ in range(100):
        assert server.http("POST", "/cache/memory/cleanup", b"")[0] == 200
    stop.set()
    for thread in threads:
        thread.join(60)
    assert not failures
    assert server.http("POST", "/cache/memory/cleanup", b"")[0] == 200
    eventually(lambda: server.get_json("/status")["store"]["resident_blocks"] == 0, 5, "no block")
    eventually(lambda: server.get_json("/status")["pool"]["used_bytes"] == 0, 5, "an empty pool")


def test_two_ranks_that_save_the_same_blocks_at_once_agree(server, make_worker):
    """Replicas of one layer set race for every block; each block has one writer's bytes."""
    layers = [blocks_first("a", 64, 8192), blocks_first("b", 64, 8192)]
    workers = [make_worker(connect(server), "engine", "model", layers,
                           Place(device=rank, world=2), seed=rank) for rank in range(2)]
    for worker in workers:
        worker.register()
    for round_number in range(40):
        keys = hashes(16, f"round {round_number}")
        threads = [threading.Thread(target=worker.save, args=(list(range(16)), keys))
                   for worker in workers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        found = workers[0].query(keys, f"r{round_number}")
        assert found.num_hit_blocks == 16
        workers[0].load(found.lease, list(range(32, 48)))
        workers[0].client.release(found.lease)
        for index in range(16):
            candidates = [tuple(w.block(name, index) for name in "ab") for w in workers]
            assert tuple(workers[0].block(name, 32 + index) for name in "ab") in candidates
