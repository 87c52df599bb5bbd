"""Reports of users of such systems, by number (README.md), each as a behaviour of kvd."""

import threading

import pytest

import raw_client
from engine import Place, blocks_first, connect, hashes, kv_fused, kv_split, query
from pegaflow.pegaflow import PegaFlowError


def test_06_a_batch_over_the_usual_4_mib_is_served(client, make_worker):
    layers = [blocks_first(f"layer.{i}", 8, 64) for i in range(40)]
    worker = make_worker(client, "engine", "model", layers).register()
    count = 4000
    keys = [index.to_bytes(32, "little") for index in range(count)]
    worker.save([index % 8 for index in range(count)], keys)
    assert worker.query(keys).num_hit_blocks == count


SHAPES = {
    "segment size": [kv_split("a", 8, 2048), kv_split("b", 8, 4096)],
    "one segment": [blocks_first("a", 8, 8192), kv_split("b", 8, 4096)],
    "layer count": [kv_split("a", 8, 4096)],
    "more layers": [kv_split(name, 8, 4096) for name in "abc"],
    "layer names": [kv_split("a", 8, 4096), kv_split("z", 8, 4096)],
    "groups": [kv_split("a", 8, 4096), kv_split("b", 8, 4096, group=1)],
}


@pytest.mark.parametrize("shape", SHAPES)
def test_22_blocks_of_another_layout_are_a_miss_never_a_copy(server, make_worker, shape):
    """PegaFlow compares slot counts only and reads past the end (9.2, 3)."""
    first = make_worker(connect(server), "first", "model",
                        [kv_split("a", 8, 4096), kv_split("b", 8, 4096)]).register()
    second = make_worker(connect(server), "second", "model", SHAPES[shape]).register()
    keys = hashes(3)
    first.save([0, 1, 2], keys)
    images = second.images()
    found = second.query(keys)
    assert (found.num_hit_blocks, found.lease) == (0, b"")
    second.expect_blocks(images, {})
    # Both keep their own blocks under the same hashes.
    second.save([3, 4, 5], keys)
    assert first.query(keys).num_hit_blocks == 3
    assert second.query(keys).num_hit_blocks == 3


def test_22_the_number_of_blocks_is_no_part_of_the_layout(server, make_worker):
    small = make_worker(connect(server), "small", "model", [kv_split("a", 8, 4096)]).register()
    large = make_worker(connect(server), "large", "model",
                        [kv_split("a", 64, 4096, padding=512)]).register()
    small.save([0, 1], hashes(2))
    found = large.query(hashes(2))
    assert found.num_hit_blocks == 2
    large.load(found.lease, [60, 61])
    assert large.block("a", 61) == small.block("a", 1)


def test_22_fused_and_split_memory_never_mix_up_their_bytes(server, make_worker):
    split = make_worker(connect(server), "split", "model", [kv_split("a", 8, 4096)]).register()
    fused = make_worker(connect(server), "fused", "model", [kv_fused("a", 8, 4096)]).register()
    split.save([0], hashes(1))
    found = fused.query(hashes(1))
    if found.num_hit_blocks:
        fused.load(found.lease, [5])
        assert fused.block("a", 5) == split.block("a", 0)


def test_24_a_hit_is_what_a_load_delivers(start_server, make_worker):
    server = start_server(pool="4mb")
    worker = make_worker(connect(server), "engine", "model",
                         [kv_split("a", 512, 16 * 1024)]).register()
    keys = hashes(256)
    worker.save(list(range(256)), keys)
    found = worker.query(keys)
    hits = found.num_hit_blocks
    assert 0 <= hits <= 128, "the pool holds 128 blocks at most"
    if hits:
        worker.load(found.lease, [256 + i for i in range(hits)])
        for index in range(hits):
            assert worker.block("a", 256 + index) == worker.block("a", index)


def test_25_64_threads_saving_one_hash_store_one_block(server, make_worker):
    layers = [kv_split("a", 64, 4096), kv_split("b", 64, 4096)]
    worker = make_worker(connect(server), "engine", "model", layers).register()
    clients = [connect(server) for _ in range(8)]
    key, gate, failures = hashes(1), threading.Barrier(64), []
    for block in range(64):
        for name in worker.layers:
            worker.put_block(name, block, worker.block(name, 0))

    def save(block):
        gate.wait()
        try:
            clients[block % 8].save("engine", 0, 0, 0, [(n, [block], key) for n in worker.layers])
        except Exception as failure:
            failures.append(failure)

    threads = [threading.Thread(target=save, args=(block,)) for block in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert server.metric("pegaflow_cache_block_insertions_total") == 1
    assert server.metric("pegaflow_cache_resident_blocks") == 1
    found = worker.query(key)
    worker.load(found.lease, [9])
    assert worker.block("a", 9) == worker.block("a", 0)


def test_25_the_same_block_from_two_engines_is_stored_once(server, make_worker):
    layers = [kv_split("a", 8, 4096)]
    workers = [make_worker(connect(server), f"e{i}", "model", layers).register() for i in range(2)]
    keys = hashes(4)
    for worker in workers:
        worker.save([0, 1, 2, 3], keys)
    assert server.metric("pegaflow_cache_block_insertions_total") == 4
    assert server.metric("pegaflow_cache_resident_bytes") == 4 * 8192


def test_28_a_block_of_no_bytes_cannot_be_registered(client, make_worker):
    worker = make_worker(client, "engine", "model", [blocks_first("a", 8, 4096)])
    with pytest.raises(ValueError, match="a"):
        worker.register(bytes_per_block_list=[0])


def test_28_a_client_killed_while_saving_leaves_no_block_without_its_bytes(server, make_worker):
    """Saves whose memory goes away half-way either store all of a block or nothing of it."""
    layers = [kv_split("a", 64, 16 * 1024)]
    reader = make_worker(connect(server), "reader", "model", layers).register()
    for life in range(5):
        client = connect(server)
        watcher = connect(server)
        watcher.start_session_watcher("writer", "model", 1, 1)
        writer = make_worker(client, "writer", "model", layers, seed=life).register()
        keys = hashes(32, f"life {life}")

        def save():
            try:
                writer.save(list(range(32)), keys)
            except (PegaFlowError, ValueError):
                pass

        thread = threading.Thread(target=save)
        thread.start()
        del watcher
        thread.join()
        found = reader.query(keys, f"life {life}")
        if found.num_hit_blocks:
            reader.load(found.lease, list(range(found.num_hit_blocks)))
            for index in range(found.num_hit_blocks):
                assert reader.block("a", index) == writer.block("a", index)
        while "writer" in server.instances():
            pass


def test_29_ten_thousand_probes_pin_nothing(start_server, make_worker):
    server = start_server(pool="8mb")
    worker = make_worker(connect(server), "engine", "model",
                         [kv_split("a", 64, 16 * 1024)]).register()
    keys = hashes(32)
    worker.save(list(range(32)), keys)
    absent = hashes(4, "absent")
    for number in range(10_000):
        found = worker.client.query_prefetch("engine", absent, req_id=f"p{number}")
        assert (found.num_hit_blocks, found.lease) == (0, b"")
    evicted = server.metric("pegaflow_cache_block_evictions_total")
    for number in range(16):
        fill = hashes(32, f"fill {number}")
        worker.save(list(range(32)), fill)
        found = worker.query(fill, f"f{number}")
        assert found.num_hit_blocks == 32
        worker.client.release(found.lease)
    assert server.metric("pegaflow_cache_block_evictions_total") > evicted


def test_29_a_query_pins_only_the_prefix_that_it_returned(start_server, make_worker):
    server = start_server(pool="4mb")
    worker = make_worker(connect(server), "engine", "model",
                         [kv_split("a", 64, 16 * 1024)]).register()
    keys = hashes(32)
    worker.save(list(range(32)), keys)
    held = worker.query(keys[:4], "held")
    assert held.num_hit_blocks == 4
    for number in range(16):
        worker.save(list(range(32, 64)), hashes(32, f"fill {number}"))
    assert worker.query(keys, "again").num_hit_blocks >= 4
    assert worker.query(keys[8:], "rest").num_hit_blocks == 0


def test_32_the_same_hash_in_another_namespace_is_a_miss(server, make_worker):
    layers = [kv_split("a", 8, 4096)]
    names = ["model", "model:lora", "model:salt", "Model", "model ", "model\0x"]
    workers = [make_worker(connect(server), f"e{i}", name, layers).register()
               for i, name in enumerate(names)]
    keys = hashes(2)
    for index, worker in enumerate(workers):
        assert worker.query(keys).num_hit_blocks == 0, names[index]
        worker.save([index, index + 1], keys)
    for index, worker in enumerate(workers):
        found = worker.query(keys)
        worker.load(found.lease, [7, None])
        assert worker.block("a", 7) == worker.block("a", index)


def test_35_blocks_of_another_tensor_parallel_size_are_a_miss(server, make_worker):
    layers = [kv_split("a", 8, 4096)]
    one = make_worker(connect(server), "one", "model", layers).register()
    two = [make_worker(connect(server), "two", "model", layers,
                       Place(device=rank, tp_rank=rank, tp_size=2, world=2)) for rank in range(2)]
    for worker in two:
        worker.register()
    keys = hashes(2)
    one.save([0, 1], keys)
    assert two[0].query(keys).num_hit_blocks == 0
    for worker in two:
        worker.save([2, 3], keys)
    assert two[0].query(keys).num_hit_blocks == 2
    found = one.query(keys)
    one.load(found.lease, [6, 7])
    assert one.block("a", 6) == one.block("a", 0)


def test_35_replicas_of_an_mla_model_store_each_block_once(server, make_worker):
    layers = [blocks_first("a", 8, 4096)]
    workers = [make_worker(connect(server), "engine", "model", layers,
                           Place(device=rank, world=2)) for rank in range(2)]
    for worker in workers:
        worker.register()
    keys = hashes(3)
    for worker in workers:
        worker.save([0, 1, 2], keys)
    assert server.metric("pegaflow_cache_resident_bytes") == 3 * 4096


def test_02_an_unknown_instance_is_answered_while_others_work(server, simple):
    for number in range(200):
        with pytest.raises(PegaFlowError, match="nobody"):
            query(simple.client, "nobody", hashes(1), f"r{number}")
    stub, _ = raw_client.connect(server)
    code, text = raw_client.refusal(
        stub.QueryPrefetch, raw_client.pb.QueryRequest(instance_id="nobody", req_id="r"),
        timeout=5)
    assert code.name == "FAILED_PRECONDITION" and "nobody" in text
