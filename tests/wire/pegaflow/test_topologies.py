"""Blocks made of several workers' parts, and of several cache groups."""

import pytest

from engine import Place, blocks_first, connect, hashes, kv_split, query, wait_loaded
from pegaflow.pegaflow import PegaflowInternal

BLOCKS = 8


def attention(names, segment=4096):
    return [kv_split(name, BLOCKS, segment) for name in names]


def make_all(client, make_worker, shapes, instance="engine", namespace="model"):
    """One registered worker for each (layers, place)."""
    workers = [make_worker(client, instance, namespace, layers, place) for layers, place in shapes]
    for worker in workers:
        worker.register()
    return workers


def sources(worker, pairs):
    """{(layer, target): bytes of the source block} for (source, target) pairs."""
    return {(name, target): worker.block(name, source)
            for name in worker.layers for source, target in pairs}


def load_everywhere(workers, lease, targets, contents):
    """Every worker loads its own part with the one lease, and nothing else changes."""
    images = [worker.images() for worker in workers]
    states = [worker.start_load([(lease, [targets])]) for worker in workers]
    for state in states:
        wait_loaded(state)
    for worker, image, content in zip(workers, images, contents):
        worker.expect_blocks(image, content)


def test_tensor_parallel_ranks_each_get_their_own_part(client, make_worker):
    layers = attention(["a", "b"])
    workers = make_all(client, make_worker, [
        (layers, Place(device=0, tp_rank=0, tp_size=2, world=2)),
        (layers, Place(device=1, tp_rank=1, tp_size=2, world=2))])
    keys = hashes(3)
    contents = [sources(worker, [(0, 5), (1, 6), (2, 7)]) for worker in workers]
    workers[0].save([0, 1, 2], keys)
    assert workers[0].query(keys).num_hit_blocks == 0, "half a block is no block"
    workers[1].save([0, 1, 2], keys)
    found = workers[0].query(keys)
    assert found.num_hit_blocks == 3
    load_everywhere(workers, found.lease, [5, 6, 7], contents)


def test_pipeline_stages_fill_a_block_together(client, make_worker):
    workers = make_all(client, make_worker, [
        (attention(["l0", "l1"]), Place(device=0, pp_rank=0, world=2)),
        (attention(["l2", "l3", "l4"], 8192), Place(device=1, pp_rank=1, world=2))])
    keys = hashes(2)
    contents = [sources(worker, [(3, 0), (4, 1)]) for worker in workers]
    workers[1].save([3, 4], keys)
    assert workers[0].query(keys).num_hit_blocks == 0
    workers[0].save([3, 4], keys)
    found = workers[1].query(keys)
    assert found.num_hit_blocks == 2
    load_everywhere(workers, found.lease, [0, 1], contents)


def test_tensor_and_pipeline_parallel_together(client, make_worker):
    stages = [attention(["l0", "l1"]), attention(["l2"])]
    workers = make_all(client, make_worker, [
        (stages[pp], Place(device=2 * pp + tp, tp_rank=tp, tp_size=2, pp_rank=pp, world=4))
        for pp in range(2) for tp in range(2)])
    keys = hashes(2)
    contents = [sources(worker, [(1, 6), (2, 7)]) for worker in workers]
    for worker in workers:
        worker.save([1, 2], keys)
    found = workers[0].query(keys)
    assert found.num_hit_blocks == 2
    load_everywhere(workers, found.lease, [6, 7], contents)


def test_pipeline_cross_layer_tensors(client, make_worker):
    workers = make_all(client, make_worker, [
        ([blocks_first(f"ALL_LAYERS_pp{pp}", BLOCKS, 16384 * (pp + 1))],
         Place(device=pp, pp_rank=pp, world=2)) for pp in range(2)])
    keys = hashes(2)
    contents = [sources(worker, [(1, 6), (2, 7)]) for worker in workers]
    for worker in workers:
        worker.save([1, 2], keys)
    load_everywhere(workers, workers[0].query(keys).lease, [6, 7], contents)


def test_page_first_replicas_write_their_stripes_into_one_set(client, make_worker):
    """MLA at TP 2: both devices hold the same KV, each saves the blocks id % 2 == rank."""
    layers = [blocks_first(f"l{i}", BLOCKS, 9216) for i in range(3)]
    workers = make_all(client, make_worker, [
        (layers, Place(device=rank, world=2, page_first=True, backend="kernel"))
        for rank in range(2)])
    for name in workers[0].layers:
        for block in range(BLOCKS):
            workers[1].put_block(name, block, workers[0].block(name, block))
    keys = hashes(4)
    contents = [sources(workers[0], [(0, 4), (1, 5), (2, 6), (3, 7)])] * 2
    workers[0].save([0, 2], [keys[0], keys[2]])
    assert workers[0].query(keys).num_hit_blocks == 1
    workers[1].save([1, 3], [keys[1], keys[3]])
    found = workers[0].query(keys)
    assert found.num_hit_blocks == 4
    load_everywhere(workers, found.lease, [4, 5, 6, 7], contents)


def test_page_first_layer_shards_join_to_one_block(client, make_worker):
    """MLA with the layers split over ranks: each device registers other layers."""
    workers = make_all(client, make_worker, [
        ([blocks_first(f"l{2 * rank + i}", BLOCKS, 4096 * (i + 1)) for i in range(2)],
         Place(device=rank, world=2, page_first=True, backend="kernel")) for rank in range(2)])
    keys = hashes(2)
    contents = [sources(worker, [(0, 6), (1, 7)]) for worker in workers]
    workers[0].save([0, 1], keys)
    assert workers[0].query(keys).num_hit_blocks == 0
    workers[1].save([0, 1], keys)
    found = workers[0].query(keys)
    assert found.num_hit_blocks == 2
    load_everywhere(workers, found.lease, [6, 7], contents)


def test_layer_first_replicas_need_one_writer_only(client, make_worker):
    layers = [blocks_first(f"l{i}", BLOCKS, 4096) for i in range(2)]
    workers = make_all(client, make_worker, [
        (layers, Place(device=rank, world=2)) for rank in range(2)])
    keys = hashes(2)
    contents = [sources(workers[1], [(2, 5), (3, 6)])] * 2
    workers[1].save([2, 3], keys)
    found = workers[0].query(keys)
    assert found.num_hit_blocks == 2
    load_everywhere(workers, found.lease, [5, 6], contents)


# Hybrid models: attention in group 0, recurrent state in groups 1 and 2.


def hybrid(client, make_worker, instance="engine"):
    layers = attention(["attn.0", "attn.1"])
    layers += [blocks_first("mamba.0", BLOCKS, 20000, group=1)]
    layers += [blocks_first("mamba.1", BLOCKS + 4, 700, group=2)]
    return make_worker(client, instance, "hybrid", layers).register()


def save_hybrid(worker, keys, checkpoints):
    """Attention of every block; recurrent state only at the checkpoints."""
    ids = list(range(len(keys)))
    saves = [(name, ids, keys) for name in ("attn.0", "attn.1")]
    states = [keys[i] for i in checkpoints]
    saves += [(name, checkpoints, states) for name in ("mamba.0", "mamba.1")]
    worker.save_layers(saves)


def test_membership_of_a_recurrent_group_names_positions(client, make_worker):
    worker = hybrid(client, make_worker)
    keys = hashes(6)
    save_hybrid(worker, keys, [1, 3])
    assert worker.query(keys).num_hit_blocks == 6
    for group in (1, 2):
        found = worker.query(keys, f"request:g{group}", group=group)
        assert list(found.hit_positions) == [1, 3]
        assert found.num_hit_blocks == 2 and len(found.lease) == 16
    missing = worker.query(hashes(3, "other"), "none:g1", group=1)
    assert (missing.num_hit_blocks, list(missing.hit_positions), missing.lease) == (0, [], b"")


def test_a_hybrid_load_takes_attention_and_one_checkpoint(client, make_worker):
    worker = hybrid(client, make_worker)
    keys = hashes(4)
    save_hybrid(worker, keys, [1, 3])
    contents = {(name, target): worker.block(name, source) for name in ("attn.0", "attn.1")
                for source, target in ((0, 4), (1, 5), (2, 6), (3, 7))}
    contents[("mamba.0", 6)] = worker.block("mamba.0", 3)
    contents[("mamba.1", 11)] = worker.block("mamba.1", 3)
    prefix = worker.query(keys)
    states = {group: worker.query(keys, f"request:g{group}", group=group) for group in (1, 2)}
    images = worker.images()
    none = [None] * 4
    wait_loaded(worker.start_load(
        [(prefix.lease, [[4, 5, 6, 7], none, none]),
         (states[1].lease, [[None, None], [None, 6], [None, None]]),
         (states[2].lease, [[None, None], [None, None], [None, 11]])],
        [["attn.0", "attn.1"], ["mamba.0"], ["mamba.1"]]))
    worker.expect_blocks(images, contents)


def test_two_connector_groups_of_one_storage_group_share_a_lease(client, make_worker):
    worker = hybrid(client, make_worker)
    keys = hashes(2)
    save_hybrid(worker, keys, [1])
    contents = {("attn.0", 5): worker.block("attn.0", 0), ("attn.1", 7): worker.block("attn.1", 1)}
    images = worker.images()
    wait_loaded(worker.start_load(
        [(worker.query(keys).lease, [[5, None], [None, 7]])], [["attn.0"], ["attn.1"]]))
    worker.expect_blocks(images, contents)


def test_an_exact_set_is_leased_whole_or_not_at_all(client, make_worker):
    worker = hybrid(client, make_worker)
    keys = hashes(4)
    save_hybrid(worker, keys, [0, 1, 3])
    whole = worker.query(keys[:2], "whole:g1", wait=True, group=1)
    assert whole.num_hit_blocks == 2 and list(whole.hit_positions) == [0, 1]
    assert len(whole.lease) == 16
    partial = worker.query(keys, "partial:g1", wait=True, group=1)
    assert partial.num_hit_blocks < 4 and partial.lease == b""


def test_a_group_zero_hash_is_not_a_member_of_another_group(client, make_worker):
    worker = hybrid(client, make_worker)
    keys = hashes(2)
    worker.save_layers([(name, [0, 1], keys) for name in ("attn.0", "attn.1")])
    assert worker.query(keys).num_hit_blocks == 2
    assert worker.query(keys, group=1).num_hit_blocks == 0
    worker.save_layers([("mamba.0", [2], keys[:1])])
    assert list(worker.query(keys, group=1).hit_positions) == [0]
    assert worker.query(keys, group=2).num_hit_blocks == 0


def test_a_group_that_does_not_exist_is_refused(client, make_worker):
    worker = hybrid(client, make_worker)
    with pytest.raises(ValueError, match="group"):
        worker.query(hashes(1), group=3)


def test_groups_and_tensor_parallel_ranks_together(client, make_worker):
    layers = [*attention(["attn"]), blocks_first("mamba", BLOCKS, 5000, group=1)]
    workers = make_all(client, make_worker, [
        (layers, Place(device=rank, tp_rank=rank, tp_size=2, world=2)) for rank in range(2)])
    keys = hashes(3)
    expected = []
    for worker in workers:
        worker.save_layers([("attn", [0, 1, 2], keys), ("mamba", [2], keys[2:])])
        expected.append({**{("attn", 5 + i): worker.block("attn", i) for i in range(3)},
                         ("mamba", 7): worker.block("mamba", 2)})
    prefix, state = workers[0].query(keys), workers[0].query(keys, "g1", group=1)
    assert prefix.num_hit_blocks == 3 and list(state.hit_positions) == [2]
    for worker, contents in zip(workers, expected):
        images = worker.images()
        wait_loaded(worker.start_load(
            [(prefix.lease, [[5, 6, 7], [None] * 3]), (state.lease, [[None], [7]])],
            [["attn"], ["mamba"]]))
        worker.expect_blocks(images, contents)


# Before and after the last worker registers.


def test_before_the_last_worker_only_prefix_queries_are_answered(server, client, make_worker):
    layers = attention(["a"])
    shapes = [(layers, Place(device=rank, tp_rank=rank, tp_size=2, world=2)) for rank in range(2)]
    first = make_worker(client, "engine", "model", *shapes[0]).register()
    keys = hashes(1)
    assert first.query(keys).num_hit_blocks == 0
    for refused in (lambda: first.save([0], keys), lambda: first.query(keys, group=1),
                    lambda: first.start_load([])):
        with pytest.raises(ValueError, match="1/2"):
            refused()
    second = make_worker(client, "engine", "model", *shapes[1]).register()
    first.save([0], keys)
    second.save([0], keys)
    assert first.query(keys).num_hit_blocks == 1


def test_a_load_of_one_group_refuses_layers_of_two(client, make_worker):
    worker = hybrid(client, make_worker)
    keys = hashes(2)
    save_hybrid(worker, keys, [1])
    with pytest.raises(ValueError):
        worker.start_load([(worker.query(keys).lease, [[5, 6]])], [["attn.0", "mamba.0"]])


def test_workers_of_one_instance_may_come_over_different_connections(server, make_worker):
    layers = attention(["a", "b"])
    workers = [make_worker(connect(server), "engine", "model", layers,
                           Place(device=rank, tp_rank=rank, tp_size=2, world=2)).register()
               for rank in range(2)]
    keys = hashes(2)
    contents = [sources(worker, [(0, 6), (1, 7)]) for worker in workers]
    for worker in workers:
        worker.save([0, 1], keys)
    found = query(connect(server), "engine", keys)
    assert found.num_hit_blocks == 2
    load_everywhere(workers, found.lease, [6, 7], contents)
    with pytest.raises(PegaflowInternal, match="unknown or expired"):
        workers[0].start_load([(found.lease, [[6, 7]])])
