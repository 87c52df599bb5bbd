"""Several servers and their metaservers on hosts of their own: what one saved, another loads."""

import os
import signal
import time

import pytest

from engine import blocks_first, connect, hashes, kv_split, query
from fleet import Fleet
from kvd_server import eventually

KIB = 1024
BLOCKS = 32
LAYERS = [kv_split("a", 2 * BLOCKS, 16 * KIB), blocks_first("b", 2 * BLOCKS, 32 * KIB)]
# A directory is complete again within ten seconds. On a machine that does ten other things it may
# take several times that: KVD_FLEET_PATIENCE=1 holds it to its word.
PATIENCE = int(os.environ.get("KVD_FLEET_PATIENCE", "6"))
MEND_SECONDS = 10 * PATIENCE
STALE_SECONDS = 10


@pytest.fixture
def fleet():
    made = Fleet()
    yield made
    made.close()


@pytest.fixture
def three(fleet):
    """A metaserver and three servers."""
    meta = fleet.metaserver(fleet.host(), "--node-stale-secs", str(STALE_SECONDS))
    servers = [fleet.server(fleet.host(), [meta]) for _ in range(3)]
    for each in servers:
        announced(each)
    return meta, servers


def announced(server, blocks=0):
    """Its metaservers know all its blocks."""
    def done():
        sharing = server.get_json("/status")["sharing"]
        return (sharing["announced_blocks"] == blocks and
                all(each["up"] and each["queued"] == 0 for each in sharing["metaservers"]))
    eventually(done, MEND_SECONDS + 20, f"the announcement of {blocks} blocks")


def entries(meta):
    return meta.metric("pegaflow_metaserver_block_owners")


def worker_at(make_worker, server, name, layers=None):
    return make_worker(connect(server), name, "model", layers or LAYERS, seed=name).register()


def contents(worker, blocks):
    return [{name: worker.block(name, block) for name in worker.layers} for block in blocks]


def check_load(worker, keys, expected, hits=None):
    """Loads what is found, compares every byte, and says how many blocks that were."""
    found = worker.query(keys, req_id=f"check {time.monotonic()}")
    if hits is not None:
        assert found.num_hit_blocks == hits
    if found.num_hit_blocks == 0:
        return 0
    targets = list(range(BLOCKS, BLOCKS + found.num_hit_blocks))
    worker.load(found.lease, targets)
    assert contents(worker, targets) == expected[:found.num_hit_blocks]
    return found.num_hit_blocks


def test_a_block_saved_on_one_host_is_loaded_on_another(three, make_worker):
    meta, (a, b, c) = three
    saver = worker_at(make_worker, a, "saver")
    keys = hashes(BLOCKS, "fleet")
    saver.save(range(BLOCKS), keys)
    expected = contents(saver, range(BLOCKS))
    announced(a, BLOCKS)
    loader = worker_at(make_worker, b, "loader")
    check_load(loader, keys, expected, BLOCKS)
    assert b.metric("pegaflow_rdma_fetch_total_total", status="ok") > 0
    assert b.metric("pegaflow_cache_tier_block_requests_total", tier="rdma") == BLOCKS
    eventually(lambda: a.metric("pegaflow_transfer_lock_active") == 0, MEND_SECONDS,
               "the end of the locks")
    # What came from a peer is announced too: the third host may take it from either.
    announced(b, BLOCKS)
    eventually(lambda: entries(meta) == 2 * BLOCKS, MEND_SECONDS,
               "the announcement of both copies")
    assert a.stop() == 0
    third = worker_at(make_worker, c, "third")
    check_load(third, keys, expected, BLOCKS)


def test_a_prefix_that_lies_on_several_hosts_is_put_together(three, make_worker):
    _, (a, b, c) = three
    keys = hashes(BLOCKS, "parts")
    first, second = worker_at(make_worker, a, "first"), worker_at(make_worker, b, "second")
    first.save(range(0, 20), keys[:20])
    second.save(range(20, BLOCKS), keys[20:])
    expected = contents(first, range(20)) + contents(second, range(20, BLOCKS))
    announced(a, 20)
    announced(b, BLOCKS - 20)
    check_load(worker_at(make_worker, c, "loader"), keys, expected, BLOCKS)


def test_other_namespaces_and_layouts_are_not_found(three, make_worker):
    _, (a, b, _) = three
    keys = hashes(4, "apart")
    worker_at(make_worker, a, "saver").save(range(4), keys)
    announced(a, 4)
    stranger = make_worker(connect(b), "stranger", "another model", LAYERS).register()
    assert stranger.query(keys).num_hit_blocks == 0
    other = worker_at(make_worker, b, "other layout", [blocks_first("a", 8, 8 * KIB)])
    assert other.query(keys).num_hit_blocks == 0
    assert b.metric("pegaflow_rdma_fetch_bytes_total") == 0


def test_pegaflows_own_metaserver_serves_our_servers(fleet, make_worker):
    host = fleet.host()
    meta = fleet.pegaflow_metaserver(host)
    a, b = fleet.server(fleet.host(), [meta]), fleet.server(fleet.host(), [meta])
    saver = worker_at(make_worker, a, "saver")
    keys = hashes(BLOCKS, "theirs")
    saver.save(range(BLOCKS), keys)
    expected = contents(saver, range(BLOCKS))
    announced(a, BLOCKS)
    announced(b)
    loader = worker_at(make_worker, b, "loader")
    check_load(loader, keys[:8], expected, 8)
    meta.kill()
    meta.wait()
    eventually(lambda: not a.get_json("/status")["sharing"]["metaservers"][0]["up"], MEND_SECONDS,
               "the loss of the metaserver")
    fleet.pegaflow_metaserver(host)
    announced(a, BLOCKS)
    announced(b, 8)
    eventually(lambda: check_load(loader, keys, expected) == BLOCKS, MEND_SECONDS,
               "the return of the blocks")


def test_a_fleet_speaks_ipv6(make_worker):
    fleet = Fleet(ipv6=True)
    try:
        meta = fleet.metaserver(fleet.host())
        a, b = fleet.server(fleet.host(), [meta]), fleet.server(fleet.host(), [meta])
        saver = worker_at(make_worker, a, "saver")
        keys = hashes(BLOCKS, "six")
        saver.save(range(BLOCKS), keys)
        expected = contents(saver, range(BLOCKS))
        announced(a, BLOCKS)
        announced(b)
        check_load(worker_at(make_worker, b, "loader"), keys, expected, BLOCKS)
    finally:
        fleet.close()


def test_a_server_starts_and_serves_without_its_metaserver(fleet, make_worker):
    class Nowhere:
        grpc_address = "192.0.2.1:50056"  # a network that is not there

    a = fleet.server(fleet.host(), [Nowhere])
    eventually(lambda: a.http("GET", "/ready")[0] == 200, 30, "readiness")
    worker = worker_at(make_worker, a, "alone")
    worker.save(range(4), hashes(4))
    assert worker.query(hashes(6)).num_hit_blocks == 4
    sharing = a.get_json("/status")["sharing"]
    assert not sharing["metaservers"][0]["up"]
    assert sharing["metaservers"][0]["trouble"]
    assert a.stop() == 0


def test_a_metaserver_behind_a_cut_link_is_found_again_within_seconds(fleet, make_worker):
    meta = fleet.metaserver(fleet.host(), "--node-stale-secs", str(STALE_SECONDS))
    a, b = fleet.server(fleet.host(), [meta]), fleet.server(fleet.host(), [meta])
    announced(a)
    announced(b)
    meta.host.cut()
    saver = worker_at(make_worker, a, "saver")
    keys = hashes(BLOCKS, "behind")
    saver.save(range(BLOCKS), keys)
    expected = contents(saver, range(BLOCKS))
    loader = worker_at(make_worker, b, "loader")
    assert loader.query(keys, req_id="cut").num_hit_blocks == 0
    eventually(lambda: not a.get_json("/status")["sharing"]["metaservers"][0]["up"],
               MEND_SECONDS, "the loss of the metaserver")
    meta.host.join()
    announced(a, BLOCKS)
    announced(b)
    eventually(lambda: entries(meta) == BLOCKS, MEND_SECONDS, "the announcement")
    check_load(loader, keys, expected, BLOCKS)


def test_a_farewell_takes_a_node_out_at_once(three, make_worker):
    meta, (a, b, _) = three
    worker_at(make_worker, a, "saver").save(range(4), hashes(4))
    announced(a, 4)
    eventually(lambda: entries(meta) == 4, MEND_SECONDS, "the announcement")
    assert a.stop() == 0
    nodes = [meta.metric("pegaflow_metaserver_nodes", state=state) for state in ("active", "stale")]
    assert nodes == [2, 0]
    eventually(lambda: entries(meta) == 0, MEND_SECONDS, "the end of its blocks")
    assert worker_at(make_worker, b, "loader").query(hashes(4)).num_hit_blocks == 0


def test_a_metaserver_that_is_killed_is_complete_again_within_ten_seconds(fleet, make_worker):
    host = fleet.host()
    meta = fleet.metaserver(host)
    a, b = fleet.server(fleet.host(), [meta]), fleet.server(fleet.host(), [meta])
    saver = worker_at(make_worker, a, "saver")
    keys = hashes(BLOCKS, "restart")
    saver.save(range(BLOCKS), keys)
    expected = contents(saver, range(BLOCKS))
    announced(a, BLOCKS)
    meta.kill()
    loader = worker_at(make_worker, b, "loader")
    assert loader.query(keys, req_id="without").num_hit_blocks == 0
    again = fleet.metaserver(host)
    eventually(lambda: entries(again) == BLOCKS, MEND_SECONDS, "the directory's recovery")
    eventually(lambda: b.get_json("/status")["sharing"]["metaservers"][0]["up"], MEND_SECONDS,
               "the other server's return")
    check_load(loader, keys, expected, BLOCKS)


def test_a_second_metaserver_serves_when_the_first_is_dead(fleet, make_worker):
    metas = [fleet.metaserver(fleet.host()) for _ in range(2)]
    a, b = fleet.server(fleet.host(), metas), fleet.server(fleet.host(), metas)
    saver = worker_at(make_worker, a, "saver")
    keys = hashes(BLOCKS, "two")
    saver.save(range(BLOCKS), keys)
    expected = contents(saver, range(BLOCKS))
    announced(a, BLOCKS)
    announced(b)
    metas[0].kill()
    check_load(worker_at(make_worker, b, "loader"), keys, expected, BLOCKS)


@pytest.mark.parametrize("how", ["cut", "stop", "kill"])
def test_a_node_that_is_gone_costs_a_deadline_and_then_nothing(three, make_worker, how):
    meta, (a, b, c) = three
    keys = hashes(BLOCKS, how)
    saver = worker_at(make_worker, a, "saver")
    saver.save(range(BLOCKS), keys)
    expected = contents(saver, range(BLOCKS))
    announced(a, BLOCKS)
    loader = worker_at(make_worker, b, "loader")
    check_load(loader, keys[:2], expected, 2)
    {"cut": a.host.cut, "stop": lambda: a.signal(signal.SIGSTOP), "kill": a.kill}[how]()
    begun = time.monotonic()
    # Not a byte of it can be had; the answer is what is here, and comes.
    assert loader.query(keys, req_id="gone").num_hit_blocks == 2
    assert time.monotonic() - begun < 30 * PATIENCE
    eventually(lambda: meta.metric("pegaflow_metaserver_nodes", state="active") == 2,
               STALE_SECONDS + MEND_SECONDS, "the end of the node")
    fresh = worker_at(make_worker, c, "fresh")
    assert fresh.query(keys[2:], req_id="after").num_hit_blocks == 0
    assert c.metric("pegaflow_rdma_fetch_total_total", status="error") == 0
    if how == "kill":
        return
    {"cut": a.host.join, "stop": lambda: a.signal(signal.SIGCONT)}[how]()
    eventually(lambda: meta.metric("pegaflow_metaserver_nodes", state="active") == 3,
               STALE_SECONDS + MEND_SECONDS, "the return of the node")
    eventually(lambda: check_load(loader, keys, expected) == BLOCKS, 60, "the return of its blocks")


def test_a_holder_killed_in_the_middle_of_a_transfer_leaves_no_wrong_byte(fleet, make_worker):
    """KVD_FLEET_MB: how much is transferred; 4096 in a closing run."""
    megabytes = int(os.environ.get("KVD_FLEET_MB", "256"))
    block = 2 * 1024 * KIB
    count = megabytes // 2
    layers = [blocks_first("big", count, block)]
    meta = fleet.metaserver(fleet.host(), "--node-stale-secs", str(STALE_SECONDS))
    pool = f"{megabytes + 256}mb"
    b = fleet.server(fleet.host(), [meta], pool=pool)
    loader = worker_at(make_worker, b, "loader", layers)
    for attempt in range(3):
        keys = hashes(count, f"big {attempt}")
        a = fleet.server(fleet.host(), [meta], pool=pool)
        saver = worker_at(make_worker, a, f"saver {attempt}", layers)
        saver.save(range(count), keys)
        announced(a, count)
        before = b.metric("kvd_peer_read_bytes_total")
        client = loader.client
        client.query_prefetch("loader", keys, req_id=f"big {attempt}", wait_for_full_prefix=False,
                              group_id=0)
        eventually(lambda: b.metric("kvd_peer_read_bytes_total") > before + attempt * block,
                   MEND_SECONDS, "the start of the transfer")
        a.kill()
        begun = time.monotonic()
        found = query(client, "loader", keys, f"big {attempt}")
        assert time.monotonic() - begun < 60 * PATIENCE
        if found.num_hit_blocks:
            loader.load(found.lease, range(found.num_hit_blocks))
            for i in range(found.num_hit_blocks):
                assert loader.block("big", i) == saver.block("big", i)
        saver.close()
    assert b.get_json("/status")["store"]["pinned_bytes"] == 0
