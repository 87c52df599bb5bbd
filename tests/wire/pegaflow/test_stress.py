"""Many engines, little memory: slow is allowed, wrong bytes and failed calls are not."""

import os
import pathlib
import re
import subprocess
import sys
import threading

import pytest

from engine import connect, finish, hashes, kv_split
from kvd_server import eventually

HERE = pathlib.Path(__file__).resolve().parent
SECONDS = float(os.environ.get("KVD_WIRE_MINUTES", "0")) * 60 or 6


def run_engines(server, count, namespaces):
    """`count` processes at once; their summed counts. Fails with the output of any that failed."""
    processes = [subprocess.Popen(
        [sys.executable, str(HERE / "stress_client.py"), server.endpoint, f"engine-{index}",
         f"model-{index % namespaces}", str(index), str(SECONDS)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for index in range(count)]
    totals, failures = {}, []
    for process in processes:
        output, _ = process.communicate(timeout=SECONDS + 240)
        if process.returncode != 0:
            failures.append(f"exit status {process.returncode}\n{output}")
        for name, value in re.findall(r"(\w+)=(\d+)", output):
            totals[name] = totals.get(name, 0) + int(value)
    assert not failures, "\n".join(failures) + server.log[-4000:]
    eventually(lambda: server.instances() == [], 60, "the end of every instance")
    return totals


@pytest.mark.timeout(SECONDS + 420)
def test_eight_engines_at_once_get_the_right_bytes(start_server):
    server = start_server(pool="512mb")
    totals = run_engines(server, 8, 2)
    assert totals["loaded"] > 0 and totals["rounds"] >= 8
    assert server.metric("pegaflow_load_failures_total") == 0


@pytest.mark.timeout(SECONDS + 420)
def test_a_pool_of_one_percent_of_the_footprint_stays_right(start_server):
    """40 roots with 100 blocks of 64 KiB each, in two namespaces: 500 MiB."""
    server = start_server(pool="4mb")
    totals = run_engines(server, 4, 2)
    assert totals["saved"] > 0
    assert server.metric("pegaflow_cache_block_evictions_total") > 0
    assert server.metric("pegaflow_pool_used_bytes") <= 4 << 20
    assert server.metric("pegaflow_load_failures_total") == 0


def test_a_storm_between_query_and_load_never_touches_leased_blocks(start_server, make_worker):
    """user-reports 16, from two engines at once."""
    server = start_server(pool="8mb")
    layers = [kv_split("a", 64, 16 * 1024), kv_split("b", 64, 16 * 1024)]
    quiet = make_worker(connect(server), "quiet", "model", layers).register()
    loud = make_worker(connect(server), "loud", "model", layers).register()
    stop = threading.Event()

    def storm():
        number = 0
        while not stop.is_set():
            loud.save(list(range(32)), hashes(32, f"storm {number}"))
            number += 1

    thread = threading.Thread(target=storm)
    thread.start()
    try:
        for number in range(60):
            keys = hashes(8, f"kept {number}")
            quiet.save(list(range(8)), keys)
            found = quiet.query(keys, f"r{number}")
            hits = found.num_hit_blocks
            if not hits:
                continue
            targets = list(range(40, 40 + hits))
            state = quiet.start_load([(found.lease, [targets])])
            assert finish(state) == 1
            for name in quiet.layers:
                for index, target in enumerate(targets):
                    assert quiet.block(name, target) == quiet.block(name, index)
    finally:
        stop.set()
        thread.join()
    assert server.metric("pegaflow_cache_block_evictions_total") > 0


def test_a_pool_full_of_leased_blocks_saves_a_part_and_says_so(start_server, make_worker):
    """user-reports 24: a save that finds no room succeeds in part, and is counted."""
    server = start_server(pool="4mb")
    worker = make_worker(connect(server), "engine", "model",
                         [kv_split("a", 256, 16 * 1024)]).register()
    keys = hashes(256, "pinned")
    worker.save(list(range(256)), keys)
    leases = [worker.query([key], f"r{index}").lease for index, key in enumerate(keys)]
    held = [index for index, lease in enumerate(leases) if lease]
    assert 64 <= len(held) <= 128, "most of the pool's 128 places hold a block"
    dropped = server.metric("kvd_save_blocks_dropped_total")
    more = hashes(160, "more")
    worker.save(list(range(160)), more)
    assert server.metric("kvd_save_blocks_dropped_total") > dropped
    assert "left out" in worker.save_message
    assert worker.query(more, "more").num_hit_blocks + len(held) <= 128
    saved = {index: worker.block("a", index) for index in held}
    for index in held:
        worker.load(leases[index], [7])
        assert worker.block("a", 7) == saved[index]
    after = hashes(32, "after")
    worker.save(list(range(32)), after)
    assert worker.query(after, "after").num_hit_blocks == 32
