"""The numbers agree with what happened, and stand still when nothing happens."""

import re
import shutil
import subprocess
import time

import pytest

import raw_client
from engine import blocks_first, connect, hashes, kv_split

REQUESTS = "pegaflow_cache_tier_block_requests_total"


def test_promtool_accepts_the_metrics_of_a_busy_server(server, simple):
    """user-reports 59."""
    promtool = shutil.which("promtool")
    assert promtool, "promtool is missing: install the Debian package prometheus"
    keys = hashes(3)
    simple.save([0, 1, 2], keys)
    simple.load(simple.query(keys + hashes(2, "missing")).lease, [5, 6, 7])
    _, text, headers = server.http("GET", "/metrics")
    assert headers["Content-Type"].startswith("text/plain")
    done = subprocess.run([promtool, "check", "metrics"], input=text, text=True,
                          capture_output=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    names = re.findall(r"^# TYPE (\S+)", text, re.M)
    assert len(names) == len(set(names)), "a series is exported twice"
    helped = set(re.findall(r"^# HELP (\S+) \S", text, re.M))
    assert set(names) <= helped


EXPORTED = [
    "pegaflow_pool_capacity_bytes", "pegaflow_pool_used_bytes",
    "pegaflow_pool_alloc_failures_total", "pegaflow_inflight_bytes",
    "pegaflow_cache_resident_bytes", "pegaflow_cache_resident_blocks",
    "pegaflow_cache_block_hits_total", "pegaflow_cache_block_misses_total",
    REQUESTS,
    "pegaflow_cache_block_insertions_total",
    "pegaflow_cache_block_admission_rejections_total",
    "pegaflow_cache_block_evictions_total", "pegaflow_cache_eviction_reclaimed_bytes_total",
    "pegaflow_save_bytes_total", "pegaflow_load_bytes_total", "pegaflow_load_failures_total",
    "pegaflow_save_duration_seconds_bucket", "pegaflow_load_duration_seconds_bucket",
    "pegaflow_rpc_requests_total", "pegaflow_rpc_duration_seconds_bucket",
    # The names that the published dashboards query, beside those that the binary exports.
    "pegaflow_prefetch_stale_gc_total", "pegaflow_prefetch_stale_gc_total_total",
]


def test_every_series_that_dashboards_query_is_there(server, simple):
    keys = hashes(2)
    simple.save([0, 1], keys)
    simple.load(simple.query(keys).lease, [6, 7])
    names = {series.split("{", 1)[0] for series in server.metrics()}
    missing = [name for name in EXPORTED if name not in names]
    assert not missing, f"missing: {missing}"


def test_the_numbers_are_those_of_what_happened(server, simple):
    keys = hashes(4)
    simple.save([0, 1, 2], keys[:3])
    found = simple.query(keys)
    simple.load(found.lease, [5, 6, 7])
    block = 2 * 2 * 4096
    assert server.metric("pegaflow_cache_resident_bytes") == 3 * block
    assert server.metric("pegaflow_cache_resident_blocks") == 3
    assert server.metric("pegaflow_cache_block_insertions_total") == 3
    assert server.metric("pegaflow_cache_block_hits_total") == 3
    assert server.metric("pegaflow_cache_block_misses_total") == 1
    assert server.metric("pegaflow_save_bytes_total") == 3 * block
    assert server.metric("pegaflow_load_bytes_total") == 3 * block
    assert server.metric("pegaflow_pool_capacity_bytes") == 64 << 20
    assert 3 * block <= server.metric("pegaflow_pool_used_bytes") <= 64 << 20
    assert server.metric("pegaflow_rpc_requests_total", method="save", status="ok") == 1
    assert server.metric("pegaflow_rpc_requests_total", method="load", status="ok") == 1


def test_the_tiers_sum_up_to_the_blocks_that_were_asked_for(server, make_worker):
    """user-reports 59: sum(tier) == requests, over hits, misses, exact sets and groups."""
    layers = [kv_split("a", 8, 512), blocks_first("m", 8, 512, group=1)]
    worker = make_worker(connect(server), "engine", "model", layers).register()
    keys = hashes(8)
    worker.save_layers([("a", [0, 1, 2], keys[:3]), ("m", [0, 2], [keys[0], keys[2]])])
    asked = 0
    for count in (0, 1, 3, 4, 8):
        worker.query(keys[:count], f"prefix {count}")
        asked += count
    worker.query(keys[:1], "exact", wait=True, group=1)
    worker.query(keys[:4], "exact too", wait=True, group=1)
    asked += 1 + 4
    tiers = server.metrics()
    total = sum(value for series, value in tiers.items() if series.startswith(REQUESTS))
    assert total == asked
    assert server.metric(REQUESTS, tier="ram") + server.metric(REQUESTS, tier="miss") == asked


def test_every_refusal_is_counted_under_its_status(server, simple):
    stub, _ = raw_client.connect(server)
    pb = raw_client.pb

    def refusals():
        return server.metric("pegaflow_rpc_requests_total", method="query_prefetch") - \
            server.metric("pegaflow_rpc_requests_total", method="query_prefetch", status="ok")

    before = refusals()
    raw_client.refusal(stub.QueryPrefetch, pb.QueryRequest(instance_id="nobody", req_id="r"))
    raw_client.refusal(stub.QueryPrefetch, pb.QueryRequest(instance_id="engine"))
    assert refusals() == before + 2


def counters(samples):
    return {series: value for series, value in samples.items()
            if re.search(r"_(total|count|sum|bucket)(\{|$)", series)}


@pytest.mark.slow
def test_an_idle_minute_moves_no_counter_and_loses_no_session(server, simple):
    """8.5 point 4 and user-reports 59: the client pings every 5 s all the while.

    A server that counts ping strikes sends GOAWAY within that time, which ends the session stream
    and with it the instance.
    """
    simple.client.start_session_watcher("engine", "model", 1, 1)
    keys = hashes(2)
    simple.save([0, 1], keys)
    simple.load(simple.query(keys).lease, [6, 7])
    server.metrics()
    before = counters(server.metrics())
    ended = time.monotonic() + 62
    while time.monotonic() < ended:
        time.sleep(1)
        assert server.alive()
    after = counters(server.metrics())
    moved = {series: (before.get(series), value) for series, value in after.items()
             if before.get(series) != value}
    assert not moved, moved
    assert server.instances() == ["engine"]
    assert "too_many_pings" not in server.log.lower()
    assert simple.query(keys).num_hit_blocks == 2
