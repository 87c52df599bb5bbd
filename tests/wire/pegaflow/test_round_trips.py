"""What is saved comes back byte for byte, whatever the layout and the topology."""

import pytest

from engine import (Place, blocks_first, connect, finish, hashes, kv_fused, kv_split, wait_loaded)

KIB = 1024


def round_trip(worker, block_ids, targets, salt):
    """Saves `block_ids`, finds them, loads them into `targets` of the same memory."""
    keys = hashes(len(block_ids), salt)
    saved = {(name, target): worker.block(name, block)
             for name in worker.layers for block, target in zip(block_ids, targets)}
    worker.save(block_ids, keys)
    assert worker.save_message == ""
    found = worker.query(keys)
    assert found.num_hit_blocks == len(keys)
    assert list(found.hit_positions) == []
    for memory in worker.memories:
        memory.fill("other")
    images = worker.images()
    worker.load(found.lease, targets)
    worker.expect_blocks(images, saved)


LAYOUTS = {
    "kv_split": [kv_split(f"l{i}", 16, 8 * KIB) for i in range(4)],
    "kv_split_with_gap": [kv_split(f"l{i}", 16, 8 * KIB, padding=4 * KIB) for i in range(2)],
    "kv_fused": [kv_fused(f"l{i}", 16, 8 * KIB) for i in range(4)],
    "blocks_first": [blocks_first(f"l{i}", 16, 16 * KIB) for i in range(4)],
    "mla": [blocks_first(f"l{i}", 16, 64 * 576 * 2) for i in range(4)],
    # The scheduler's block is two kernel blocks: the connector registers twice the bytes.
    "mla_two_physical_blocks": [blocks_first(f"l{i}", 8, 2 * 64 * 576 * 2) for i in range(4)],
    "cross_layer": [blocks_first("ALL_LAYERS", 16, 4 * 16 * KIB)],
    "odd_sizes": [blocks_first("a", 16, 1), blocks_first("b", 16, 513), kv_split("c", 16, 777)],
    "mixed_segments": [kv_split("a", 16, 4 * KIB), blocks_first("b", 16, 12 * KIB),
                       kv_fused("c", 16, 2 * KIB)],
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_comes_back_byte_for_byte(client, make_worker, layout):
    worker = make_worker(client, "engine", "model", LAYOUTS[layout]).register()
    round_trip(worker, [1, 2, 3, 6, 4], [0, 7, 5, 2, 1], layout)


@pytest.mark.parametrize("layout", ["mla", "blocks_first", "odd_sizes"])
def test_page_first_storage_comes_back_byte_for_byte(client, make_worker, layout):
    layers = [layer for layer in LAYOUTS[layout] if layer.segments == 1]
    place = Place(page_first=True, backend="kernel")
    worker = make_worker(client, "engine", "model", layers, place).register()
    round_trip(worker, [1, 2, 3, 6, 4], [0, 7, 5, 2, 1], layout)


def test_layers_inside_one_shared_object_keep_apart(client, make_worker):
    layers = [kv_split("a", 8, 4096), blocks_first("b", 8, 1000), kv_split("c", 8, 512)]
    worker = make_worker(client, "engine", "model", layers, shared=True).register()
    round_trip(worker, [0, 1, 2], [5, 6, 7], "shared")


def test_hashes_of_16_to_48_bytes_are_keys(simple):
    for size in (16, 32, 48, 64):
        keys = [(key * 2)[:size] for key in hashes(2, f"size {size}")]
        simple.save([0, 1], keys)
        assert simple.query(keys).num_hit_blocks == 2


def test_a_prefix_ends_at_the_first_block_that_is_missing(simple):
    keys = hashes(6)
    simple.save([0, 1, 3, 4], [keys[0], keys[1], keys[3], keys[4]])
    found = simple.query(keys)
    assert found.num_hit_blocks == 2
    assert simple.query(keys[2:]).num_hit_blocks == 0
    simple.load(found.lease, [6, 7])
    for name in simple.layers:
        assert simple.block(name, 6) == simple.block(name, 0)
        assert simple.block(name, 7) == simple.block(name, 1)


def test_a_block_is_found_as_soon_as_save_returns(simple):
    keys = hashes(400, "soon")
    for index, key in enumerate(keys):
        simple.save([index % 8], [key])
        assert simple.query([key]).num_hit_blocks == 1, f"block {index}"


def test_saving_again_changes_nothing(server, simple):
    keys = hashes(2)
    before = simple.block("layer.0", 0)
    simple.save([0, 1], keys)
    blocks = server.metric("pegaflow_cache_block_insertions_total")
    simple.put_block("layer.0", 0, bytes(len(before)))
    simple.save([0, 1], keys)
    assert server.metric("pegaflow_cache_block_insertions_total") == blocks
    simple.load(simple.query(keys).lease, [6, 7])
    assert simple.block("layer.0", 6) == before


def test_one_layer_may_name_a_hash_twice(simple):
    key = hashes(1)
    simple.save([3, 3, 3], key * 3)
    found = simple.query(key)
    assert found.num_hit_blocks == 1
    simple.load(found.lease, [5])
    assert simple.block("layer.0", 5) == simple.block("layer.0", 3)
    assert simple.query(key * 3).num_hit_blocks == 3


def test_a_block_may_be_loaded_into_several_requests_blocks(simple):
    keys = hashes(2)
    simple.save([0, 1], keys)
    one, two = simple.query(keys, "one"), simple.query(keys, "two")
    wait_loaded(simple.start_load([(one.lease, [[4, 5]]), (two.lease, [[6, 7]])]))
    for source, target in ((0, 4), (1, 5), (0, 6), (1, 7)):
        assert simple.block("layer.1", target) == simple.block("layer.1", source)


def test_targets_left_out_are_left_alone(simple):
    keys = hashes(4)
    saved = simple.block("layer.0", 1), simple.block("layer.1", 1)
    simple.save([0, 1, 2, 3], keys)
    images = simple.images()
    simple.load(simple.query(keys).lease, [None, 7, None, None])
    simple.expect_blocks(images, {("layer.0", 7): saved[0], ("layer.1", 7): saved[1]})


def test_a_load_without_any_target_is_done_at_once(simple):
    keys = hashes(3)
    simple.save([0, 1, 2], keys)
    images = simple.images()
    state = simple.start_load([(simple.query(keys).lease, [[None, None, None]])])
    assert state.get_state() == 1
    assert simple.start_load([]).get_state() == 1
    simple.expect_blocks(images, {})


def test_a_load_may_fill_some_layers_only(simple):
    keys = hashes(1)
    saved = simple.block("layer.1", 2)
    simple.save([2], keys)
    images = simple.images()
    wait_loaded(simple.start_load([(simple.query(keys).lease, [[5]])], [["layer.1"]]))
    simple.expect_blocks(images, {("layer.1", 5): saved})


def test_an_empty_group_is_a_placeholder(simple):
    keys = hashes(1)
    saved = {(name, 5): simple.block(name, 2) for name in simple.layers}
    simple.save([2], keys)
    images = simple.images()
    groups = [[], list(simple.layers), []]
    wait_loaded(simple.start_load([(simple.query(keys).lease, [[None], [5], [None]])], groups))
    simple.expect_blocks(images, saved)


def test_a_save_of_nothing_succeeds(simple):
    simple.save_layers([])
    simple.save_layers([("layer.0", [], []), ("layer.1", [], [])])
    assert simple.query([]).num_hit_blocks == 0
    assert simple.query(hashes(1)).num_hit_blocks == 0


def test_another_engine_of_the_namespace_loads_what_the_first_saved(server, make_worker):
    layers = [kv_split("a", 8, 4096), kv_split("b", 8, 4096)]
    first = make_worker(connect(server), "first", "model", layers, seed=1).register()
    second = make_worker(connect(server), "second", "model", layers, seed=2).register()
    keys = hashes(3)
    first.save([1, 2, 3], keys)
    images = second.images()
    second.load(second.query(keys).lease, [6, 5, 4])
    second.expect_blocks(images, {
        (name, target): first.block(name, source)
        for name in first.layers for source, target in ((1, 6), (2, 5), (3, 4))})


def test_a_late_slot_of_a_block_seals_it(simple):
    keys = hashes(2)
    simple.save([0, 1], keys, layers=["layer.0"])
    assert simple.query(keys).num_hit_blocks == 0
    simple.save([0, 1], keys, layers=["layer.1"])
    found = simple.query(keys)
    assert found.num_hit_blocks == 2
    assert finish(simple.start_load([(found.lease, [[6, 7]])])) == 1
    assert simple.block("layer.0", 7) == simple.block("layer.0", 1)
    assert simple.block("layer.1", 6) == simple.block("layer.1", 0)
