"""The files of docker/, as far as they can be checked without building: see `make docker-test`."""

import http.server
import json
import os
import re
import shlex
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import yaml

from sglang_specv2.version import SUPPORTED_SGLANG

ROOT = Path(__file__).resolve().parents[2]
DOCKER = ROOT / "docker"
COMPOSE_FILES = ("compose.yaml", "compose.router.yaml")


def text(name):
    return (DOCKER / name).read_text(encoding="utf-8")


def compose(name):
    """A compose file with what it includes."""
    loaded = yaml.safe_load(text(name))
    for included in loaded.pop("include", ()):
        loaded["services"] |= compose(included)["services"]
    return loaded


def test_the_image_is_made_from_the_supported_sglang():
    assert f"ARG SGLANG_TAG=v{SUPPORTED_SGLANG}-" in text("Dockerfile")


@pytest.mark.parametrize("name", ["Dockerfile", "Dockerfile.cpu"])
def test_what_a_dockerfile_copies_is_there(name):
    copied = re.findall(r"^COPY ((?!--from).*) \S+$", text(name), re.M)
    sources = [source for line in copied for source in line.split()]
    assert "docker/install.sh" in sources
    for source in sources:
        path = ROOT / source
        assert path.exists(), source
        assert path.suffix != ".sh" or os.access(path, os.X_OK), source


@pytest.mark.parametrize("name", ["Dockerfile", "Dockerfile.cpu"])
def test_an_image_checks_itself_and_serves_as_no_root(name):
    last = text(name).rpartition("\nFROM ")[2]
    assert "verify.sh" in text(name)
    assert "\nUSER 1000:0\n" in last
    assert "healthcheck.py" in last.partition("HEALTHCHECK")[2]
    assert '\nENTRYPOINT ["sglang-specv2", "serve"' in last


@pytest.mark.parametrize("name", COMPOSE_FILES)
def test_what_a_compose_file_mounts_is_there(name):
    mounts = [
        mount.split(":")[0]
        for service in compose(name)["services"].values()
        for mount in service.get("volumes", ())
    ]
    ours = [mount for mount in mounts if mount.startswith(".")]
    assert len(ours) == 4
    assert [mount for mount in ours if not (DOCKER / mount).exists()] == []


def test_grafana_is_given_the_dashboard():
    grafana = compose("compose.yaml")["services"]["grafana"]
    mounts = dict(mount.split(":")[:2] for mount in grafana["volumes"])
    (provider,) = yaml.safe_load(text("grafana/dashboards.yaml"))["providers"]
    folder = provider["options"]["path"]
    home = grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]

    assert mounts["../docs/grafana"] == folder
    file = ROOT / "docs" / "grafana" / Path(home).relative_to(folder)
    assert "panels" in json.loads(file.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", COMPOSE_FILES)
def test_prometheus_finds_the_servers_where_they_listen(name):
    (job,) = yaml.safe_load(text("prometheus.yaml"))["scrape_configs"]
    (found,) = job["dns_sd_configs"]
    servers = [s for s in compose(name)["services"].values() if "--model-path" in str(s)]
    assert len(servers) == {"compose.yaml": 1, "compose.router.yaml": 2}[name]
    for server in servers:
        assert server["networks"]["default"]["aliases"] == found["names"]
        assert "--enable-metrics" in server["command"]
        assert "--port" not in server["command"]
    assert f"\nEXPOSE {found['port']}\n" in text("Dockerfile")


def told_flags():
    """The flags of every server that the compose files and the pages tell to start."""
    for name in COMPOSE_FILES:
        for service in compose(name)["services"].values():
            command = service.get("command", "")
            if "--model-path" in command:
                required = re.sub(r"\$\{\w+:\?[^}]*\}", "given", command)
                yield re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", required)
    for page in ("README.md", "docs/index.md", "docker/README.md"):
        for block in re.findall(r"```bash\n(.*?)```", (ROOT / page).read_text("utf-8"), re.S):
            # To the end of the command, or of the shell array.
            found = re.search(r"--model-path [^)]*", block.replace("\\\n", " "))
            if found:
                yield found[0]


def test_sglang_knows_every_flag_that_we_tell_to_give():
    commands = [shlex.split(flags) for flags in told_flags()]
    assert len(commands) == 6
    code = (
        "import json, sys, warnings; warnings.simplefilter('ignore')\n"
        "from sglang_specv2 import cpu; cpu.install()\n"
        "import sglang_specv2.hook\n"
        "import argparse, sglang.srt.server_args as server_args\n"
        "parser = argparse.ArgumentParser(allow_abbrev=False)\n"
        "server_args.ServerArgs.add_cli_args(parser)\n"
        "for flags in json.load(sys.stdin): parser.parse_args(flags)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps(commands),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.fixture
def answering():
    """A server whose /health answers with the status in its ``status``; its port is ``port``."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(answering.status if self.path == "/health" else 404)
            self.end_headers()

        def log_message(self, *arguments):
            pass

    answering = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    answering.status, answering.port = 200, answering.server_address[1]
    thread = threading.Thread(target=answering.serve_forever)
    thread.start()
    yield answering
    answering.shutdown()
    thread.join()
    answering.server_close()


def healthcheck(tmp_path, *command):
    (tmp_path / "cmdline").write_text("\0".join(command) + "\0")
    return subprocess.run(
        [sys.executable, str(DOCKER / "healthcheck.py"), str(tmp_path / "cmdline")],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    ).returncode


@pytest.mark.parametrize("form", ["--port {}", "--port=1 --port={}", "--port 1 --port {} --tp 1"])
def test_the_health_check_asks_the_port_that_is_served(tmp_path, answering, form):
    command = ["docker-init", "--", "sglang-specv2", "serve", *form.format(answering.port).split()]
    assert healthcheck(tmp_path, *command) == 0
    answering.status = 503
    assert healthcheck(tmp_path, *command) == 1


def test_the_health_check_s_port_is_the_exposed_one_unless_given():
    source = text("healthcheck.py")
    (default,) = re.findall(r'DEFAULT_PORT = "(\d+)"', source)
    for name in ("Dockerfile", "Dockerfile.cpu"):
        assert f"\nEXPOSE {default}\n" in text(name)
