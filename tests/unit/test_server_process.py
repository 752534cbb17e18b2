"""Ports for servers that take their time to listen."""

import socket
from pathlib import Path

import pytest

from sglang_specv2 import server_process


def test_a_port_is_free_and_none_that_the_system_hands_out():
    range_file = Path("/proc/sys/net/ipv4/ip_local_port_range")
    lowest = int(range_file.read_text().split()[0]) if range_file.exists() else 32_768
    ports = {server_process.free_port() for _ in range(50)}
    assert len(ports) > 40
    assert max(ports) < lowest
    with socket.socket() as server:
        server.bind(("127.0.0.1", ports.pop()))


def test_a_port_that_is_taken_is_not_given(monkeypatch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", server_process.free_port()))
        port = taken.getsockname()[1]
        monkeypatch.setattr(server_process, "_PORTS", range(port, port + 1))
        monkeypatch.setattr(server_process.random.SystemRandom, "sample", lambda self, of, n: of)
        with pytest.raises(OSError, match="expected a free TCP port"):
            server_process.free_port()
