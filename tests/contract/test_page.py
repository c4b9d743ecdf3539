"""The page in a browser: the three tasks by clicks and keys, bad and huge files, hostile pages.

``make test-page`` runs these tests, with the Chromium of the system. Without it, or without
Playwright, they are skipped.
"""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import tomllib
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

pytest.importorskip("starlette")
pytest.importorskip("playwright.sync_api")

from playwright import sync_api

import fedprivacy as fp
from fedprivacy.page.forms import EXAMPLE
from tests.common import ROOT
from tests.page.test_auditing import ledger

OPACUS = ROOT / "tests/corpus/opacus/accountant_summary.json"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium"),
]
expect = sync_api.expect
expect.set_options(timeout=30_000)


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """The address of a page, and the folder of its temporary files."""
    folder = tmp_path_factory.mktemp("temporary")
    settings = os.environ | {"TMPDIR": str(folder)}
    command = [sys.executable, "-m", "fedprivacy", "page"]
    with subprocess.Popen(command, env=settings, stdout=subprocess.PIPE, text=True) as process:
        yield re.search(r"http://\S+", process.stdout.readline())[0], folder
        process.terminate()
    assert not list(folder.glob("fedprivacy-page-*"))


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@contextlib.contextmanager
def opened(browser, address, **settings):
    """Yield the page; no error may be in its console, and no request may leave this computer."""
    context = browser.new_context(**settings)
    page = context.new_page()
    asked, wrong = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda text: wrong.append(text.text) if text.type == "error" else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.goto(address)
    expect(page.locator("#answer-rounds svg")).to_be_visible()
    yield page
    context.close()
    host = address.split("/")[2]
    assert {url.split("/")[2] for url in asked if not url.startswith("blob:")} == {host}
    assert wrong == []


@pytest.fixture
def page(browser, served):
    with opened(browser, served[0], accept_downloads=True) as found:
        yield found


def settled(page, task):
    expect(page.locator(f"#{task}-answer[aria-busy=false]")).to_be_visible()


# ---- plan


def test_a_plan_by_clicks(page):
    run = fp.Gaussian(noise_multiplier=1.4, unit="client").sampled(
        fp.FixedSize(100, population=6000)
    )
    bound = fp.epsilon(run * 180, delta=1e-5, adjacency="replace_one")
    page.get_by_label("A fixed number").check()
    page.get_by_label("These data or others").check()
    expect(page.locator("#answer-epsilon")).to_contain_text(bound.ends(4)[1])
    expect(page.locator(".interval")).to_contain_text(f"[{', '.join(bound.ends(6))}]")
    expect(page.locator("#status")).to_contain_text("Epsilon is at most")
    page.get_by_label("A budget").check()
    expect(page.locator("#answer-noise")).to_be_visible()
    expect(page.locator("#plan-noise_multiplier")).to_be_hidden()
    expect(page.locator("#answer-command")).to_contain_text("fedprivacy calibrate --epsilon 1.0")


def test_a_plan_by_keys(page):
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.name") == "rounds":
            break
    page.keyboard.press("Control+a")
    page.keyboard.type("90")
    expect(page.locator("#answer-command")).to_contain_text("--rounds 90")
    # The field keeps the focus while the answer changes.
    assert page.evaluate("document.activeElement.name") == "rounds"
    page.keyboard.type("x")
    expect(page.locator("#plan-rounds-problem")).to_contain_text("integer")
    expect(page.locator("#plan-rounds")).to_have_attribute("aria-invalid", "true")


def test_what_no_theorem_covers_is_said_at_its_field(page):
    page.locator("[name=observer][value=server]").check()
    expect(page.locator("#plan-observer-problem")).to_contain_text("shows membership")
    page.locator("[name=adjacency][value=zero_out]").check()
    expect(page.locator("#plan-observer-problem")).to_be_empty()
    expect(page.locator("#answer-epsilon")).to_be_visible()


def test_a_page_that_is_loaded_on_another_tab_has_its_plan_too(page):
    page.get_by_role("tab", name="Audit").click()
    page.reload()
    expect(page.get_by_role("tab", name="Audit")).to_have_attribute("aria-selected", "true")
    expect(page.locator("#answer-rounds svg")).to_have_count(1)
    assert page.locator("#plan [aria-invalid]").count() == 0


def test_the_last_of_many_changes_is_answered(page):
    for number in range(1, 40):
        page.locator("#plan-rounds").fill(str(number))
    expect(page.locator("#answer-command")).to_contain_text("--rounds 39 ")
    settled(page, "plan")
    expect(page.locator("#answer-command")).to_contain_text("--rounds 39 ")


# ---- audit


def test_an_audit_by_clicks(page, tmp_path):
    page.get_by_role("tab", name="Audit").click()
    page.set_input_files("#audit-files", OPACUS)
    expect(page.locator("#audit-answer")).to_contain_text("leaves facts open")
    expect(page.locator("#audit-epsilon")).to_be_focused()
    page.locator("#audit-sampling").select_option("poisson")
    page.locator("#audit-adjacency").select_option("add_remove")
    page.locator("#audit-epsilon").fill("8")
    page.locator("#audit-delta").fill("1e-5")
    page.get_by_role("button", name="Judge the claim").click()
    expect(page.locator(".verdict")).to_have_text("HOLDS, according to an imported record")
    for name, suffix in (("Web page", "html"), ("Markdown", "md"), ("JSON", "json")):
        with page.expect_download() as got:
            page.get_by_role("button", name=name, exact=True).click()
        assert got.value.suggested_filename == f"accountant_summary-report.{suffix}"
        text = got.value.path().read_text("utf-8")
        assert "HOLDS" in text and str(tmp_path.parent) not in text
    page.get_by_role("button", name="Registry entry").click()
    expect(page.locator("#audit-deployment_name")).to_be_focused()
    expect(page.locator("#audit-deployment_name-problem")).to_contain_text("registry needs")
    expect(page.locator(".verdict")).to_be_visible()


def test_an_audit_by_keys(page, tmp_path):
    page.get_by_role("tab", name="Plan").focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("tab", name="Audit")).to_be_focused()
    page.set_input_files("#audit-files", ledger(tmp_path / "run.ledger"))
    expect(page.locator(".verdict")).to_have_text("HOLDS")
    page.locator("#audit-epsilon").fill("0.5")
    # The verdict is that of the earlier claim, so its report must not be saved as if it were new.
    expect(page.get_by_role("button", name="Markdown")).to_be_disabled()
    page.keyboard.press("Enter")
    expect(page.locator(".verdict")).to_have_text("FAILS")


BAD = {
    "empty": b"",
    "noise": bytes(range(256)) * 40,
    "deep": b"[" * 100_000,
    "pickle": b"\x80\x04\x95",
    "script": b"<script>alert(1)</script>",
    "bomb": b"a: &a [x]\nb: &b [*a,*a]\n" + b"c: [*b,*b,*b,*b]\n" * 60,
    "ledger": b'{"kind":"header","format":"fedprivacy ledger",' + b"x" * 1000,
    "words": b"a note about noise and privacy",
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_a_sentence(page, served, name):
    page.get_by_role("tab", name="Audit").click()
    file = {"name": f"<img src=x onerror=alert(1)>{name}.json", "mimeType": "x/y"}
    page.set_input_files("#audit-files", {**file, "buffer": BAD[name]})
    settled(page, "audit")
    answer = page.locator("#audit-answer").inner_text()
    assert f"{name}.json" in answer and "fedprivacy-page" not in answer, answer
    expect(page.locator("#audit .failure")).to_be_hidden()
    assert page.locator("#audit-answer img, #audit-answer script").count() == 0
    assert not [path for path in served[1].rglob("*") if path.is_file()]


def test_a_huge_file_is_refused_before_it_is_sent_on(page, tmp_path):
    page.get_by_role("tab", name="Audit").click()
    path = tmp_path / "huge.json"
    with open(path, "wb") as file:
        file.truncate(200 * 2**20)
    page.set_input_files("#audit-files", path)
    expect(page.locator("#audit .failure")).to_contain_text("at most 64 MiB")


def test_a_large_file_of_nonsense_ends(page):
    page.get_by_role("tab", name="Audit").click()
    line = b'{"noise_multiplier": 1.0, "sample_rate": 0.1, "steps": 10}\n'
    content = line * (40 * 2**20 // len(line))
    page.set_input_files("#audit-files", {"name": "a.jsonl", "mimeType": "x/y", "buffer": content})
    settled(page, "audit")
    page.get_by_role("tab", name="Plan").click()
    page.locator("#plan-rounds").fill("7")
    expect(page.locator("#answer-command")).to_contain_text("--rounds 7 ")


# ---- compare


def test_a_comparison_by_clicks_and_keys(page, tmp_path):
    page.get_by_role("button", name="Add this run to the comparison").click()
    page.get_by_role("tab", name="Compare").click()
    assert page.locator("fieldset.setting").count() == 3
    page.locator("#compare-adjacency").select_option("zero_out")
    page.set_input_files("#compare-files", [ledger(tmp_path / "run.ledger")])
    for name, value in (("setting-0", "0.7"), ("setting-1", "0.6"), ("setting-2", "0.8")):
        page.locator(f"#compare-{name}-accuracy").fill(value)
    page.locator("#compare-file-0-accuracy").fill("0.9")
    page.keyboard.press("Enter")
    settled(page, "compare")
    expect(page.locator("#compare-answer tbody tr")).to_have_count(4)
    expect(page.locator("#compare-answer svg")).to_have_count(1)
    page.get_by_role("button", name="Remove this setting").first.click()
    page.get_by_role("button", name="Compare", exact=True).click()
    expect(page.locator("#compare-answer tbody tr")).to_have_count(3)
    page.locator("#compare-setting-1-noise_multiplier").fill("none")
    page.keyboard.press("Enter")
    expect(page.locator("#compare-setting-1-noise_multiplier")).to_be_focused()


# ---- looks


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280, 1600])
def test_themes_and_widths(browser, served, scheme, width):
    size = {"width": width, "height": 844}
    with opened(browser, served[0], viewport=size, color_scheme=scheme) as page:
        for tab in ("Plan", "Audit", "Compare"):
            page.get_by_role("tab", name=tab).click()
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            assert page.evaluate(CONTRASTS) == []
            assert page.evaluate(UNNAMED) == []


UNNAMED = """[...document.querySelectorAll("input, select, button")]
  .filter((one) => one.getClientRects().length && !one.labels?.length && !one.textContent.trim())
  .map((one) => one.outerHTML)"""
"""Fields and buttons without a name."""

CONTRASTS = """(() => {
  const light = (text) => {
    const [r, g, b, a] = text.match(/[\\d.]+/g).map(Number);
    if (a === 0) return null;
    const [x, y, z] = [r, g, b].map((v) => v / 255)
      .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const behind = (one) => (one ? light(getComputedStyle(one).backgroundColor)
    ?? behind(one.parentElement) : 1);
  const found = [];
  const texts = "p, b, small, label, legend, th, td, li, button, h1, h2, input, code";
  for (const one of document.querySelectorAll(texts)) {
    if (!one.getClientRects().length || !(one.textContent || one.value)) continue;
    const [a, b] = [light(getComputedStyle(one).color), behind(one)].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) found.push(`${one.outerHTML.slice(0, 80)} ${a} ${b}`);
  }
  return found;
})()"""
"""Texts whose contrast is below 4.5."""


# ---- hostile requests


def request(address, method, path, body=None, **headers):
    host, _, token = address.removeprefix("http://").partition("/")
    connection = HTTPConnection(host)
    connection.request(method, f"/{token}{path}", body, headers)
    got = connection.getresponse()
    found = got.status, got.read().decode()
    connection.close()
    return found


def test_fifty_requests_at_once_are_all_answered(served):
    address, folder = served
    host = address.split("/")[2]
    own = {"Origin": f"http://{host}", "Sec-Fetch-Site": "same-origin"}

    def ask(number):
        fields = {**EXAMPLE, "rounds": str(number + 1)}
        body = json.dumps({"fields": fields, "files": []}) + "\n"
        return request(address, "POST", "ask/plan", body, **own)

    with ThreadPoolExecutor(50) as pool:
        found = list(pool.map(ask, range(50)))
    for number, (status, text) in enumerate(found):
        assert status == 200 and f"--rounds {number + 1} " in text
        assert json.loads(text.splitlines()[-1]) == {"done": True}
    assert not [path for path in folder.rglob("*") if path.is_file()]


def test_another_name_of_this_computer_is_refused(served):
    """As after DNS rebinding: a foreign name that leads to 127.0.0.1."""
    for host in ("evil.example", f"evil.example:{served[0].split('/')[2].split(':')[1]}"):
        assert request(served[0], "GET", "", Host=host)[0] == 421


ATTACK = """<!doctype html><title>hostile</title><script>
const found = {};
const address = "%s";
const tries = {
  read: () => fetch(address).then((got) => got.text()),
  ask: () => fetch(address + "ask/plan", {method: "POST", body: "{}\\n"}).then((got) => got.text()),
  blind: () => fetch(address + "ask/plan", {method: "POST", mode: "no-cors", body: "{}\\n"})
    .then((got) => { if (got.type !== "opaque") throw 0; throw new Error("opaque"); }),
  script: () => new Promise((yes, no) => {
    const one = document.createElement("script");
    one.src = address + "page.js"; one.onload = () => yes(1); one.onerror = no;
    document.head.append(one);
  }),
  image: () => new Promise((yes, no) => {
    const one = new Image();
    one.onload = () => yes(1); one.onerror = no; one.src = address + "icon.svg";
  }),
};
(async () => {
  for (const [name, one] of Object.entries(tries)) {
    try { await one(); found[name] = "reached"; } catch { found[name] = "refused"; }
  }
  const frame = document.createElement("iframe");
  frame.src = address; document.body.append(frame);
  await new Promise((done) => { frame.onload = done; setTimeout(done, 3000); });
  try { found.frame = frame.contentDocument ? "same" : "foreign"; }
  catch { found.frame = "foreign"; }
  document.title = JSON.stringify(found);
})();
</script><body>"""


def test_a_hostile_page_on_another_port_reaches_nothing(browser, served):
    """Even if it knows the token, as from a screenshot."""
    text = (ATTACK % served[0]).encode()

    class Hostile(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hostile)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    context = browser.new_context()
    try:
        page = context.new_page()
        refused = []
        page.on("response", lambda got: refused.append((got.url, got.status)))
        page.goto(f"http://127.0.0.1:{server.server_port}/")
        expect(page).to_have_title(re.compile("frame"))
        found = json.loads(page.title())
        assert set(found.values()) <= {"refused", "foreign"}, found
        own = [status for url, status in refused if url.startswith(served[0])]
        assert own and set(own) == {403}
    finally:
        context.close()
        server.shutdown()
        server.server_close()


def test_the_wheel_holds_the_files_of_the_page():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    held = project["tool"]["setuptools"]["package-data"]["fedprivacy"]
    for path in (ROOT / "fedprivacy/page").iterdir():
        assert path.suffix in (".py", "") or f"page/*{path.suffix}" in held
