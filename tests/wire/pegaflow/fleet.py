"""Hosts in network namespaces, joined by a bridge, with servers and metaservers on them."""

import itertools
import os
import pathlib
import random
import subprocess

import pegaflow

from kvd_server import KvdServer

_serial = itertools.count()


def _ip(*words):
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"ip {' '.join(words)}: {done.stderr.strip()} (this needs root)"


def _free_net():
    """A network that no interface of this machine has: other fleets may be up."""
    while True:
        net = f"10.{random.randrange(64, 192)}.{random.randrange(256)}"
        taken = subprocess.run(["ip", "-4", "addr"], capture_output=True, text=True, check=True)
        if f" {net}." not in taken.stdout:
            return net


class Host:
    """One namespace with one address."""

    def __init__(self, fleet, number):
        self.name = f"{fleet.name}h{number}"
        self.outside = f"{fleet.name}v{number}"
        self.address = f"{fleet.net}.{10 + number}"
        _ip("netns", "add", self.name)
        _ip("link", "add", self.outside, "type", "veth", "peer", "name", "eth0", "netns", self.name)
        _ip("link", "set", self.outside, "master", fleet.bridge, "up")
        _ip("-n", self.name, "addr", "add", f"{self.address}/24", "dev", "eth0")
        self.address6 = f"[{fleet.net6}::{10 + number}]"
        _ip("-n", self.name, "addr", "add", f"{self.address6[1:-1]}/64", "dev", "eth0", "nodad")
        for device in ("eth0", "lo"):
            _ip("-n", self.name, "link", "set", device, "up")

    @property
    def prefix(self):
        return ("ip", "netns", "exec", self.name)

    def cut(self):
        _ip("link", "set", self.outside, "down")

    def join(self):
        _ip("link", "set", self.outside, "up")


class Fleet:
    """The bridge, its hosts, and the processes on them."""

    def __init__(self, ipv6=False):
        self.ipv6 = ipv6
        number = next(_serial)
        # Interface names have 15 characters at most.
        self.name = f"k{os.getpid() % 100000}x{number}"
        self.bridge = f"{self.name}b"
        self.net = _free_net()
        self.net6 = f"fd{os.getpid() % 256:02x}:{os.getpid() // 256 % 65536:x}:{number:x}"
        self.hosts, self.processes = [], []
        _ip("link", "add", self.bridge, "type", "bridge")
        _ip("addr", "add", f"{self.net}.1/24", "dev", self.bridge)
        _ip("addr", "add", f"{self.net6}::1/64", "dev", self.bridge, "nodad")
        _ip("link", "set", self.bridge, "up")

    def host(self):
        host = Host(self, len(self.hosts))
        self.hosts.append(host)
        return host

    def metaserver(self, host, *flags):
        return self._start(host, 50056, 9092, *flags, role="metaserver")

    def server(self, host, metaservers, *flags, pool="64mb"):
        meta = ",".join(f"http://{each.grpc_address}" for each in metaservers)
        return self._start(host, 50055, 9091, "--metaserver-addr", meta, "--peer-links", "tcp",
                           *flags, pool=pool)

    def _start(self, host, grpc, http, *flags, **options):
        address = host.address6 if self.ipv6 else host.address
        process = KvdServer(*flags, addr=f"{address}:{grpc}", http=f"{address}:{http}",
                            prefix=host.prefix, **options)
        process.host = host
        self.processes.append(process)
        return process.start()

    def pegaflow_metaserver(self, host):
        """PegaFlow's own program, from the wheel of this run."""
        program = pathlib.Path(pegaflow.__file__).parent / "pegaflow-metaserver-py"
        address = f"{host.address}:50056"
        process = subprocess.Popen(
            [*host.prefix, program, "--addr", address, "--http-addr", f"{host.address}:9092"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        process.grpc_address = address
        self.processes.append(process)
        return process

    def close(self):
        for process in self.processes:
            process.kill()
        for host in self.hosts:
            subprocess.run(["ip", "netns", "del", host.name], check=False)
        subprocess.run(["ip", "link", "del", self.bridge], check=False)
