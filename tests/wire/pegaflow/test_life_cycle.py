"""Start, stop, restart: no client's state may stop a server from ending well."""

import re
import signal
import socket
import subprocess
import threading

import pytest

import raw_client
from engine import connect, hashes, kv_split
from kvd_server import BINARY, ENVIRONMENT, KvdServer, eventually
from pegaflow.pegaflow import EngineRpcClient, PegaFlowError, QueryReady

DRAIN_SECONDS = 60


def end(server, seconds=DRAIN_SECONDS):
    """Waits for an exit that the test asked for."""
    server.end_expected = True
    return server.wait_exit(seconds)


def test_health_is_a_pair(server, client):
    assert client.health() == (True, "")
    assert client.endpoint() == server.endpoint


def test_nothing_listening_is_an_error_of_the_constructor():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(PegaFlowError):
        EngineRpcClient(f"http://127.0.0.1:{port}")


def test_shutdown_is_answered_and_then_obeyed(server, client, simple):
    simple.save([0], hashes(1))
    assert client.shutdown() == (True, "")
    assert end(server) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda n: n.name)
def test_a_signal_ends_the_server_with_status_0(server, simple, number):
    simple.save([0], hashes(1))
    server.signal(number)
    assert end(server) == 0


def test_an_open_session_does_not_hold_up_the_end(server, client, simple):
    client.start_session_watcher("engine", "model", 1, 1)
    server.signal(signal.SIGTERM)
    assert end(server) == 0


def test_a_second_signal_ends_the_server_at_once(server, client, simple):
    client.start_session_watcher("engine", "model", 1, 1)
    server.signal(signal.SIGTERM)
    server.signal(signal.SIGTERM)
    end(server, 20)


def test_leases_and_clients_at_work_do_not_hold_up_the_end(server, simple):
    keys = hashes(4)
    simple.save([0, 1, 2, 3], keys)
    simple.query(keys)
    stop = threading.Event()

    def work():
        while not stop.is_set():
            try:
                simple.save([4], hashes(1, "more"))
                simple.query(keys)
            except (PegaFlowError, ValueError, AssertionError):
                return

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    server.signal(signal.SIGTERM)
    status = end(server)
    stop.set()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive(), "a call to a server that ended must return"
    assert status == 0


def test_a_stopped_server_is_a_miss_for_queries_and_an_error_for_the_rest(server, simple):
    """The client alone turns UNAVAILABLE into QueryReady(0), for query_prefetch only."""
    keys = hashes(1)
    simple.save([0], keys)
    server.signal(signal.SIGTERM)
    assert end(server) == 0
    found = simple.client.query_prefetch("engine", keys, req_id="r")
    assert isinstance(found, QueryReady)
    assert (found.num_hit_blocks, found.lease) == (0, b"")
    for call in (simple.client.health, lambda: simple.save([0], keys),
                 lambda: simple.client.release(b"x" * 16)):
        with pytest.raises(PegaFlowError):
            call()


def test_after_a_restart_the_engine_registers_and_saves_again(start_server, make_worker):
    """user-reports 1: a restart within one health interval, on the same port."""
    first = start_server()
    worker = make_worker(connect(first), "engine", "model", [kv_split("a", 8, 4096)]).register()
    keys = hashes(2)
    worker.save([0, 1], keys)
    first.signal(signal.SIGTERM)
    assert end(first) == 0
    second = start_server(addr=first.grpc_address)
    with pytest.raises(PegaFlowError, match="engine"):
        worker.save([0, 1], keys)
    with pytest.raises(PegaFlowError, match="engine"):
        worker.query(keys)
    worker.register()
    assert worker.query(keys).num_hit_blocks == 0
    worker.save([0, 1], keys)
    worker.load(worker.query(keys).lease, [6, 7])
    assert worker.block("a", 7) == worker.block("a", 1)
    assert second.instances() == ["engine"]


def test_a_restart_can_be_told_from_a_long_life(start_server):
    """user-reports 1: /status carries an id that is new at every start."""
    first, second = start_server(), start_server()
    assert first.get_json("/status")["boot_id"] != second.get_json("/status")["boot_id"]
    assert first.get_json("/status")["boot_id"] == first.get_json("/status")["boot_id"]


def test_a_killed_server_leaves_no_client_hanging(server, simple):
    server.kill()
    server.end_expected = True

    def answer():
        try:
            return simple.client.query_prefetch("engine", hashes(1), req_id="r")
        except PegaFlowError:  # it was sent on the connection that was closing just then
            return None

    assert eventually(answer, 60, "an answer without a server").num_hit_blocks == 0
    with pytest.raises(PegaFlowError):
        simple.save([0], hashes(1))


@pytest.mark.parametrize("option", ["addr", "http"])
def test_a_port_in_use_is_named_before_the_pool_is_claimed(server, option):
    """user-reports 55."""
    taken = {"addr": server.grpc_address, "http": server.http_address}[option]
    second = KvdServer(**{option: taken})
    status = second.wait_exit(60)
    assert status == 1, second.log
    assert taken in second.log
    assert re.search("in use|another server", second.log, re.I), second.log
    assert server.alive()


def test_port_0_prints_the_ports_that_were_given(start_server):
    servers = [start_server() for _ in range(3)]
    ports = {address.rsplit(":", 1)[1] for s in servers
             for address in (s.grpc_address, s.http_address)}
    assert len(ports) == 6 and "0" not in ports


@pytest.mark.parametrize("flags", [
    ["--pool-size", "-5"], ["--pool-size", "0"], ["--pool-size", "lots"],
    ["--lease-ttl-secs", "0"], ["--no-such-flag"], ["--addr", "nonsense"]])
def test_a_flag_that_makes_no_sense_ends_with_status_2(flags):
    done = subprocess.run([BINARY, "server", "--addr", "127.0.0.1:0", "--http-addr",
                           "127.0.0.1:0", *flags],
                          env=ENVIRONMENT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert flags[0].lstrip("-") in done.stderr + done.stdout


def test_calls_for_peers_say_that_none_is_configured(server):
    stub, _ = raw_client.connect(server)
    pb = raw_client.pb
    for call, request in (
            (stub.QueryBlocksForTransfer, pb.QueryBlocksForTransferRequest(namespace="n")),
            (stub.RdmaHandshake, pb.RdmaHandshakeRequest(requester_id="peer"))):
        code, text = raw_client.refusal(call, request)
        assert code.name == "FAILED_PRECONDITION" and "configured" in text
    answer = stub.ReleaseTransferLock(
        pb.ReleaseTransferLockRequest(transfer_session_id="none"), timeout=60)
    assert answer.status.ok and answer.released_blocks == 0


def test_every_answer_carries_a_status(server, simple):
    stub, _ = raw_client.connect(server)
    pb = raw_client.pb
    assert stub.Health(pb.HealthRequest(), timeout=60).status.ok
    assert stub.Save(pb.SaveRequest(instance_id="engine"), timeout=60).status.ok
    ready = stub.QueryPrefetch(pb.QueryRequest(instance_id="engine", req_id="r"), timeout=60)
    assert ready.WhichOneof("outcome") == "ready" and ready.ready.lease == b""
    assert stub.UnregisterContext(pb.UnregisterRequest(instance_id="engine"), timeout=60).status.ok
    assert stub.Shutdown(pb.ShutdownRequest(), timeout=60).status.ok
    assert end(server) == 0
