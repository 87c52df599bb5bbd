"""What a worker may register, and how each refusal reaches Python."""

import re

import pytest

import raw_client
from engine import Place, blocks_first, connect, hashes, kv_split
from host_memory import host_wrapper
from pegaflow.pegaflow import PegaFlowError, PegaflowInternal


@pytest.fixture
def worker(client, make_worker):
    """Not registered yet: two layers of eight blocks, K and V 4 KiB each."""
    return make_worker(client, "engine", "model", [kv_split(n, 8, 4096) for n in ("a", "b")])


def refused(worker, error, match, **changes):
    with pytest.raises(error, match=match) as failure:
        worker.client.register_context_batch(**worker.registration(**changes))
    assert type(failure.value) is error, failure.value


@pytest.mark.parametrize("changes, match", [
    (dict(device_id=-1), "device"),
    (dict(tp_size=0), "tp_size"),
    (dict(world_size=0), "world_size"),
    (dict(tp_rank=1), "tp_rank"),
    (dict(tp_rank=4, tp_size=2), "tp_rank"),
    (dict(layer_group_ids=[0]), "group"),
    (dict(layer_group_ids=[0, 0, 0]), "group"),
    (dict(layer_names=["a", "a"]), "a"),
    (dict(num_blocks_list=[0, 8]), "a"),
    (dict(bytes_per_block_list=[4096, 0]), "b"),
    (dict(segments_list=[0, 2]), "a"),
    (dict(segments_list=[3, 2]), "a"),
    (dict(kv_stride_bytes_list=[0, 32768]), "a"),
    (dict(kv_stride_bytes_list=[4095, 32768]), "a"),
    (dict(kv_stride_bytes_list=[32768, 8192]), "b"),
    (dict(num_blocks_list=[9, 8], kv_stride_bytes_list=[36864, 32768]), "a"),
    (dict(num_blocks_list=[1 << 62, 8]), "a"),
    (dict(bytes_per_block_list=[(1 << 64) - 1, 4096]), "a"),
    (dict(kv_stride_bytes_list=[(1 << 64) - 1, 32768]), "a"),
], ids=lambda value: value if isinstance(value, str) else "+".join(value))
def test_an_impossible_argument_is_a_value_error(worker, changes, match):
    refused(worker, ValueError, match, **changes)
    assert worker.register(), "a refusal leaves nothing behind"


def test_arrays_of_different_lengths_are_an_argument_error(server, worker):
    stub, _ = raw_client.connect(server)
    for field in ("wrapper_bytes", "num_blocks", "bytes_per_block", "kv_stride_bytes", "segments"):
        request = raw_client.registration(worker)
        del getattr(request, field)[-1:]
        code, text = raw_client.refusal(stub.RegisterContextBatch, request)
        assert code.name == "INVALID_ARGUMENT" and text, field
    empty = raw_client.pb.RegisterContextRequest(
        instance_id="engine", namespace="model", tp_size=1, world_size=1)
    assert raw_client.refusal(stub.RegisterContextBatch, empty)[0].name == "INVALID_ARGUMENT"
    assert server.instances() == []


@pytest.mark.parametrize("version", ["", "0.0.1", "0.23.12", "99.1", "x" * 1000])
def test_every_client_version_is_served(server, worker, version):
    stub, _ = raw_client.connect(server)
    request = raw_client.registration(worker, client_version=version)
    assert stub.RegisterContextBatch(request, timeout=60).status.ok
    worker.save([0], hashes(1))
    assert worker.query(hashes(1)).num_hit_blocks == 1


@pytest.mark.parametrize("mode", [0, 1, 7])
def test_every_transfer_mode_is_served(server, worker, mode):
    stub, _ = raw_client.connect(server)
    request = raw_client.registration(worker, transfer_mode=mode)
    assert stub.RegisterContextBatch(request, timeout=60).status.ok


def test_unknown_fields_are_skipped(server, worker):
    """0.24 and later may send fields that this release does not know."""
    stub, channel = raw_client.connect(server)
    encoded = raw_client.registration(worker).SerializeToString()
    encoded += bytes([0xA2, 0x06, 3]) + b"new" + bytes([0xA8, 0x06, 1])  # fields 100 and 101
    call = channel.unary_unary("/pegaflow.Engine/RegisterContextBatch")
    assert raw_client.pb.RegisterContextResponse.FromString(call(encoded, timeout=60)).status.ok


def test_a_device_registers_once(worker):
    worker.register()
    refused(worker, ValueError, "already")


def test_a_sealed_instance_takes_no_further_device(worker, client, make_worker):
    worker.register()
    late = make_worker(client, "engine", "model", worker.layers.values(), Place(device=1))
    refused(late, ValueError, "already")
    worker.save([0], hashes(1))
    assert worker.query(hashes(1)).num_hit_blocks == 1


def test_after_unregister_the_instance_may_come_again(server, worker):
    worker.register()
    worker.save([0], hashes(1))
    assert worker.client.unregister_context("engine") == (True, "")
    assert server.instances() == []
    with pytest.raises(PegaFlowError, match="engine") as failure:
        worker.client.unregister_context("engine")
    assert type(failure.value) is PegaFlowError
    worker.register()
    found = worker.query(hashes(1))
    assert found.num_hit_blocks == 1, "blocks outlive their instance"
    worker.load(found.lease, [7])
    assert worker.block("a", 7) == worker.block("a", 0)


@pytest.mark.parametrize("changes", [
    dict(tp_size=3), dict(world_size=3), dict(page_first=True)], ids=lambda c: "+".join(c))
def test_a_worker_of_another_topology_is_refused(client, make_worker, changes):
    layers = [blocks_first("a", 8, 4096)]
    make_worker(client, "engine", "model", layers, Place(tp_size=2, world=2)).register()
    second = make_worker(client, "engine", "model", layers,
                         Place(device=1, tp_rank=1, tp_size=2, world=2))
    refused(second, PegaFlowError, "topology", **changes)
    second.register()


def test_a_layer_of_another_shape_than_on_the_first_device_is_refused(client, make_worker):
    place = Place(tp_size=2, world=2)
    make_worker(client, "engine", "model", [kv_split("a", 8, 4096)], place).register()
    for shape in (kv_split("a", 8, 2048), blocks_first("a", 8, 4096),
                  kv_split("a", 8, 4096, group=1)):
        second = make_worker(client, "engine", "model", [shape],
                             Place(device=1, tp_rank=1, tp_size=2, world=2))
        with pytest.raises((ValueError, PegaFlowError), match="a"):
            second.register()


def test_a_rank_without_a_layer_is_refused(client, make_worker):
    place = Place(tp_size=2, world=2)
    make_worker(client, "engine", "model", [kv_split(n, 8, 4096) for n in "ab"], place).register()
    second = make_worker(client, "engine", "model", [kv_split("a", 8, 4096)],
                         Place(device=1, tp_rank=1, tp_size=2, world=2))
    with pytest.raises((ValueError, PegaFlowError), match="b"):
        second.register()


def test_group_numbers_leave_no_gap(worker):
    with pytest.raises((ValueError, PegaFlowError), match="group"):
        worker.register(layer_group_ids=[0, 2])


def test_page_first_storage_takes_one_group_only(client, make_worker):
    layers = [blocks_first("a", 8, 4096), blocks_first("b", 8, 4096, group=1)]
    worker = make_worker(client, "engine", "model", layers, Place(page_first=True))
    with pytest.raises((ValueError, PegaFlowError), match="page"):
        worker.register()


def test_a_refused_first_worker_leaves_no_instance(server, worker):
    """PegaFlow keeps an empty instance in this case (9.2, 13)."""
    refused(worker, ValueError, "tp_rank", tp_rank=1)
    with pytest.raises((ValueError, PegaFlowError)):
        worker.register(wrapper_bytes_list=[host_wrapper("no-such-object", 0, 65536)] * 2)
    assert server.instances() == []
    worker.register()
    assert server.instances() == ["engine"]


# Memory that cannot be opened.


@pytest.mark.parametrize("name, offset, size", [
    ("kvd-wire-no-such-object", 0, 65536), ("../etc/passwd", 0, 65536), ("a/b", 0, 65536),
    ("", 0, 65536), ("x" * 4000, 0, 65536), ("nul\0byte", 0, 65536)])
def test_memory_that_does_not_exist_is_refused(server, worker, name, offset, size):
    with pytest.raises((ValueError, PegaflowInternal)):
        worker.register(wrapper_bytes_list=[host_wrapper(name, offset, size)] * 2)
    assert server.alive() and server.instances() == []


@pytest.mark.parametrize("offset, size", [
    (1, 65536), (0, 65537), (65536, 65536), (1 << 63, 65536), ((1 << 64) - 1, 2), (0, 0),
    (0, 65535), (0, (1 << 64) - 1)])
def test_memory_outside_its_object_is_refused(server, worker, offset, size):
    wrapper = host_wrapper(worker.memories[0].name, offset, size)
    with pytest.raises((ValueError, PegaflowInternal)):
        worker.register(wrapper_bytes_list=[wrapper, worker.tensors["b"].wrapper()])
    assert server.alive() and server.instances() == []


def test_the_name_of_a_memory_may_start_with_a_slash(worker):
    wrappers = [host_wrapper("/" + memory.name, 0, memory.size) for memory in worker.memories]
    worker.register(wrapper_bytes_list=wrappers)
    worker.save([0], hashes(1))
    worker.load(worker.query(hashes(1)).lease, [7])
    assert worker.block("a", 7) == worker.block("a", 0)


# Saves that cannot be.


@pytest.mark.parametrize("changes, error, match", [
    (dict(instance_id="nobody"), PegaFlowError, "nobody"),
    (dict(device_id=3), PegaFlowError, "3"),
    (dict(device_id=-1), ValueError, "device"),
    (dict(saves=[("zzz", [0], hashes(1))]), ValueError, "zzz"),
    (dict(saves=[("a", [0, 1], hashes(1))]), ValueError, "a"),
    (dict(saves=[("a", [8], hashes(1))]), ValueError, "8"),
    (dict(saves=[("a", [(1 << 32) - 1], hashes(1))]), ValueError, "4294967295"),
    (dict(saves=[("a", [0], [b"h" * 5000])]), ValueError, "hash"),
    (dict(saves=[("a", [0], [b""])]), ValueError, "hash"),
])
def test_an_impossible_save_is_refused(server, worker, changes, error, match):
    worker.register()
    arguments = dict(instance_id="engine", tp_rank=0, pp_rank=0, device_id=0, saves=[])
    arguments.update(changes)
    with pytest.raises(error, match=match) as failure:
        worker.client.save(**arguments)
    assert type(failure.value) is error
    assert server.alive()


@pytest.mark.parametrize("changes", [dict(tp_rank=1), dict(pp_rank=1)], ids=lambda c: "+".join(c))
def test_a_save_under_another_rank_than_registered_is_refused(worker, changes):
    worker.register()
    arguments = dict(instance_id="engine", tp_rank=0, pp_rank=0, device_id=0,
                     saves=[("a", [0], hashes(1))])
    arguments.update(changes)
    with pytest.raises((ValueError, PegaFlowError)):
        worker.client.save(**arguments)


def test_a_page_is_not_found_before_every_layer_of_it_is_saved(client, make_worker):
    """PegaFlow refuses such saves; kvd may keep what they bring, but never shows half a page."""
    layers = [blocks_first(name, 8, 4096) for name in ("a", "b")]
    worker = make_worker(client, "engine", "model", layers, Place(page_first=True)).register()
    keys = hashes(2)
    for saves in ([("a", [0], keys[:1])], [("b", [1], keys[1:])]):
        try:
            worker.save_layers(saves)
        except ValueError as refusal:
            assert re.search("layer|page", str(refusal)), refusal
        assert worker.query(keys).num_hit_blocks == 0
        assert worker.query(keys[1:]).num_hit_blocks == 0
    worker.save([0, 1], keys)
    found = worker.query(keys)
    assert found.num_hit_blocks == 2
    worker.load(found.lease, [6, 7])
    for name in worker.layers:
        for source, target in ((0, 6), (1, 7)):
            assert worker.block(name, target) == worker.block(name, source)


def test_a_query_without_a_request_id_is_an_argument_error(worker):
    worker.register()
    with pytest.raises(ValueError, match="req_id"):
        worker.client.query_prefetch("engine", hashes(1), req_id="")


def test_an_unknown_instance_is_an_error_for_every_call(server, client):
    """user-reports 2: an answer, not a hang."""
    for call in (lambda: client.query_prefetch("nobody", hashes(1), req_id="r"),
                 lambda: client.unregister_context("nobody"),
                 lambda: client.save("nobody", 0, 0, 0, [("a", [0], hashes(1))])):
        with pytest.raises(PegaFlowError, match="nobody") as failure:
            call()
        assert type(failure.value) is PegaFlowError


def test_two_instances_keep_their_own_memory(server, make_worker):
    layers = [kv_split("a", 8, 4096)]
    one = make_worker(connect(server), "one", "model", layers).register()
    two = make_worker(connect(server), "two", "model", layers).register()
    assert sorted(server.instances()) == ["one", "two"]
    images = two.images()
    one.save([0], hashes(1))
    one.load(one.query(hashes(1)).lease, [3])
    two.expect_blocks(images, {})
