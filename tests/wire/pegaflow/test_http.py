"""The admin port: the shapes that PegaFlow's tools expect, and refusals for everything else."""

import json
import socket

import pytest

from engine import connect, hashes, kv_split
from kvd_server import eventually
from pegaflow.pegaflow import PegaFlowError


def test_health_is_the_text_ok(server):
    def healthy():
        status, body, _ = server.http("GET", "/health")
        assert status == 200
        return body.strip() == "ok"

    eventually(healthy, 30, "a claimed pool")  # "starting 42 %" before
    _, _, headers = server.http("GET", "/health")
    assert headers["Content-Type"].startswith("text/plain")


def test_instances_are_listed_by_name(server, simple, make_worker):
    assert server.get_json("/instances") == {"instances": ["engine"]}
    make_worker(connect(server), "second", "model", [kv_split("a", 4, 512)]).register()
    assert sorted(server.get_json("/instances")["instances"]) == ["engine", "second"]


def post(server, path):
    status, body, _ = server.http("POST", path, b"")
    assert status == 200, body
    return json.loads(body)


def test_cleanup_of_all_instances(server, simple, make_worker):
    make_worker(connect(server), "second", "model", [kv_split("a", 4, 512)]).register()
    keys = hashes(1)
    simple.save([0], keys)
    answer = post(server, "/instances/cleanup")
    assert sorted(answer["removed_instances"]) == ["engine", "second"]
    assert answer["removed_tensors"] == 3
    assert server.instances() == []
    with pytest.raises(PegaFlowError, match="engine"):
        simple.query(keys)
    simple.register()
    assert simple.query(keys).num_hit_blocks == 1
    assert post(server, "/instances/cleanup")["removed_instances"] == ["engine"]
    assert post(server, "/instances/cleanup") == {"removed_instances": [], "removed_tensors": 0}


def test_cleanup_of_one_instance(server, simple, make_worker):
    make_worker(connect(server), "a b&c", "model", [kv_split("a", 4, 512)]).register()
    answer = post(server, "/instances/cleanup?id=a%20b%26c")
    assert answer == {"removed_instances": ["a b&c"], "removed_tensors": 1}
    assert server.instances() == ["engine"]
    status, body, _ = server.http("POST", "/instances/cleanup?id=nobody", b"")
    assert status == 404 and "nobody" in body and "not found" in body
    assert server.instances() == ["engine"]


def test_cleanup_of_the_memory(server, simple):
    keys = hashes(4)
    simple.save([0, 1, 2, 3], keys)
    held = simple.query(keys[:1]).lease
    answer = post(server, "/cache/memory/cleanup")
    assert answer["evicted_blocks"] == 4
    assert answer["evicted_bytes"] == 4 * 2 * 8192
    assert answer["still_referenced_blocks"] in (0, 1)
    assert answer["reclaimed_bytes"] <= answer["evicted_bytes"]
    assert simple.query(keys).num_hit_blocks == 0
    try:
        simple.load(held, [7])
        assert simple.block("layer.0", 7) == simple.block("layer.0", 0)
    except PegaFlowError as ended:
        assert "unknown or expired" in str(ended)
    simple.save([0, 1, 2, 3], keys)
    assert simple.query(keys).num_hit_blocks == 4
    empty = post(server, "/cache/memory/cleanup")
    assert empty["evicted_blocks"] == 4
    assert post(server, "/cache/memory/cleanup")["evicted_blocks"] == 0


@pytest.mark.parametrize("method, path, allowed", [
    ("POST", "/health", "GET"), ("DELETE", "/metrics", "GET"), ("PUT", "/instances", "GET"),
    ("GET", "/instances/cleanup", "POST"), ("GET", "/cache/memory/cleanup", "POST")])
def test_the_wrong_method_is_refused_with_the_right_one(server, simple, method, path, allowed):
    status, _, headers = server.http(method, path, b"" if method != "GET" else None)
    assert status == 405 and allowed in headers["Allow"]
    assert server.instances() == ["engine"]


@pytest.mark.parametrize("path", ["/", "/nothing", "/healthz2", "/instances/", "/metrics/x",
                                  "/%00", "/" + "x" * 4000])
def test_an_unknown_path_is_not_found(server, path):
    assert server.http("GET", path)[0] == 404


def test_ready_status_and_config_answer(server, simple):
    eventually(lambda: server.http("GET", "/ready")[0] == 200, 180, "readiness")
    status = server.get_json("/status")
    assert isinstance(status, dict) and status
    config = server.get_json("/config")
    assert "64" in json.dumps(config) or str(64 << 20) in json.dumps(config)


def test_the_openapi_document_lists_every_endpoint(server):
    document = server.get_json("/openapi.json")
    assert document["openapi"].startswith("3.")
    for path in ("/health", "/metrics", "/instances", "/instances/cleanup",
                 "/cache/memory/cleanup", "/ready", "/status", "/config", "/openapi.json"):
        assert path in document["paths"], path
    for path, operations in document["paths"].items():
        for method in operations:
            if method == "get":
                assert server.http("GET", path)[0] in (200, 503), path


def send(server, raw):
    """The first line of the answer to raw bytes; '' when the server just closes."""
    host, port = server.http_address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(raw)
        return connection.recv(4096).decode("latin1").split("\r\n")[0]


@pytest.mark.parametrize("raw, statuses", [
    (b"nonsense\r\n\r\n", ["400"]),
    (b"GET / HTTP/9.9\r\n\r\n", ["400", "505"]),
    (b"GET /health HTTP/1.1\r\nContent-Length: -1\r\n\r\n", ["400"]),
    (b"POST /instances/cleanup HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", ["400", "413"]),
    (b"GET /health HTTP/1.1\r\n" + b"X: " + b"y" * 100000 + b"\r\n\r\n", ["400", "431"]),
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 64 + b"\r\n\r\n", ["400"]),
], ids=["nonsense", "version", "length", "body", "header", "tls"])
def test_malformed_requests_are_answered_and_harmless(server, raw, statuses):
    """user-reports 57."""
    try:
        answer = send(server, raw)
    except ConnectionError:
        answer = ""
    assert answer == "" or answer.split()[1] in statuses, answer
    assert server.http("GET", "/health")[0] == 200


def test_a_body_over_the_limit_is_refused(server, simple):
    try:
        status, _, _ = server.http("POST", "/instances/cleanup", b"x" * (1 << 20))
        assert status == 413
    except OSError:
        pass  # closed while the client was still sending
    assert server.instances() == ["engine"]


def test_half_a_request_does_not_hold_up_the_others(server):
    host, port = server.http_address.rsplit(":", 1)
    idle = [socket.create_connection((host, int(port))) for _ in range(50)]
    for connection in idle:
        connection.sendall(b"GET /heal")
    assert server.http("GET", "/health")[0] == 200
    for connection in idle:
        connection.close()
