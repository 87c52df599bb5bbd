"""One `kvd server` process: starts it, finds its ports in the log, ends it."""

import json
import os
import re
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request

BINARY = os.environ.get("KVD_BINARY", "")
# Generous, for machines that do ten other things: only a hang is meant to reach them.
START_SECONDS = 180
STOP_SECONDS = 60
HTTP_SECONDS = 60


# kvd takes every KVD_* name for an option; these tests have variables of their own.
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("KVD_")}


def eventually(ready, seconds, what):
    """Polls `ready` until it answers something true; fails by name when it never does."""
    deadline = time.monotonic() + seconds
    while True:
        answer = ready()
        if answer:
            return answer
        assert time.monotonic() < deadline, f"{what} did not happen within {seconds} s"
        time.sleep(0.02)


class KvdServer:
    """The process, its log and its two addresses."""

    def __init__(self, *flags, pool="64mb", addr="127.0.0.1:0", http="127.0.0.1:0", role="server",
                 prefix=()):
        self.command = [*prefix, BINARY, role, "--addr", addr, "--http-addr", http, *flags]
        if role == "server":
            self.command += ["--pool-size", pool]
        self.lines = []
        self._news = threading.Condition()
        self._process = subprocess.Popen(
            self.command, env=ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace")
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self._process.stdout:
            with self._news:
                self.lines.append(line.rstrip("\n"))
                self._news.notify_all()
        with self._news:
            self.lines.append("(end of log)")
            self._news.notify_all()

    def start(self):
        """Waits for the line that names both ports."""
        line = self.wait_for_line(r"grpc=\S+.*http=\S+", START_SECONDS)
        self.grpc_address = re.search(r"grpc=([^\s,]+)", line).group(1)
        self.http_address = re.search(r"http=([^\s,]+)", line).group(1)
        return self

    @property
    def endpoint(self):
        return f"http://{self.grpc_address}"

    @property
    def log(self):
        with self._news:
            return "\n".join(self.lines)

    @property
    def pid(self):
        return self._process.pid

    def alive(self):
        return self._process.poll() is None

    def wait_for_line(self, pattern, seconds):
        wanted = re.compile(pattern)
        deadline = time.monotonic() + seconds
        with self._news:
            seen = 0
            while True:
                for line in self.lines[seen:]:
                    if wanted.search(line):
                        return line
                seen = len(self.lines)
                left = deadline - time.monotonic()
                ended = bool(self.lines) and self.lines[-1] == "(end of log)"
                if left <= 0 or ended:
                    text = "\n".join(self.lines)
                    raise AssertionError(f"no log line matches {pattern!r}; the log is\n{text}")
                self._news.wait(left)

    def wait_exit(self, seconds=STOP_SECONDS):
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise AssertionError(f"kvd did not end within {seconds} s; the log is\n{self.log}")

    def signal(self, number=signal.SIGTERM):
        self._process.send_signal(number)

    def stop(self):
        """SIGTERM, then the exit status; kills what does not obey and fails."""
        if self.alive():
            self.signal(signal.SIGTERM)
        return self.wait_exit()

    def kill(self):
        if self.alive():
            self._process.kill()
            self._process.wait()

    # HTTP. An answer is (status, body, headers), whatever the status.

    def http(self, method, path, body=None, headers=None):
        request = urllib.request.Request(
            f"http://{self.http_address}{path}", data=body, method=method, headers=headers or {})
        try:
            with urllib.request.urlopen(request, timeout=HTTP_SECONDS) as answer:
                return answer.status, answer.read().decode(), answer.headers
        except urllib.error.HTTPError as refusal:
            return refusal.code, refusal.read().decode(), refusal.headers

    def get_json(self, path):
        status, body, _ = self.http("GET", path)
        assert status == 200, f"GET {path} answered {status}: {body}"
        return json.loads(body)

    def instances(self):
        return self.get_json("/instances")["instances"]

    def metrics(self):
        """Every sample of /metrics: {'name{labels}': value}."""
        status, body, _ = self.http("GET", "/metrics")
        assert status == 200, f"GET /metrics answered {status}: {body}"
        samples = {}
        for line in body.splitlines():
            if line and not line.startswith("#"):
                series, value = line.rsplit(" ", 1)
                samples[series] = float(value)
        return samples

    def metric(self, name, **labels):
        """The sum over every series of `name` that carries these labels."""
        total, found = 0.0, False
        for series, value in self.metrics().items():
            if series.split("{", 1)[0] != name:
                continue
            if all(f'{key}="{wanted}"' in series for key, wanted in labels.items()):
                total, found = total + value, True
        assert found or labels, f"no series {name}"
        return total
