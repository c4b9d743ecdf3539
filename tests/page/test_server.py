"""Tests of ``fedprivacy.page.server``: what it refuses, and what a page gets."""

import asyncio
import json

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

import httpx

from fedprivacy.page.forms import EXAMPLE
from fedprivacy.page.jobs import Jobs, encoded
from fedprivacy.page.server import HEADERS, application
from fedprivacy.page.uploads import MAX_BYTES

HOST, TOKEN = "127.0.0.1:8123", "secret"
OWN = {"Origin": f"http://{HOST}", "Sec-Fetch-Site": "same-origin"}


class Pretended(Jobs):
    """Children that answer at once what they got."""

    def job(self):
        return PretendedJob()


class PretendedJob:
    def __init__(self):
        self.got = []

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        return None

    async def send(self, content):
        self.got.append(content)

    async def messages(self):
        await asyncio.sleep(0)
        request, *pieces = self.got
        yield encoded({**json.loads(request), "bytes": len(b"".join(pieces)), "done": True})


class Client:
    """Requests to the application, without a network."""

    def __init__(self):
        self.jobs = Pretended()
        self.app = application(self.jobs, TOKEN, HOST, begin=False)

    def request(self, method, path, **more):
        async def sent():
            transport = httpx.ASGITransport(self.app)
            async with httpx.AsyncClient(transport=transport, base_url=f"http://{HOST}") as client:
                return await client.request(method, path, **more)

        return asyncio.run(sent())

    def get(self, path, **more):
        return self.request("GET", path, **more)

    def post(self, path, **more):
        return self.request("POST", path, **more)


@pytest.fixture(scope="module")
def client():
    found = Client()
    yield found
    found.jobs.close()


def ask(client, task="plan", head=None, content=b"", **more):
    line = json.dumps(head or {"fields": EXAMPLE, "files": []}).encode()
    headers = more.pop("headers", OWN)
    body = line + b"\n" + content
    return client.post(f"/{TOKEN}/ask/{task}", content=body, headers=headers, **more)


def test_the_page_and_its_files_name_no_other_address(client):
    for name, kind in (("", "text/html"), ("page.js", "text/javascript"), ("page.css", "text/css")):
        got = client.get(f"/{TOKEN}/{name}")
        assert got.status_code == 200 and got.headers["content-type"].startswith(kind)
        assert not [word for word in got.text.split('"') if "://" in word and "w3.org" not in word]


def test_every_response_has_the_headers(client):
    for got in (client.get(f"/{TOKEN}/"), client.get("/"), ask(client), client.post("/x")):
        assert {name: got.headers[name] for name in HEADERS} == HEADERS
    assert "unsafe" not in str(HEADERS) and "http" not in HEADERS["Content-Security-Policy"]


def test_no_cookie_is_set(client):
    assert "set-cookie" not in client.get(f"/{TOKEN}/").headers


@pytest.mark.parametrize(
    "path", ["/", "/wrong/", "/secre/", "/secret2/", "//secret/", "/%73ecret/"]
)
def test_without_the_token_there_is_nothing(client, path):
    assert client.get(path).status_code == 403


@pytest.mark.parametrize(
    "host", ["localhost:8123", "127.0.0.1", "127.0.0.1:80", "evil.example:8123", "[::1]:8123", ""]
)
def test_another_name_of_this_computer_is_refused(client, host):
    assert client.get(f"/{TOKEN}/", headers={"Host": host}).status_code == 421
    assert ask(client, headers={**OWN, "Host": host}).status_code == 421


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": "http://evil.example"},
        {"Origin": "null", "Sec-Fetch-Site": "same-origin"},
        {"Origin": "http://127.0.0.1:9999", "Sec-Fetch-Site": "same-site"},
        {"Origin": f"http://{HOST}", "Sec-Fetch-Site": "cross-site"},
        {"Origin": f"http://{HOST}", "Sec-Fetch-Site": "none"},
        {"Origin": f"http://{HOST}.evil.example", "Sec-Fetch-Site": "same-origin"},
    ],
)
def test_another_site_cannot_ask(client, headers):
    assert ask(client, headers=headers).status_code == 403


def test_another_site_may_only_open_the_page_in_a_window(client):
    site = {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "navigate"}
    opened = client.get(f"/{TOKEN}/", headers={**site, "Sec-Fetch-Dest": "document"})
    assert opened.status_code == 200
    for dest in ("iframe", "script", "image", "empty"):
        got = client.get(f"/{TOKEN}/page.js", headers={**site, "Sec-Fetch-Dest": dest})
        assert got.status_code == 403


def test_a_form_reaches_its_child_with_its_files(client):
    files = [{"name": "a/b.csv", "size": 3}, {"name": "c", "size": 0}]
    got = ask(client, "audit", {"fields": {"x": 1}, "files": files}, b"abc").json()
    assert got["task"] == "audit" and got["fields"] == {"x": "1"} and got["bytes"] == 3
    assert got["files"] == [{"name": "b.csv", "size": 3}, {"name": "c", "size": 0}]


@pytest.mark.parametrize(
    ("head", "content"),
    [
        ([], b""),
        ({"fields": [], "files": []}, b""),
        ({"fields": {}}, b""),
        ({"fields": {}, "files": [{"name": "a", "size": 3}]}, b"ab"),
        ({"fields": {}, "files": [{"name": "a", "size": 3}]}, b"abcd"),
        ({"fields": {}, "files": [{"name": "a", "size": MAX_BYTES + 1}]}, b"a"),
        ({"fields": {"a": "x" * 70_000}, "files": []}, b""),
    ],
)
def test_malformed_requests_are_refused_with_a_sentence(client, head, content):
    got = ask(client, "audit", head or {"fields": 1}, content)
    assert got.status_code == 400 and "must" in got.text and len(got.text) < 200


def test_text_without_a_line_is_refused(client):
    for body in (b"", b"{}", b"\n", b"[" * 60_000 + b"\n", b"x" * 100_000):
        got = client.post(f"/{TOKEN}/ask/plan", content=body, headers=OWN)
        assert got.status_code == 400


def test_other_tasks_files_and_methods_do_not_exist(client):
    assert ask(client, "delete").status_code == 404
    assert client.get(f"/{TOKEN}/server.py").status_code == 404
    assert client.get(f"/{TOKEN}/..%2fserver.py").status_code == 404
    assert client.get(f"/{TOKEN}/ask/plan").status_code == 405
    assert client.post(f"/{TOKEN}/", headers=OWN).status_code == 405
