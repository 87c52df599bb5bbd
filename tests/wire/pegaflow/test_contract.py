"""The client's requests, recorded: engine.proto knows every field, and means the same by it."""

import concurrent.futures

import grpc
import pytest

from pegaflow.pegaflow import EngineRpcClient, QueryLoading, QueryReady
from raw_client import pb

REQUESTS = {
    "RegisterContextBatch": pb.RegisterContextRequest, "Save": pb.SaveRequest,
    "Load": pb.LoadRequest, "QueryPrefetch": pb.QueryRequest, "Release": pb.ReleaseRequest,
    "UnregisterContext": pb.UnregisterRequest, "Session": pb.SessionRequest,
    "Health": pb.HealthRequest, "Shutdown": pb.ShutdownRequest}


class Recorder(grpc.GenericRpcHandler):
    """Answers every method with success and keeps what was asked."""

    def __init__(self):
        self.requests, self.ready = [], pb.QueryResponse(ready=pb.QueryReady())

    def service(self, details):
        method = details.method.removeprefix("/pegaflow.Engine/")
        if method == "Session":
            return grpc.unary_stream_rpc_method_handler(
                lambda request, call: self._stream(request, call))
        return grpc.unary_unary_rpc_method_handler(
            lambda request, call: self._answer(method, request))

    def _answer(self, method, request):
        self.requests.append((method, request))
        if method == "QueryPrefetch":
            return self.ready.SerializeToString()
        if method == "Release":
            return b""
        return pb.HealthResponse(status=pb.ResponseStatus(ok=True)).SerializeToString()

    def _stream(self, request, call):
        self.requests.append(("Session", request))
        call.send_initial_metadata(())
        yield from ()


@pytest.fixture
def recorder():
    recorder = Recorder()
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(4), handlers=(recorder,))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    recorder.client = EngineRpcClient(f"http://127.0.0.1:{port}")
    yield recorder
    server.stop(None).wait()


def last(recorder):
    """The last request, decoded; every byte of it must be known to engine.proto."""
    method, raw = recorder.requests[-1]
    decoded = REQUESTS[method].FromString(raw)
    known = REQUESTS[method].FromString(raw)
    known.DiscardUnknownFields()
    assert known.SerializeToString(deterministic=True) == decoded.SerializeToString(
        deterministic=True), f"{method} carries a field that engine.proto lacks"
    return decoded


def test_a_registration(recorder):
    recorder.client.register_context_batch(
        "i", "n", 1, 2, 3, 4, 5, ["a", "b"], [b"w1", b"w2"], [7, 8], [9, 10], [11, 12], [1, 2],
        "kernel", True, [0, 1])
    sent = last(recorder)
    assert sent.client_version
    assert sent == pb.RegisterContextRequest(
        instance_id="i", namespace="n", tp_rank=1, pp_rank=2, tp_size=3, world_size=4,
        device_id=5, layer_names=["a", "b"], wrapper_bytes=[b"w1", b"w2"], num_blocks=[7, 8],
        bytes_per_block=[9, 10], kv_stride_bytes=[11, 12], segments=[1, 2],
        client_version=sent.client_version, transfer_mode=pb.TRANSFER_MODE_KERNEL,
        page_first=True, layer_group_ids=[0, 1])


def test_a_save_and_a_load(recorder):
    recorder.client.save("i", 1, 2, 3, [("a", [1, 2], [b"h1", b"h2"])])
    assert last(recorder) == pb.SaveRequest(
        instance_id="i", tp_rank=1, pp_rank=2, device_id=3,
        saves=[pb.SaveLayer(layer_name="a", block_ids=[1, 2], block_hashes=[b"h1", b"h2"])])
    recorder.client.load("i", 1, 3, "flag", [["a"], []], [(b"l" * 16, [[1, None, 0], []])])
    target = pb.LoadBlockTarget
    assert last(recorder) == pb.LoadRequest(
        instance_id="i", tp_rank=1, device_id=3, load_state_shm="flag",
        groups=[pb.LoadGroup(layer_names=["a"]), pb.LoadGroup()],
        loads=[pb.LeaseLoad(lease=b"l" * 16, block_ids_by_group=[
            pb.LoadBlockIds(targets=[target(block_id=1), target(), target(block_id=0)]),
            pb.LoadBlockIds()])])


def test_a_query_and_its_answers(recorder):
    ask = lambda: recorder.client.query_prefetch("i", [b"x", b"y"], "r", True, 3)
    assert isinstance(ask(), QueryReady)
    assert last(recorder) == pb.QueryRequest(
        instance_id="i", block_hashes=[b"x", b"y"], req_id="r", wait_for_full_prefix=True,
        group_id=3)
    recorder.ready = pb.QueryResponse(loading=pb.QueryLoading())
    assert isinstance(ask(), QueryLoading)
    recorder.ready = pb.QueryResponse(ready=pb.QueryReady(
        num_hit_blocks=2, lease=b"l" * 16, hit_positions=[0, 1]))
    answer = ask()
    assert (answer.num_hit_blocks, bytes(answer.lease), list(answer.hit_positions)) == (
        2, b"l" * 16, [0, 1])


def test_the_small_calls(recorder):
    client = recorder.client
    client.release(b"l" * 16)
    assert last(recorder) == pb.ReleaseRequest(lease=b"l" * 16)
    client.unregister_context("i")
    assert last(recorder) == pb.UnregisterRequest(instance_id="i")
    client.start_session_watcher("i", "n", 2, 3)
    assert last(recorder) == pb.SessionRequest(
        instance_id="i", namespace="n", tp_size=2, world_size=3)
    for call, request in ((client.health, pb.HealthRequest()),
                          (client.shutdown, pb.ShutdownRequest())):
        assert call() == (True, "")
        assert last(recorder) == request
