"""Tests of ``fedprivacy.cli.page``."""

import builtins
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import pytest

from tests.cli.test_program import answer

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")


def test_without_the_extra_one_line_says_what_to_install(capsys, monkeypatch):
    real = builtins.__import__

    def without(name, *rest):
        if name.partition(".")[0] == "uvicorn":
            raise ModuleNotFoundError("No module named 'uvicorn'", name="uvicorn")
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    monkeypatch.delitem(sys.modules, "fedprivacy.page.server", raising=False)
    code, _, err = answer(capsys, "page")
    assert code == 2 and err.count("\n") == 1
    assert "pip install 'fedprivacy[page]'" in err


@pytest.mark.parametrize("port", ["-1", "70000", "taken"])
def test_a_port_that_is_not_free_is_refused(capsys, port):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        said = str(taken.getsockname()[1]) if port == "taken" else port
        code, _, err = answer(capsys, "page", "--port", said)
    assert code == 2 and "--port" in err and err.count("\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize("way", ["SIGINT", "SIGTERM", "SIGHUP", "SIGKILL"])
def test_the_page_ends_without_a_trace(tmp_path, way):
    """Also while a file is on its way; after SIGKILL the children clear up."""
    settings = os.environ | {"TMPDIR": str(tmp_path), "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "fedprivacy", "page"]
    process = subprocess.Popen(command, env=settings, stdout=subprocess.PIPE, text=True)
    address = re.search(r"http://\S+", process.stdout.readline())[0]
    with urllib.request.urlopen(address) as got:
        assert got.status == 200
    host = re.match(r"http://([^/]+)", address)[1]
    name, port = host.split(":")
    with socket.create_connection((name, int(port))) as half:
        path = address.removeprefix(f"http://{host}")
        head = b'{"fields": {}, "files": [{"name": "a.json", "size": 1000}]}\nabc'
        lines = [
            f"POST {path}ask/audit HTTP/1.1",
            f"Host: {host}",
            f"Origin: http://{host}",
            "Sec-Fetch-Site: same-origin",
            f"Content-Length: {len(head) + 997}",
        ]
        half.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + head)
        wait_for(lambda: list(tmp_path.glob("fedprivacy-page-*/*/a.json")))
        process.send_signal(getattr(signal, way))
        process.wait(30)
    process.stdout.close()
    wait_for(lambda: not list(tmp_path.glob("fedprivacy-page-*")))


def wait_for(true):
    end = time.monotonic() + 250
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)
