"""Messages at and over every limit: an answer, and a server that lives."""

import random

import pytest

import raw_client
from engine import blocks_first, connect, hashes
from pegaflow.pegaflow import PegaFlowError, QueryReady

MIB = 1 << 20
HASHES_PER_QUERY = 1 << 20


def test_a_query_just_under_64_mib_is_answered(simple):
    """A million hashes of 48 bytes are 50 MiB on the wire; a long request id makes it 63."""
    keys = [index.to_bytes(48, "little") for index in range(HASHES_PER_QUERY)]
    simple.save([0], keys[:1])
    found = simple.client.query_prefetch("engine", keys, req_id="r" * (13 * MIB))
    assert isinstance(found, QueryReady) and found.num_hit_blocks == 1


@pytest.mark.parametrize("mib", [65, 100])
def test_a_message_over_64_mib_is_a_clean_error(server, simple, mib):
    """user-reports 6; the client refuses some by itself, so the second client sends it too."""
    keys = [bytes(60)] * (mib * MIB // 62 + 1)
    with pytest.raises(PegaFlowError):
        simple.client.query_prefetch("engine", keys, req_id="too large")
    stub, _ = raw_client.connect(server)
    request = raw_client.pb.QueryRequest(instance_id="engine", req_id="r", block_hashes=keys)
    code, _ = raw_client.refusal(stub.QueryPrefetch, request)
    assert code.name in ("RESOURCE_EXHAUSTED", "OUT_OF_RANGE")
    simple.save([0], hashes(1))
    assert simple.query(hashes(1)).num_hit_blocks == 1


def test_a_save_of_10_mib_of_hashes_is_served(client, make_worker):
    """user-reports 6: 4 MiB is the default limit of most gRPC stacks."""
    count = 250_000
    worker = make_worker(client, "engine", "model", [blocks_first("a", 16, 8)]).register()
    keys = [index.to_bytes(48, "little") for index in range(count)]
    worker.save([index % 16 for index in range(count)], keys)
    assert worker.query(keys[:1]).num_hit_blocks == 1


def test_more_hashes_than_a_query_may_have_is_an_argument_error(server, simple):
    with pytest.raises(ValueError, match=str(HASHES_PER_QUERY)):
        simple.client.query_prefetch("engine", [b"h"] * (HASHES_PER_QUERY + 1), req_id="r")
    assert server.alive()


@pytest.mark.parametrize("field", ["instance_id", "namespace"])
def test_a_name_that_is_too_long_is_an_argument_error(server, simple, field):
    with pytest.raises(ValueError, match=field.replace("_", ".")):
        simple.register(**{"device_id": 5, field: "x" * 100_000})
    assert server.instances() == ["engine"]


def test_an_instance_name_may_hold_any_text(server, make_worker):
    for name in ("a/b", "ünïcödé", "x\ny", '"quoted"\\', "a" * 512, "%s%n"):
        worker = make_worker(connect(server), name, "model", [blocks_first("a", 4, 64)]).register()
        assert name in server.instances()
        worker.save([0], hashes(1, name))
        assert worker.query(hashes(1, name)).num_hit_blocks == 1
        assert worker.client.unregister_context(name) == (True, "")


def test_an_empty_instance_name_is_an_argument_error(server, simple):
    with pytest.raises(ValueError):
        simple.register(instance_id="", device_id=5)
    with pytest.raises((ValueError, PegaFlowError)):
        simple.client.query_prefetch("", hashes(1), req_id="r")


def test_instances_have_a_bound_that_is_named(server, make_worker):
    client = connect(server)
    worker = make_worker(client, "i", "model", [blocks_first("a", 4, 64)])
    with pytest.raises((ValueError, PegaFlowError), match="1024"):
        for index in range(1100):
            worker.register(instance_id=f"i{index}")
    assert client.unregister_context("i0") == (True, "")
    worker.register(instance_id="fresh")


def test_random_bytes_as_messages_do_no_harm(server, simple):
    """user-reports 57: every method gets noise, and noise behind a valid start."""
    _, channel = raw_client.connect(server)
    source, pb = random.Random(57), raw_client.pb
    starts = [b"", pb.SaveRequest(instance_id="engine").SerializeToString(),
              pb.QueryRequest(instance_id="engine", req_id="r").SerializeToString()]
    for method in ("RegisterContextBatch", "Save", "Load", "QueryPrefetch", "Release",
                   "UnregisterContext", "QueryBlocksForTransfer", "ReleaseTransferLock",
                   "RdmaHandshake", "Health", "NoSuchMethod"):
        call = channel.unary_unary(f"/pegaflow.Engine/{method}")
        for _ in range(60):
            noise = source.choice(starts) + source.randbytes(source.choice([0, 1, 7, 60, 900]))
            try:
                call(noise, timeout=30)
            except raw_client.grpc.RpcError as error:
                assert error.code().name not in ("UNAVAILABLE", "DEADLINE_EXCEEDED"), method
    assert server.alive() and connect(server).health() == (True, "")


def test_an_unknown_service_is_unimplemented(server):
    _, channel = raw_client.connect(server)
    for path in ("/pegaflow.Engine/Nothing", "/pegaflow.Nothing/Health"):
        code, _ = raw_client.refusal(channel.unary_unary(path), b"")
        assert code.name == "UNIMPLEMENTED"
