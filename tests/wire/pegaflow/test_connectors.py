"""PegaFlow's own scheduler and worker connectors, with a reduced vLLM around them (spec 8.4)."""

import os
import pathlib
import subprocess
import sys
from types import SimpleNamespace

import pytest

import vllm_stubs
from engine import hashes
from kvd_server import eventually
from replica import BLOCK, Replica, Request, scheduler_output

VERSION = tuple(int(part) for part in os.environ.get("KVD_CLIENT_VERSION", "0.0").split("."))
KV_SPLIT = (2, 32, BLOCK, 2, 64)
MLA = (32, BLOCK, 576)


@pytest.fixture
def make_replica(monkeypatch):
    monkeypatch.setenv("PEGAFLOW_CROSS_LAYER_BLOCKS", "0")
    for name in ("PEGAFLOW_HOST", "PEGAFLOW_PORT"):
        monkeypatch.delenv(name, raising=False)
    replicas = []

    def make(*arguments, **options):
        replica = Replica(*arguments, **options)
        replicas.append(replica)
        return replica

    yield make
    for replica in replicas:
        replica.close()


def dense(make_replica, server, name="replica", tp=1, pp=1, **options):
    """Two K/V-split layers on each stage, registered."""
    replica = make_replica(server, name, tp=tp, pp=pp, **options)
    for rank in range(tp * pp):
        for layer in range(2):
            replica.tensor(rank, f"model.layers.{layer + 2 * (rank // tp)}.attn", KV_SPLIT)
    replica.register()
    return replica


def block_bytes(tensor, block):
    """The bytes of one block: K then V, or one run."""
    item = tensor.element_size()
    if tensor.shape[0] == 2:
        size = tensor.stride(1) * item
        return b"".join(tensor.host.read(half * tensor.stride(0) * item + block * size, size)
                        for half in range(2))
    size = tensor.stride(0) * item
    return tensor.host.read(block * size, size)


def contents(replica, blocks):
    return [{(name, block): block_bytes(tensor, block) for name, tensor in tensors.items()
             for block in blocks} for tensors in replica.tensors]


def expect_copied(replica, saved, pairs):
    for rank, tensors in enumerate(replica.tensors):
        for name, tensor in tensors.items():
            for source, target in pairs:
                assert block_bytes(tensor, target) == saved[rank][(name, source)], (rank, name)


@pytest.mark.parametrize("tp, pp", [(1, 1), (2, 1), (1, 2), (2, 2)])
def test_a_prompt_is_saved_and_found_again(server, make_replica, tp, pp):
    replica = dense(make_replica, server, tp=tp, pp=pp)
    keys, sources, targets = hashes(4), [1, 2, 3, 4, 5], [11, 12, 13, 14, 15]
    saved = contents(replica, sources)
    replica.save_prompt(Request("first", keys), (sources,))
    request = Request("second", keys)
    assert replica.match(request) == (4 * BLOCK, True)
    replica.load(request, (targets,), 4 * BLOCK)
    expect_copied(replica, saved, zip(sources[:4], targets[:4]))
    replica.prefill(request, (targets,), 4 * BLOCK)
    replica.finish(request, (targets,))


def test_the_last_token_is_always_left_to_compute(server, make_replica):
    replica = dense(make_replica, server)
    keys = hashes(3)
    replica.save_prompt(Request("first", keys, tokens=3 * BLOCK), ([1, 2, 3],))
    request = Request("second", keys, tokens=3 * BLOCK)
    assert replica.match(request) == (3 * BLOCK - 1, True)
    replica.load(request, ([11, 12, 13],), 3 * BLOCK - 1)
    replica.finish(request, ([11, 12, 13],))


def test_a_longer_prompt_loads_the_common_prefix_and_saves_the_rest(server, make_replica):
    replica = dense(make_replica, server)
    keys = hashes(6)
    saved = contents(replica, [1, 2, 11, 12, 13, 14, 15, 16])
    replica.save_prompt(Request("short", keys[:2]), ([1, 2, 3],))
    request, ids = Request("long", keys), ([11, 12, 13, 14, 15, 16, 17],)
    assert replica.match(request) == (2 * BLOCK, True)
    replica.load(request, ids, 2 * BLOCK)
    expect_copied(replica, saved, [(1, 11), (2, 12)])
    replica.prefill(request, ids, 2 * BLOCK)
    replica.finish(request, ids)
    again = Request("again", keys)
    assert replica.match(again) == (6 * BLOCK, True)
    replica.load(again, ([21, 22, 23, 24, 25, 26, 27],), 6 * BLOCK)
    expect_copied(replica, saved, [(1, 21), (2, 22), (13, 23), (14, 24), (15, 25), (16, 26)])
    replica.finish(again, ([21, 22, 23, 24, 25, 26, 27],))


def test_a_second_replica_of_the_model_shares_and_another_model_does_not(server, make_replica):
    first, second = (dense(make_replica, server, name) for name in ("first", "second"))
    other = dense(make_replica, server, "other", model="other")
    keys = hashes(2)
    saved = contents(first, [1, 2])
    first.save_prompt(Request("r", keys), ([1, 2, 3],))
    assert other.match(Request("r", keys)) == (0, False)
    request = Request("r", keys)
    assert second.match(request) == (2 * BLOCK, True)
    second.load(request, ([8, 9, 10],), 2 * BLOCK)
    expect_copied(second, saved, [(1, 8), (2, 9)])
    second.finish(request, ([8, 9, 10],))


def test_a_request_that_ends_before_its_load_gives_its_lease_back(server, make_replica):
    replica = dense(make_replica, server)
    keys = hashes(2)
    replica.save_prompt(Request("first", keys), ([1, 2, 3],))
    request = Request("aborted", keys)
    assert replica.match(request) == (2 * BLOCK, True)
    replica.finish(request, ([],))
    assert server.get_json("/status")["store"]["leases"] == 0


def test_a_server_that_restarts_between_query_and_load_costs_a_recompute_only(
        start_server, make_replica):
    first = start_server()
    replica = dense(make_replica, first)
    keys = hashes(2)
    replica.save_prompt(Request("first", keys), ([1, 2, 3],))
    request = Request("second", keys)
    assert replica.match(request) == (2 * BLOCK, True)
    first.signal()
    first.end_expected = True
    assert first.wait_exit() == 0
    start_server(addr=first.grpc_address)
    replica.load(request, ([11, 12, 13],), 2 * BLOCK)
    assert replica.workers[0].get_block_ids_with_load_errors() == {11, 12}
    replica.workers[0]._worker._registered_layers.clear()


def test_a_full_pool_is_a_shorter_hit_not_an_error(start_server, make_replica):
    replica = dense(make_replica, start_server(pool="4mb"))
    for number in range(60):
        keys = hashes(20, f"prompt {number}")
        replica.save_prompt(Request(f"r{number}", keys), (list(range(1, 22)),))
    request = Request("last", keys)
    tokens, asynchronous = replica.match(request)
    assert 0 < tokens <= 20 * BLOCK and asynchronous
    replica.load(request, (list(range(1, 22)),), tokens)
    replica.finish(request, (list(range(1, 22)),))


def test_mla_replicas_share_the_work_of_saving(server, make_replica):
    """TP 2 collapses to one rank; each worker saves the blocks of its stripe, page first."""
    replica = make_replica(server, "mla", tp=2, mla=True)
    for rank in range(2):
        for layer in range(3):
            replica.tensor(rank, f"model.layers.{layer}.attn", MLA, seed="same on both")
    replica.register()
    keys, sources, targets = hashes(5), [1, 2, 3, 4, 5, 6], [11, 12, 13, 14, 15, 16]
    saved = contents(replica, sources)
    replica.save_prompt(Request("first", keys), (sources,))
    assert server.metric("pegaflow_cache_block_insertions_total") == 5
    request = Request("second", keys)
    assert replica.match(request) == (5 * BLOCK, True)
    replica.load(request, (targets,), 5 * BLOCK)
    expect_copied(replica, saved, zip(sources[:5], targets[:5]))
    replica.finish(request, (targets,))


def test_mla_with_two_kernel_blocks_in_a_scheduler_block(server, make_replica):
    replica = make_replica(server, "mla", mla=True, block=2 * BLOCK)
    tensor = replica.tensor(0, "model.layers.0.attn", MLA)
    replica.register()
    keys = hashes(3)
    saved = tensor.host.read(1 * 2 * BLOCK * 576 * 2, 3 * 2 * BLOCK * 576 * 2)
    replica.save_prompt(Request("first", keys, block=2 * BLOCK), ([1, 2, 3, 4],))
    request = Request("second", keys, block=2 * BLOCK)
    assert replica.match(request) == (3 * 2 * BLOCK, True)
    replica.load(request, ([8, 9, 10, 11],), 3 * 2 * BLOCK)
    assert tensor.host.read(8 * 2 * BLOCK * 576 * 2, len(saved)) == saved
    replica.finish(request, ([8, 9, 10, 11],))


def test_one_cross_layer_tensor(server, make_replica):
    replica = make_replica(server, "cross")
    tensor = replica.tensor(0, "ALL_LAYERS", (32, 2, 2, BLOCK, 64))
    replica.workers[0].register_cross_layers_kv_cache(tensor, None)
    keys = hashes(3)
    saved = contents(replica, [1, 2, 3])
    replica.save_prompt(Request("first", keys), ([1, 2, 3, 4],))
    request = Request("second", keys)
    assert replica.match(request) == (3 * BLOCK, True)
    replica.load(request, ([8, 9, 10, 11],), 3 * BLOCK)
    expect_copied(replica, saved, [(1, 8), (2, 9), (3, 10)])
    replica.finish(request, ([8, 9, 10, 11],))


def test_save_only_mode_never_asks(server, make_replica):
    replica = dense(make_replica, server, options={"pegaflow.mode": "save_only"})
    replica.save_prompt(Request("first", hashes(2)), ([1, 2, 3],))
    assert replica.match(Request("second", hashes(2))) == (0, False)
    assert server.metric("pegaflow_rpc_requests_total", method="query_prefetch") == 0
    assert server.metric("pegaflow_cache_block_insertions_total") == 2


def test_tensor_parallel_shards_on_two_servers(start_server, make_replica):
    servers = [start_server(), start_server()]
    replica = dense(make_replica, servers[0], tp=2, options={
        "pegaflow.tp_shard_endpoints": [server.endpoint for server in servers]})
    keys, sources, targets = hashes(4), [1, 2, 3, 4, 5], [11, 12, 13, 14, 15]
    saved = contents(replica, sources)
    replica.save_prompt(Request("first", keys), (sources,))
    request = Request("second", keys)
    assert replica.match(request) == (4 * BLOCK, True)
    replica.load(request, (targets,), 4 * BLOCK)
    expect_copied(replica, saved, zip(sources[:4], targets[:4]))
    # One shard loses its blocks: the hit is what both have.
    assert servers[1].http("POST", "/cache/memory/cleanup", b"")[0] == 200
    assert replica.match(Request("third", keys)) == (0, False)
    replica.finish(request, (targets,))


def test_shutdown_of_a_replica_removes_its_instance(server, make_replica):
    replica = dense(make_replica, server)
    assert server.instances() == ["replica"]
    for worker in replica.workers:
        worker.unregister_context()
    assert server.instances() == []


# Hybrid models: dense attention beside recurrent state.


def hybrid_cache():
    group = lambda spec, *names: SimpleNamespace(kv_cache_spec=spec, layer_names=list(names))
    return SimpleNamespace(kv_cache_tensors=[], kv_cache_groups=[
        group(vllm_stubs.FullAttentionSpec(BLOCK), "model.layers.0.attn"),
        group(vllm_stubs.MambaSpec(BLOCK), "model.layers.1.mamba")])


class Pool:
    """vLLM's block pool, as far as the connector touches it."""

    def __init__(self, table, blocks=range(32)):
        self.table, self.blocks = table, {block: block for block in blocks}

    def get_cached_block(self, key, groups):
        ids = self.table.get(key)
        return None if ids is None else [SimpleNamespace(block_id=ids[g]) for g in groups]

    def touch(self, blocks):
        self.touched = list(blocks)

    def free_blocks(self, blocks):
        self.freed = list(blocks)


def hybrid(make_replica, server, pool):
    replica = make_replica(server, "hybrid", cache=hybrid_cache())
    replica.tensor(0, "model.layers.0.attn", KV_SPLIT)
    replica.tensor(0, "model.layers.1.mamba", (32, 3000))
    replica.register()
    replica.scheduler.bind_gpu_block_pool(pool)
    return replica


def test_a_hybrid_model_resumes_from_its_checkpoint(server, make_replica):
    """Attention of four blocks, recurrent state after the last: both come back."""
    keys = hashes(4)
    attention, state = [1, 2, 3, 4, 5], [0, 0, 0, 6, 7]
    replica = hybrid(make_replica, server, Pool({keys[3]: (4, 7)}))
    if VERSION >= (0, 25):
        block_state = SimpleNamespace(
            block_ids={}, boundary_state_offloads={"first": [(1, 7, 4 * BLOCK)]})
    else:
        block_state = None
    attn, mamba = replica.tensors[0].values()
    saved = [block_bytes(attn, block) for block in attention[:4]]
    checkpoint = block_bytes(mamba, 7)
    request = Request("first", keys)
    assert replica.match(request) == (0, False)
    replica.prefill(request, (attention, state), block_state=block_state)
    replica.finish(request, (attention, state))
    request = Request("second", keys)
    eventually(lambda: server.metric("pegaflow_cache_resident_blocks") == 5, 60, "five blocks")
    assert replica.match(request) == (4 * BLOCK, True)
    replica.load(request, ([11, 12, 13, 14, 15], [21, 22, 23, 24, 25]), 4 * BLOCK)
    for target, content in zip([11, 12, 13, 14], saved):
        assert block_bytes(attn, target) == content
    assert block_bytes(mamba, 24) == checkpoint
    replica.finish(request, ([11, 12, 13, 14, 15], [21, 22, 23, 24, 25]))


@pytest.mark.skipif(VERSION < (0, 25), reason="this client refuses sliding-window groups")
def test_a_sliding_window_comes_back_with_the_dense_prefix(server, make_replica):
    """Groups of different block sizes: 32 tokens dense, 16 tokens with a window of 40."""
    group = lambda spec, *names: SimpleNamespace(kv_cache_spec=spec, layer_names=list(names))
    cache = SimpleNamespace(kv_cache_tensors=[], kv_cache_groups=[
        group(vllm_stubs.FullAttentionSpec(2 * BLOCK), "model.layers.0.attn"),
        group(vllm_stubs.SlidingWindowSpec(BLOCK, 40), "model.layers.1.attn")])
    replica = make_replica(server, "sliding", cache=cache, block=2 * BLOCK)
    dense_tensor = replica.tensor(0, "model.layers.0.attn", (2, 32, 2 * BLOCK, 2, 64))
    window_tensor = replica.tensor(0, "model.layers.1.attn", (2, 64, BLOCK, 2, 64))
    replica.register()
    replica.scheduler.bind_gpu_block_pool(Pool({}, range(64)))
    keys = hashes(8)
    ids = ([1, 2, 3, 4, 5], list(range(1, 11)))
    saved = [block_bytes(dense_tensor, block) for block in ids[0][:4]]
    window = {block: block_bytes(window_tensor, block) for block in ids[1][:8]}
    replica.save_prompt(Request("first", keys), ids)
    request, targets = Request("second", keys), ([11, 12, 13, 14, 15], list(range(21, 31)))
    assert replica.match(request) == (8 * BLOCK, True)
    before = {block: block_bytes(window_tensor, block) for block in targets[1]}
    replica.load(request, targets, 8 * BLOCK)
    for target, content in zip(targets[0], saved):
        assert block_bytes(dense_tensor, target) == content
    # 39 tokens before the end reach back into the third block from the end.
    for index, target in enumerate(targets[1]):
        wanted = window[index + 1] if 5 <= index < 8 else before[target]
        assert block_bytes(window_tensor, target) == wanted, index
    replica.finish(request, targets)


def test_the_connectors_need_no_module_beyond_the_stubs():
    """The stand-ins stay small: importing them must not pull in a real torch or vLLM."""
    here = pathlib.Path(__file__).resolve().parent
    code = "import replica, sys; assert not getattr(sys.modules['torch'], '__file__', None)"
    subprocess.run([sys.executable, "-c", code], cwd=here, check=True, timeout=120)


def test_a_step_without_requests_sends_nothing(server, make_replica):
    replica = dense(make_replica, server)
    before = server.metric("pegaflow_rpc_requests_total")
    for _ in range(5):
        replica.step(scheduler_output())
    assert server.metric("pegaflow_rpc_requests_total") == before
