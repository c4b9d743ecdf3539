"""The report: one page, the same in Markdown and JSON, and an entry for the registry."""

import json
import math
import re
import warnings
from html.parser import HTMLParser

import numpy as np
import pytest

import fedprivacy as fp
from fedprivacy.audit import RunSummary, registry
from fedprivacy.audit.plots import PlotLine, _labelled_once, epsilon_by_round
from fedprivacy.bound import Verdict
from fedprivacy.evidence.defects import EFFECTS, Validity
from fedprivacy.loss.strategies import search
from fedprivacy.loss.strategies.memo import answered_once, remembered
from tests.common import RECORDS, ROOT

pytestmark = pytest.mark.usefixtures("narrowest")

SCHEMA = ROOT.parent / "shared" / "schemas" / "deployments-schema.yaml"
FLOWER = fp.audit(RECORDS / "flower.json", claim=(3.49, 7e-5), auditor="A. Uditor")
SIX = fp.Gaussian(noise_multiplier=4.0, unit="client") * 6
PLAIN = {"adjacency": "zero_out"}
SAID = {
    "name": "Keyboard: next word",
    "data_curators": ["A company"],
    "description": "a model",
    "intended_use": "typing",
    "data_product_region": "everywhere",
    "publication_date": "2026-11-22",
    "registry_authors": ["A. Uditor"],
}


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    """A page of two runs of one mechanism, another one, and one without privacy."""
    runs = {
        "one": RunSummary(audit=fp.audit(SIX, claim=(2.0, 1e-5), **PLAIN), accuracy=(0.1, 0.9)),
        "two": fp.audit(SIX, claim=(0.1, 1e-5), **PLAIN),
        "three": fp.audit(SIX * 2, claim=(2.0, 1e-5), **PLAIN),
        "bare": RunSummary(accuracy=(0.2, 0.95), upload_bytes=10**6),
    }
    folder = tmp_path_factory.mktemp("pages")
    return {end: fp.report(runs, folder / f"a.{end}").read_text() for end in ("html", "md", "json")}


class Tags(HTMLParser):
    """What a page's tags say."""

    VOID = ("meta", "br", "input", "path", "use", "rect", "line", "circle", "image")

    def __init__(self, page):
        super().__init__()
        self.seen, self.open = [], []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.seen.append((tag, dict(attributes), tuple(self.open)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.open.pop() == tag

    def all(self, tag):
        return [attributes for name, attributes, _ in self.seen if name == tag]


def test_the_page_is_whole_and_can_be_read_by_anybody(three):
    page = three["html"]
    tags = Tags(page)
    assert not tags.open and not tags.all("script") and not tags.all("link")
    assert not re.search(r'(src|href)="(?!#)', page)
    assert tags.all("html")[0]["lang"] == "en" and tags.all("meta")[1]["name"] == "viewport"
    ids = [a["id"] for _, a, _ in tags.seen if "id" in a]
    assert len(ids) == len(set(ids)) and ids
    figures = tags.all("figure")
    assert len(figures) == 4 and 'data-label="claim"' in page
    for figure in figures:
        assert figure["role"] == "img" and re.search(r"\d", figure["aria-label"])
    assert all(svg["aria-hidden"] == "true" for svg in tags.all("svg"))
    assert all(cell["scope"] in ("row", "col") for cell in tags.all("th"))
    assert len(tags.all("h1")) == 1
    wide = [a for a in tags.all("div") if a.get("class", "").startswith("wide")]
    assert wide and all(a["tabindex"] == "0" and a["aria-label"] for a in wide)


def luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_every_colour_of_text_has_the_contrast_that_guidelines_ask_for(three):
    blocks = re.findall(r":root \{(.*?)\}", three["html"], re.S)
    assert len(blocks) == 3
    for block in blocks:
        colours = dict(re.findall(r"--(\w+): (#\w+)", block))
        full = {
            n: c if len(c) == 7 else "#" + "".join(2 * x for x in c[1:]) for n, c in colours.items()
        }
        for ground in ("paper", "tint"):
            for ink in ("ink", "soft", "good", "bad", "open"):
                pair = sorted((luminance(full[ground]), luminance(full[ink])))
                assert (pair[1] + 0.05) / (pair[0] + 0.05) >= 4.5, (ground, ink)


def test_what_runs_share_stands_once(three):
    for form in ("html", "md"):
        text = three[form]
        assert text.count("Common to all runs") == 1
        for once in (
            "client (all data of one client)",
            "central: the server is trusted and sees contributions",
        ):
            assert text.count(once) == 1
        assert len(re.findall("; 12 rounds", text)) == 1


def test_curves_that_coincide_have_one_label(three):
    assert three["html"].count(">one, two<") == 3 and ">three<" in three["html"]
    x = np.array([0.0, 1.0])
    lines = {
        "a": PlotLine(x, x),
        "b": PlotLine(x, x + 1.0),
        "c": PlotLine(x, x * 1.001),
        "d": PlotLine(x[:1], x[:1]),
    }
    assert list(_labelled_once(lines)) == ["a, c", "b", "d"]


def test_every_form_says_the_same_numbers(three):
    data = json.loads(three["json"])
    assert set(data["runs"]) == {"one", "two", "three"}
    upper = data["runs"]["one"]["bounds"]["aggregate"]["pld"]["upper"]
    shown = fp.audit(SIX, claim=(2.0, 1e-5), **PLAIN).bound.ends()[1]
    assert float(shown) >= upper
    for form in ("html", "md"):
        assert shown in three[form] and "FAILS" in three[form]
    assert data["statement"]["one"]["formal statement"].startswith(f"({shown}, 1e-05)")
    assert "remaining epsilon (lower end)" in three["md"] and "Glossary" in three["md"]


def test_markdown_prints_names_to_the_letter(tmp_path):
    found = fp.audit(SIX, claim=(2.0, 1e-5), auditor="a|b `c` [d](e) <f>", **PLAIN)
    text = fp.report({"# x | *y*": found}, tmp_path / "a.md").read_text()
    assert r"## \# x \| \*y\*" in text and r"a\|b \`c\` \[d\](e) \<f\>" in text


# ---- the registry


def test_an_entry_fits_the_registrys_schema(tmp_path):
    if not SCHEMA.exists():
        pytest.skip(f"the registry's schema is not here: {SCHEMA.relative_to(ROOT.parent)}")
    jsonschema, yaml = pytest.importorskip("jsonschema"), pytest.importorskip("yaml")
    schema = yaml.safe_load(SCHEMA.read_text())
    checker = jsonschema.Draft202012Validator(schema)
    full = {
        **SAID,
        "data_product_sector": "Technology",
        "model_name": "Federated",
        "actors": "a server",
        "sources": "a paper",
        "justification": "asked for",
        "post_processing": "none",
        "data_domain": "sentences",
    }
    for deployment in (SAID, full):
        text = fp.report(FLOWER, tmp_path / "a.yaml", deployment=deployment).read_text()
        entry = yaml.safe_load(text)
        checker.validate(entry)
        assert entry == registry.entry(FLOWER, deployment)
    numbers = entry["deployment"]["privacy_loss"]["privacy_parameters"]
    assert (
        numbers == {"epsilon": 3.48781, "delta": 7e-5} and numbers["epsilon"] >= FLOWER.bound.upper
    )
    with pytest.raises(jsonschema.ValidationError):
        checker.validate({**entry, "tier": 4})


def test_an_entry_without_a_certified_number_has_none():
    facts = {"claim": (9.0, 1e-5), "adjacency": "add_remove", "sampling": "poisson"}
    void = fp.audit(RECORDS / "opacus_rdp.json", denominator="realised", **facts)
    told = registry.entry(void, SAID)["deployment"]
    assert void.void and "privacy_parameters" not in told["privacy_loss"]
    assert not re.search(r"epsilon at this delta", json.dumps(told))


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"name": None}, "name"),
        ({"name": " "}, "name"),
        ({"data_curators": "one"}, "data_curators"),
        ({"registry_authors": []}, "registry_authors"),
        ({"publication_date": "22.11.2026"}, "publication_date"),
        ({"model_name": "Cloud"}, "model_name"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_what_the_registry_asks_for(change, names, tmp_path):
    said = {n: v for n, v in (SAID | change).items() if v is not None}
    with pytest.raises(fp.ParameterError, match=names):
        fp.report(FLOWER, tmp_path / "a.yaml", deployment=said)
    assert not list(tmp_path.iterdir())


def test_forms_that_do_not_fit_are_refused(tmp_path):
    for path, more in (
        ("a.yaml", {}),
        ("a.html", {"deployment": SAID}),
        ("a.txt", {}),
        ("a", {}),
    ):
        with pytest.raises(fp.ParameterError, match=r"deployment|path"):
            fp.report(FLOWER, tmp_path / path, **more)
    with pytest.raises(fp.ParameterError, match="be one"):
        fp.report([FLOWER, FLOWER], tmp_path / "a.yaml", deployment=SAID)


def test_the_command_writes_every_form(tmp_path, capsys):
    from tests.cli.test_program import answer

    path = tmp_path / "deployment.toml"
    path.write_text("\n".join(f"{name} = {json.dumps(value)}" for name, value in SAID.items()))
    ask = ("report", str(RECORDS / "flower.json"), "--claim", "3.49,7e-5", "--output")
    for end, more in (("md", ()), ("json", ()), ("yaml", ("--deployment", str(path)))):
        output = tmp_path / f"a.{end}"
        code, _, _ = answer(capsys, *ask, str(output), *more)
        assert code == 0 and ("3.48781" if end == "yaml" else "3.488") in output.read_text()
    code, _, error = answer(capsys, *ask, str(tmp_path / "b.yaml"))
    assert code == 2 and "data_curators" in error


def left(tmp_path, found):
    """Return the page, and the number of further rounds that a program reads."""
    text = fp.report({"a": found}, tmp_path / "a.md").read_text()
    data = json.loads(fp.report({"a": found}, tmp_path / "a.json").read_text())
    return text, data["further_rounds"]["a"]


def test_what_is_left_is_told_in_further_rounds_too(tmp_path):
    """As many as fit by the upper end, and one more does not."""
    text, count = left(tmp_path, fp.audit(SIX, claim=(4.0, 1e-5), **PLAIN))
    one = fp.Gaussian(noise_multiplier=4.0, unit="client")
    ends = [fp.epsilon(one * (6 + k), delta=1e-5, **PLAIN) for k in (count, count + 1)]
    assert ends[0].upper <= 4.0 < ends[1].upper
    assert f"enough for at least {count} more round" in text


LEFT = {
    "none of them": (SIX, fp.epsilon(SIX, delta=1e-5, **PLAIN).upper + 1e-3, 0),
    "ten times as many, where nobody asks for more": (SIX, 1e3, 60),
    "not a claim that fails": (SIX, 0.1, None),
    "not a sum whose rounds hang together": (
        fp.CorrelatedNoise(
            factor=fp.factors.Tree(),
            noise_multiplier=4.0,
            rounds=6,
            participation=fp.SingleParticipation(),
        ),
        9.0,
        None,
    ),
}


@pytest.mark.parametrize("what", LEFT)
def test_further_rounds_are_told_where_they_are_known(what, tmp_path):
    run, claimed, count = LEFT[what]
    text, found = left(tmp_path, fp.audit(run, claim=(claimed, 1e-5), **PLAIN))
    assert found == count
    assert ("no further round like the last" in text) == (count == 0)
    assert ("more round" in text) == bool(count)


def test_several_audits_have_one_span_of_time_on_the_cover(three):
    (told,) = re.findall(r'<th scope="row">audited</th><td>([^<]*)</td>', three["html"])
    assert told.count("+00:00") <= 2


def test_runs_with_one_curve_are_asked_for_their_numbers_once(tmp_path, monkeypatch):
    """Two loops with the same noise: the page of both asks no more than the page of one."""
    found = fp.audit(SIX.sampled(fp.Poisson(0.5)), claim=(2.0, 1e-5), **PLAIN)
    asked, answer = [], search._interval
    monkeypatch.setattr(search, "_interval", lambda one: asked.append(one) or answer(one))
    pages = []
    for names in (["one"], ["one", "two"]):
        pages.append(fp.report(dict.fromkeys(names, found), tmp_path / "a.md").read_text())
        asked.append("a page")
    first = asked.index("a page")
    once, both = asked[:first], asked[first + 1 : -1]
    assert once == both and len(once) == len(set(once)) > 0 and pages[0] != pages[1]


def test_an_answer_for_lack_of_time_is_not_kept_and_none_outside_of_a_block():
    told = iter(range(9))
    assert [remembered("a", lambda: next(told)) for _ in range(2)] == [0, 1]
    with answered_once():
        found = [remembered("a", lambda: next(told), lambda n: n > 2) for _ in range(3)]
        assert found == [2, 3, 3] and remembered("b", lambda: next(told)) == 4
    assert remembered("a", lambda: next(told)) == 5


# ---- drawn and printed values are on the certified side


LONG = fp.Gaussian(noise_multiplier=40.0) * 1000


def test_words_for_a_plot_tell_ends_that_are_certified(tmp_path):
    found = fp.audit(LONG, claim=(4.0, 1e-5), **PLAIN)
    page = fp.report(found, tmp_path / "a.html").read_text()
    course, profile, missed = re.findall(r'aria-label="([^"]*)"><svg', page)
    assert "(delta = 1e-05, zero_out, aggregate)" in course
    told = re.findall("at most ([0-9.e-]+) at", course)
    assert float(told[-1]) >= found.bound.upper
    for delta, at in re.findall("at most ([0-9.e-]+) at ([0-9.]*[0-9])", profile):
        assert float(delta) >= fp.delta(LONG, epsilon=float(at), **PLAIN).upper
    for least, at in re.findall("at least ([0-9.e-]+) at ([0-9.]*[0-9])", missed):
        true = fp.tradeoff_curve(LONG, fpr=[float(at)], **PLAIN).worst
        assert float(least) <= true.lower[0]


def test_curves_say_what_they_are_about_where_that_differs(tmp_path):
    noise = fp.Gaussian(noise_multiplier=4.0)
    runs = {
        "_a": fp.audit(noise * 3, claim=(4.0, 1e-5), **PLAIN),
        "b": fp.audit(noise * 3, claim=(4.0, 1e-6), adjacency="replace_one"),
        "c": fp.audit(noise * 3, claim=(4.0, 0.0), **PLAIN),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        page = fp.report(runs, tmp_path / "a.html").read_text()
    assert "_a (delta = 1e-05, zero_out)" in page and "b (delta = 1e-06, replace_one)" in page
    assert "no finite epsilon for c (aggregate)" in page
    alone = fp.report(runs["c"], tmp_path / "b.html").read_text()
    assert alone.count("<svg") == 2 and "no finite epsilon holds" in alone


def test_what_takes_a_verdict_away_is_a_condition_of_the_numbers():
    """In a defect that leaves no claim certified, no number is certified without a word."""
    for effect in EFFECTS.values():
        assert (effect.holds is Verdict.HOLDS) == (effect.numbers is Validity.CERTIFIED)


def test_tables_of_markdown_are_lines(three):
    lines = three["md"].splitlines()
    assert not [line for line in lines if "\\n" in line]
    assert any(re.fullmatch(r"\| formal statement \| .* \|", line) for line in lines)
    assert "Theorems:" in lines and "## Common to all runs" in lines
    for index, line in enumerate(lines):
        if line.startswith("|---"):
            widths = {row.count("|") for row in lines[index - 1 : index + 2]}
            assert len(widths) == 1 and lines[index - 2] == ""


# ---- numbers that were given


def test_numbers_that_were_given_are_printed_as_they_were_given(tmp_path):
    claim, delta, noise = 4.0000004, 1.6384e-4, 0.52965123
    run = fp.Gaussian(noise_multiplier=noise, clip_norm=1.0).sampled(fp.Poisson(0.0123456))
    found = fp.audit(run, claim=(claim, delta), **PLAIN)
    page = fp.report(found, tmp_path / "a.md").read_text().replace("\\", "")
    for told in (
        f"epsilon = {claim} at delta = {delta}", f"delta = {delta})", f"plus {delta} ",
        f"{delta})-differential", f"std {noise} ", "probability 0.0123456 (",
    ):  # fmt: skip
        assert told in page
    assert f"epsilon = {claim} at delta = {delta}" in str(found)
    assert "at epsilon = 1.23456449 (" in str(fp.delta(run, epsilon=1.23456449, **PLAIN))
    table = fp.pareto({"a": (run, 1.0)}, delta=delta, epsilon=claim, **PLAIN).table()
    assert f"delta = {delta} " in table and f"within epsilon = {claim}:" in table


def test_a_claim_just_above_what_is_attained_is_not_shown_as_less():
    least = math.nextafter(fp.epsilon(SIX, delta=1e-5, **PLAIN).upper, math.inf)
    reason = fp.audit(SIX, claim=(least, 1e-5), **PLAIN).reasons[0]
    assert reason.endswith(f"{least!r} was claimed.")


def test_other_runs_on_the_same_data_are_no_rounds_of_this_one():
    facts = {"claim": (9.0, 1e-5), "adjacency": "zero_out", "sampling": "poisson"}
    found = fp.audit(RECORDS / "opacus_rdp.json", trials=3, **facts)
    assert epsilon_by_round(found) == ([found.rounds], [found.bound.upper])


def test_of_a_run_of_everybody_no_draw_is_supposed():
    run = fp.Gaussian(noise_multiplier=4.0).sampled(fp.Everyone()) * 6
    claim = 0.98 * fp.epsilon(run, delta=1e-5, adjacency="replace_one").upper
    found = fp.audit(run, claim=(claim, 1e-5), adjacency="replace_one")
    assert found.verdict == "FAILS" and "Poisson" not in "".join(found.reasons)


@pytest.mark.usefixtures("no_plots")
def test_the_box_gives_every_observers_number(tmp_path):
    """In federated learning the server knows the cohort: the kindest observer is not enough."""
    run = fp.Gaussian(noise_multiplier=1.0, unit="client").sampled(fp.Poisson(0.1)) * 20
    found = fp.audit(run, claim=(12.0, 1e-4), adjacency="zero_out")
    best = min(bound.upper for bound in found.bounds["server"].values())
    told = "For the server, which knows the participants: epsilon at most "
    for ending, begins, ends in (("md", "\n> ", "\n"), ("html", '<p class="words">', "</p>")):
        path = fp.report(found, tmp_path / f"r.{ending}")
        box = path.read_text().split(begins)[1].split(ends)[0]
        assert f"epsilon = {found.bound.ends()[1]}" in box and told in box
        number = float(box.split(told)[1].split(" ")[0].rstrip("."))
        assert best <= number <= best * 1.001 and number > 1.5 * found.bound.upper
    # The other way round, too.
    server = fp.audit(run, claim=(30.0, 1e-4), adjacency="zero_out", observer="server")
    text = fp.report(server, tmp_path / "s.md").read_text()
    assert f"but not the participants: epsilon at most {found.bound.ends()[1]}." in text
    # Without a secure sum the server sees more than that.
    shares = fp.SparsifiedPerturbation(
        noise_multiplier=2.0, clip_norm=1.0, kept=1, dimension=1, cohort=25
    )
    apart = fp.audit(shares, claim=(12.0, 1e-4), adjacency="zero_out")
    text = fp.report(apart, tmp_path / "u.md").read_text().split("\n> ")[1]
    assert "For a server that sees each upload separately: epsilon at most " in text


def test_the_box_has_no_number_of_others_where_there_is_none(tmp_path):
    run = fp.Gaussian(noise_multiplier=1.0, unit="client").sampled(fp.Poisson(0.1)) * 20
    found = fp.audit(run, claim=(12.0, 1e-4), adjacency="add_remove")
    assert set(found.unsupported) == {"server"}
    box = fp.report(found, tmp_path / "r.md").read_text().split("\n> ")[1].split("\n")[0]
    assert "For the server" not in box
    # A conditional verdict is shown with its condition.
    given = {"adjacency": "zero_out", "unit": "client", "claim": (12.0, 1e-4)}
    with fp.Ledger.create(tmp_path / "a.ledger", **given) as ledger:
        number = ledger.intent(run.sequence()[0][0], clip_norm=1.0, noise_std=1.0)
        ledger.done(number, cohort=5, arrived=5, refused=0, noise_std=1.0)
    box = fp.report(fp.audit(tmp_path / "a.ledger"), tmp_path / "o.md").read_text()
    assert box.split("\n> ")[1].count("For the recorded rounds only") == 3
