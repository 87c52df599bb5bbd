"""kvd's OTLP push, received by a collector made of OpenTelemetry's official definitions."""

import concurrent.futures
import os
import queue
import subprocess

import grpc
import pytest
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as service
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc as service_grpc
from opentelemetry.proto.metrics.v1 import metrics_pb2

PUSH = os.environ["KVD_PUSH_METRICS"]
KVD = os.environ["KVD_BINARY"]


class Collector(service_grpc.MetricsServiceServicer):
    def __init__(self):
        self.requests = queue.Queue()
        self.rejected = 0
        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(2))
        service_grpc.add_MetricsServiceServicer_to_server(self, self.server)
        self.port = self.server.add_insecure_port("127.0.0.1:0")
        self.server.start()

    def Export(self, request, context):
        self.requests.put(request)
        answer = service.ExportMetricsServiceResponse()
        if self.rejected:
            answer.partial_success.rejected_data_points = self.rejected
            answer.partial_success.error_message = "scripted"
        return answer


@pytest.fixture
def collector():
    made = Collector()
    yield made
    made.server.stop(None).wait()


def push_to(address):
    return subprocess.run([PUSH, address], timeout=120, capture_output=True, text=True)


@pytest.fixture
def pushed(collector):
    ended = push_to(f"http://127.0.0.1:{collector.port}")
    assert ended.returncode == 0, ended.stderr
    return collector.requests.get(timeout=10)


@pytest.fixture
def metrics(pushed):
    (resource,) = pushed.resource_metrics
    (scope,) = resource.scope_metrics
    named = {metric.name: metric for metric in scope.metrics}
    assert len(named) == len(scope.metrics), "a metric name occurs twice"
    return named


def attributes(of):
    return {one.key: one.value.string_value for one in of.attributes}


def unknown_bytes(message):
    """Bytes that the official definitions do not know: what is left when they are dropped."""
    copy = type(message)()
    copy.CopyFrom(message)
    copy.DiscardUnknownFields()
    return message.ByteSize() - copy.ByteSize()


def test_the_official_definitions_know_every_byte(pushed):
    assert unknown_bytes(pushed) == 0
    assert pushed.ByteSize() > 1000


def test_the_resource_says_who_pushes(pushed):
    said = attributes(pushed.resource_metrics[0].resource)
    assert said["service.name"] == "kvd"
    assert said["service.version"]
    assert said["service.instance.id"] == "test"
    assert pushed.resource_metrics[0].scope_metrics[0].scope.name == "kvd"


def test_a_counter_is_a_cumulative_monotonic_sum_under_its_raw_name(metrics):
    assert "pegaflow_save_bytes_total" not in metrics
    saved = metrics["pegaflow_save_bytes"]
    assert saved.WhichOneof("data") == "sum"
    assert saved.sum.is_monotonic
    assert (saved.sum.aggregation_temporality
            == metrics_pb2.AGGREGATION_TEMPORALITY_CUMULATIVE)
    (point,) = saved.sum.data_points
    assert point.WhichOneof("value") == "as_int"
    assert point.as_int == 123_456_789_012
    assert saved.unit == "bytes"
    assert saved.description


def test_points_lie_between_the_start_of_the_process_and_now(metrics):
    (point,) = metrics["pegaflow_save_bytes"].sum.data_points
    assert 0 < point.start_time_unix_nano <= point.time_unix_nano
    # The start is that of the pushing process, which the test has just run.
    assert point.time_unix_nano - point.start_time_unix_nano < 120 * 10**9


def test_gauges_are_gauges_and_ratios_are_doubles(metrics):
    (leases,) = metrics["kvd_leases"].gauge.data_points
    assert leases.as_int == 3
    (progress,) = metrics["kvd_startup_progress_ratio"].gauge.data_points
    assert progress.WhichOneof("value") == "as_double"
    assert progress.as_double == 0.5


def test_a_histogram_keeps_count_sum_bounds_and_buckets(metrics):
    took = metrics["pegaflow_save_duration"]
    assert took.unit == "s"
    assert (took.histogram.aggregation_temporality
            == metrics_pb2.AGGREGATION_TEMPORALITY_CUMULATIVE)
    (point,) = took.histogram.data_points
    assert point.count == 3
    assert point.sum == pytest.approx(1000.04)
    assert len(point.bucket_counts) == len(point.explicit_bounds) + 1
    assert list(point.explicit_bounds[:2]) == [0.01, 0.025]
    assert point.bucket_counts[1] == 2
    assert point.bucket_counts[-1] == 1
    assert sum(point.bucket_counts) == point.count


def test_labels_arrive_as_attributes(metrics):
    points = metrics["pegaflow_rpc_requests"].sum.data_points
    seen = {tuple(sorted(attributes(one).items())): one.as_int for one in points}
    assert seen == {
        (("method", "save"), ("status", "ok")): 7,
        (("method", "save"), ("status", "Client specified an invalid argument")): 2,
    }


def test_a_label_that_is_no_utf8_is_made_so(metrics):
    (point,) = metrics["kvd_namespace_resident_bytes"].gauge.data_points
    assert attributes(point) == {"namespace": "latin1 ?"}


def test_a_collector_that_rejects_points_counts_as_a_failure(collector):
    collector.rejected = 5
    ended = push_to(f"http://127.0.0.1:{collector.port}")
    assert ended.returncode == 1
    assert "rejected 5 points: scripted" in ended.stderr


def test_no_collector_is_a_failure_that_names_the_endpoint():
    ended = push_to("http://127.0.0.1:1")
    assert ended.returncode == 1
    assert "http://127.0.0.1:1" in ended.stderr


def test_an_endpoint_that_cannot_be_is_refused():
    for endpoint in ("https://a:1", "http://a", "http://a:1/v1/metrics", "", "http://a:99999"):
        ended = push_to(endpoint)
        assert ended.returncode == 2, endpoint
        assert f"'{endpoint}'" in ended.stderr


@pytest.fixture
def start_server(collector):
    """`kvd server` that pushes to the collector; it must obey SIGTERM and exit with 0."""
    started = []

    def start(period_seconds):
        clean = {name: value for name, value in os.environ.items() if not name.startswith("KVD_")}
        process = subprocess.Popen(
            [KVD, "server", "--addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0",
             "--pool-size", "16mb", "--metrics-period-secs", str(period_seconds),
             "--metrics-otel-endpoint", f"http://127.0.0.1:{collector.port}"],
            env=clean, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        started.append(process)
        assert any("listening grpc=" in line for line in process.stderr), "it never listened"
        return process

    yield start
    for process in started:
        process.terminate()
        try:
            process.communicate(timeout=60)
        finally:
            process.kill()
        assert process.returncode == 0


def named_metrics(request):
    return {one.name: one for one in request.resource_metrics[0].scope_metrics[0].metrics}


def test_the_server_role_pushes_every_period_with_one_start_time(start_server, collector):
    start_server(period_seconds=1)
    first = collector.requests.get(timeout=60)
    second = collector.requests.get(timeout=60)
    assert unknown_bytes(first) == 0
    points = [named_metrics(each)["kvd_lease_expirations"].sum.data_points[0]
              for each in (first, second)]
    assert points[0].start_time_unix_nano == points[1].start_time_unix_nano
    assert points[0].time_unix_nano < points[1].time_unix_nano
    assert "pegaflow_hll_cardinality" in named_metrics(first)
    windows = {attributes(one)["window"]
               for one in named_metrics(first)["pegaflow_hll_cardinality"].gauge.data_points}
    assert windows == {"15m", "1h", "1d"}


def test_the_server_role_pushes_once_more_when_it_ends(start_server, collector):
    server = start_server(period_seconds=3600)
    assert collector.requests.empty()
    server.terminate()
    assert server.wait(60) == 0
    assert "kvd_ready" in named_metrics(collector.requests.get(timeout=60))
