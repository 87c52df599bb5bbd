"""Fixtures: servers that must end well, and engines whose memory is given back."""

import os

import pytest

import engine
from kvd_server import BINARY, KvdServer, eventually


def pytest_configure(config):
    config.addinivalue_line("markers", "slow: takes a minute or more; runs all the same")


def pytest_sessionstart(session):
    if not BINARY or not os.access(BINARY, os.X_OK):
        pytest.exit(f"KVD_BINARY does not name an executable: {BINARY!r}", returncode=2)
    import pegaflow.pegaflow as native
    wanted = os.environ.get("KVD_CLIENT_VERSION")
    if wanted and native.__version__ != wanted:
        pytest.exit(f"the client is {native.__version__}, not {wanted}", returncode=2)


@pytest.fixture
def start_server():
    """Starts servers; those still alive at the end must obey SIGTERM and exit with 0."""
    started = []

    def start(*flags, **options):
        server = KvdServer(*flags, **options)
        started.append(server)
        server.start()
        client = engine.connect(server)
        eventually(lambda: client.health() == (True, ""), 60, "health")
        # It answers while it still claims its pool; what is saved then may find no room.
        eventually(lambda: server.http("GET", "/ready")[0] == 200, 180, "readiness")
        return server

    yield start
    failures = []
    for server in started:
        if server.alive():
            try:
                status = server.stop()
                if status != 0:
                    failures.append(f"exit status {status}\n{server.log}")
            except AssertionError as late:
                failures.append(str(late))
        elif not getattr(server, "end_expected", False):
            failures.append(f"kvd ended by itself\n{server.log}")
    assert not failures, "\n".join(failures)


@pytest.fixture
def server(start_server):
    return start_server()


@pytest.fixture
def client(server):
    return engine.connect(server)


@pytest.fixture
def make_worker():
    """Makes engine.Worker objects and gives their memory back at the end."""
    workers = []

    def make(*arguments, **options):
        worker = engine.Worker(*arguments, **options)
        workers.append(worker)
        return worker

    yield make
    for worker in workers:
        worker.close()


@pytest.fixture
def simple(client, make_worker):
    """One registered worker with two K/V-split layers of eight 4 KiB + 4 KiB blocks."""
    layers = [engine.kv_split(f"layer.{i}", 8, 4096) for i in range(2)]
    return make_worker(client, "engine", "model", layers).register()
