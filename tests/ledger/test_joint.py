"""Copies of a run: they differ from the first line on, and all released rounds count."""

import json
import os
import random
import shutil
from itertools import permutations
from pathlib import Path

import pytest

import fedprivacy as fp
from fedprivacy.bound import Verdict
from fedprivacy.cli import main
from fedprivacy.errors import LedgerError, ParameterError, UnsupportedCombination
from fedprivacy.ledger.history import read

pytestmark = pytest.mark.usefixtures("narrowest")

ROUND = fp.Gaussian(noise_multiplier=1.0, unit="client")
DELTA = 1e-5


def created(path, **changed):
    given = {"unit": "client", "adjacency": "zero_out", "claim": (50.0, DELTA)}
    return fp.Ledger.create(path, **{**given, **changed})


def write(ledger, rounds=1, mechanism=ROUND, noise=1.0, cohort=5):
    for _ in range(rounds):
        number = ledger.intent(mechanism, clip_norm=1.0, noise_std=noise)
        confirm(ledger, number, noise, cohort)


def confirm(ledger, number, noise=1.0, cohort=5):
    told = {"cohort": cohort, "arrived": cohort, "refused": 0, "denominator": 5.0}
    ledger.done(number, noise_std=noise, **told)


def resumed(path, rounds, close=True):
    with fp.Ledger.open(path, resume=True) as ledger:
        write(ledger, rounds)
        if close:
            ledger.close()
    return path


def copied(tmp_path, before=3, after=(10, 10), **changed):
    """Return a ledger and its copies, all resumed."""
    paths = [tmp_path / f"{name}.ledger" for name in "abcdef"[: len(after)]]
    with created(paths[0], **changed) as ledger:
        write(ledger, before)
    for path in paths[1:]:
        shutil.copy(paths[0], path)
    return [resumed(path, rounds) for path, rounds in zip(paths, after, strict=True)]


def answer(capsys, *arguments):
    with pytest.raises(SystemExit) as stop:
        main(list(map(str, arguments)))
    return stop.value.code, capsys.readouterr().out


def upper(rounds):
    return fp.epsilon(ROUND * rounds, delta=DELTA, adjacency="zero_out").upper


def budget(epsilon=500.0, **changed):
    return fp.Budget(epsilon, DELTA, adjacency="zero_out", **changed)


def test_a_copy_that_a_cloned_process_goes_on_with_differs_at_the_next_line(tmp_path):
    """A process in a copied machine does not reopen the file; the tokens of rounds show it."""
    first, second = cloned(tmp_path, under_way=False)
    for ledger in (first, second):
        write(ledger, 2)
        ledger.release()
    files = [ledger.path.read_bytes().splitlines() for ledger in (first, second)]
    assert [one == other for one, other in zip(*files, strict=True)] == [True] * 3 + [False] * 4
    assert fp.audit([first.path, second.path]).rounds == 5


def test_a_resume_is_on_disk_before_a_round(tmp_path):
    with created(tmp_path / "run") as ledger:
        write(ledger)
    for count in (1, 2):
        fp.Ledger.open(tmp_path / "run", resume=True).release()
        assert len(fp.Ledger.open(tmp_path / "run").resumed) == count
    tokens = {one.token for one in fp.Ledger.open(tmp_path / "run").resumed}
    assert len(tokens) == 2 and all(len(token) == 16 for token in tokens)


def test_tokens_are_of_the_operating_system(tmp_path, monkeypatch):
    """Not of a generator that a copied process, or a seed, has again."""
    drawn = []

    def urandom(count):
        drawn.append(count)
        return bytes(range(len(drawn), len(drawn) + count))

    with created(tmp_path / "run") as ledger:
        monkeypatch.setattr(os, "urandom", urandom)
        random.seed(1)
        write(ledger, 2)
    monkeypatch.undo()
    found = [json.loads(line) for line in (tmp_path / "run").read_bytes().splitlines()[1:]]
    assert drawn == [8] * 4 and len({line["token"] for line in found}) == 4


def test_a_ledger_of_before_there_were_tokens_is_read_and_resumed(tmp_path, monkeypatch):
    path = tmp_path / "old"
    monkeypatch.setattr("fedprivacy.ledger.ledger._token", lambda: "")
    with created(path) as ledger:
        write(ledger, 3)
    monkeypatch.undo()
    assert b"token" not in path.read_bytes()
    assert fp.Ledger.open(path).spent_rounds == 3
    shutil.copy(path, tmp_path / "copy")
    for place in (path, tmp_path / "copy"):
        resumed(place, 2)
    assert fp.audit([path, tmp_path / "copy"]).rounds == 7


# Budgets


@pytest.mark.parametrize("order", [(0, 1), (1, 0), (0, 1, 0, 1)])
def test_a_budget_counts_the_common_rounds_once_and_the_rest_of_both(tmp_path, order):
    paths, account = copied(tmp_path), budget()
    for i in order:
        account.charge(fp.Ledger.open(paths[i]))
    assert account.spent().upper == upper(23)


def test_a_budget_counts_copies_that_go_on_by_turns(tmp_path):
    a, b = _open_pair(tmp_path)
    account = budget()
    with fp.Ledger.open(a, resume=True) as first, fp.Ledger.open(b, resume=True) as second:
        for turn in range(4):
            for ledger in (first, second):
                write(ledger, 1 + turn % 2)
                account.charge(ledger)
    assert sum(account.spending.rounds.values()) == 2 + 6 + 6
    assert account.spent().upper == upper(14)


def _open_pair(tmp_path):
    with created(tmp_path / "a") as ledger:
        write(ledger, 2)
    shutil.copy(tmp_path / "a", tmp_path / "b")
    return tmp_path / "a", tmp_path / "b"


def test_a_loop_s_own_rounds_in_two_copies_are_counted(tmp_path):
    """``spend`` and ``ended``, as training loops call them, in two copies by turns."""
    a, b = _open_pair(tmp_path)
    account = budget()
    with fp.Ledger.open(a, resume=True) as first, fp.Ledger.open(b, resume=True) as second:
        for ledger in (first, second, first, second, second):
            account.charge(ledger)
            number = ledger.intent(ROUND, clip_norm=1.0, noise_std=1.0)
            account.spend(ROUND, ledger=ledger, number=number)
            confirm(ledger, number)
            account.ended(ledger, number)
        for ledger in (first, second):
            account.charge(ledger)
    assert sum(account.spending.rounds.values()) == 2 + 2 + 3


def test_an_earlier_copy_adds_nothing_until_it_goes_on(tmp_path):
    a, b = _open_pair(tmp_path)
    resumed(a, 3, close=False)
    account = budget()
    for path in (a, b, a):
        account.charge(fp.Ledger.open(path))
    assert sum(account.spending.rounds.values()) == 5
    resumed(b, 1, close=False)
    account.charge(fp.Ledger.open(b))
    assert sum(account.spending.rounds.values()) == 6


def test_a_copy_of_before_a_round_that_was_counted_as_it_began(tmp_path):
    """Its own round has the number of the one under way, and is another one."""
    a, b = _open_pair(tmp_path)
    account = budget()
    with fp.Ledger.open(a, resume=True) as ledger:
        ledger.intent(ROUND, clip_norm=1.0, noise_std=1.0)
        account.charge(ledger)
    resumed(b, 1)
    account.charge(fp.Ledger.open(b))
    assert sum(account.spending.rounds.values()) == 4


def test_random_copies_are_counted_as_their_rounds_are_told_apart(tmp_path):
    """Against a count of intents by their whole lines, over random trees of copies."""
    chosen = random.Random(20261129)
    for case in range(12):
        paths, account = [tmp_path / f"{case}.0"], budget(1e6)
        created(paths[0]).release()
        for step in range(10):
            path = chosen.choice(paths)
            if chosen.random() < 0.4:
                shutil.copy(path, tmp_path / f"{case}.{len(paths)}")
                paths.append(tmp_path / f"{case}.{len(paths)}")
            else:
                resumed(path, chosen.randrange(3), close=False)
            if chosen.random() < 0.5 or step == 9:
                for one in chosen.sample(paths, len(paths)):
                    account.charge(fp.Ledger.open(one))
        intents = {
            line
            for path in paths
            for line in path.read_bytes().splitlines()
            if b'"kind":"intent"' in line
        }
        assert sum(account.spending.rounds.values()) == len(intents)
        chosen.shuffle(paths)
        assert fp.audit(paths, claim=(1e6, DELTA)).rounds == len(intents)


# Audits


def test_an_audit_of_copies_counts_what_they_share_once(tmp_path):
    paths = copied(tmp_path)
    for source in (
        paths,
        [str(path) for path in reversed(paths)],
        tuple(map(fp.Ledger.open, paths)),
    ):
        found = fp.audit(source)
        assert found.rounds == 23 and found.verdict is Verdict.HOLDS
        assert found.bound.upper == upper(23)
        assert any("first 3 rounds" in told for told in found.reasons)
        assert fp.account(source, delta=DELTA).upper == upper(23)
    assert fp.audit(paths, claim=(25.0, DELTA)).verdict is Verdict.FAILS
    for path in paths:
        assert fp.audit(path, claim=(25.0, DELTA)).verdict is Verdict.HOLDS


def test_three_copies_in_any_order(tmp_path):
    paths = copied(tmp_path, before=2, after=(1, 2, 3))
    for order in permutations(paths):
        assert fp.audit(list(order)).bound.upper == upper(8)


def test_a_ledger_that_is_there_twice_counts_once(tmp_path):
    a, _ = copied(tmp_path)
    shutil.copy(a, tmp_path / "backup")
    assert fp.audit([a, a, tmp_path / "backup"]).bound.upper == upper(13)
    assert fp.audit([a]).to_dict()["bounds"] == fp.audit(a).to_dict()["bounds"]


def test_different_runs_count_in_full(tmp_path):
    for name, rounds in (("a", 2), ("b", 3)):
        with created(tmp_path / name) as ledger:
            write(ledger, rounds)
            ledger.close()
    paths, account = [tmp_path / "a", tmp_path / "b"], budget()
    assert fp.audit(paths).bound.upper == upper(5)
    for path in paths:
        account.charge(fp.Ledger.open(path))
    assert account.spent().upper == upper(5)


def test_a_round_that_was_under_way_when_a_killed_run_was_copied_counts_once(tmp_path):
    with created(tmp_path / "a") as ledger:
        write(ledger, 2)
        ledger.intent(ROUND, clip_norm=1.0, noise_std=1.0)
    shutil.copy(tmp_path / "a", tmp_path / "b")
    paths = [resumed(tmp_path / name, 4) for name in "ab"]
    account = budget()
    for path in paths:
        account.charge(fp.Ledger.open(path))
    assert fp.audit(paths).rounds == sum(account.spending.rounds.values()) == 2 + 1 + 4 + 4


@pytest.mark.parametrize("backwards", [False, True])
def test_a_backup_of_a_round_under_way(tmp_path, backwards):
    """The original confirms it; the copy cannot, and it is one round."""
    with created(tmp_path / "a") as ledger:
        number = ledger.intent(ROUND, clip_norm=1.0, noise_std=1.0)
        for name in "bc":
            shutil.copy(tmp_path / "a", tmp_path / name)
        confirm(ledger, number)
        write(ledger)
        ledger.close()
    resumed(tmp_path / "b", 3)
    paths, account = [tmp_path / name for name in "abc"], budget()
    paths = paths[::-1] if backwards else paths
    for path in paths:
        account.charge(fp.Ledger.open(path))
    assert sum(account.spending.rounds.values()) == fp.audit(paths).rounds == 2 + 3


def cloned(tmp_path, under_way):
    """Return the ledger objects of a process and of its clone, in a copy of the machine."""
    first = created(tmp_path / "first")
    write(first)
    if under_way:
        first.intent(ROUND, clip_norm=1.0, noise_std=1.0)
    assert first.place  # what waits is on disk
    shutil.copy(tmp_path / "first", tmp_path / "second")
    fd = os.open(tmp_path / "second", os.O_RDWR | os.O_APPEND)
    second = fp.Ledger(tmp_path / "second", read(tmp_path / "second"), fd)
    second._begun = first._begun
    return first, second


def test_a_machine_that_is_cloned_within_a_round_releases_it_twice(tmp_path):
    both = cloned(tmp_path, under_way=True)
    for ledger in both:
        confirm(ledger, 1)
        ledger.close()
    account, paths = budget(), [ledger.path for ledger in both]
    for path in paths:
        account.charge(fp.Ledger.open(path))
    assert fp.audit(paths).rounds == sum(account.spending.rounds.values()) == 3
    assert account.spent().upper == fp.audit(paths).bound.upper == upper(3)


def test_less_noise_in_one_copy_is_priced(tmp_path):
    with created(tmp_path / "a") as ledger:
        write(ledger)
    shutil.copy(tmp_path / "a", tmp_path / "b")
    for name, noise in (("a", 1.0), ("b", 0.5)):
        with fp.Ledger.open(tmp_path / name, resume=True) as ledger:
            number = ledger.intent(ROUND, clip_norm=1.0, noise_std=1.0)
            confirm(ledger, number, noise)
            ledger.close()
    run = ROUND * 2 + fp.Gaussian(noise_multiplier=0.5, unit="client")
    wanted = fp.epsilon(run, delta=DELTA, adjacency="zero_out").upper
    paths, account = [tmp_path / "a", tmp_path / "b"], budget()
    for path in paths:
        account.charge(fp.Ledger.open(path))
    assert fp.audit(paths).bound.upper == pytest.approx(wanted, rel=1e-9)
    assert account.spent().upper == pytest.approx(wanted, rel=1e-9)


def test_what_is_wrong_with_one_is_wrong_with_all(tmp_path):
    a, _ = copied(tmp_path)
    for name, changed in (("open", {}), ("seeded", {"seed_policy": "fixed"})):
        with created(tmp_path / name, **changed) as ledger:
            write(ledger)
            if name != "open":
                ledger.close()
        found = fp.audit([a, tmp_path / name])
        assert found.verdict is Verdict.CANNOT_BE_CERTIFIED


def test_a_doubt_about_one_copy_alone_is_kept(tmp_path):
    """The doubtful rounds of the prefix, too: it counts as the first ledger's."""
    scheme = ROUND.sampled(fp.FixedSize(5, population=50))
    with created(tmp_path / "a") as ledger:
        write(ledger, 2, scheme)
    shutil.copy(tmp_path / "a", tmp_path / "b")
    for name, cohort in (("a", 5), ("b", 50)):
        with fp.Ledger.open(tmp_path / name, resume=True) as ledger:
            write(ledger, 2, scheme, cohort=cohort)
            ledger.close()
    paths = [tmp_path / "a", tmp_path / "b"]
    assert fp.audit(paths[0]).verdict is Verdict.HOLDS
    for order in (paths, paths[::-1]):
        assert fp.audit(order).void
        with pytest.raises(
            UnsupportedCombination, match="the recorded run differs from the accounted one"
        ):
            fp.account(order, delta=DELTA)


def test_facts_must_agree(tmp_path):
    for name, changed in (
        ("a", {}),
        ("unit", {"unit": "record"}),
        ("adjacency", {"adjacency": "replace_one"}),
        ("observer", {"observer": "server"}),
    ):
        created(tmp_path / name, **changed).close()
    for name in ("unit", "adjacency", "observer"):
        with pytest.raises(
            ParameterError, match=rf"{name} of .* must be .* as in .*audit .* separately"
        ):
            fp.audit([tmp_path / "a", tmp_path / name])


def test_claims_that_differ_are_no_claim(tmp_path):
    for name, epsilon in (("a", 8.0), ("b", 9.0)):
        created(tmp_path / name, claim=(epsilon, DELTA)).close()
    paths = [tmp_path / "a", tmp_path / "b"]
    with pytest.raises(ParameterError, match="claim"):
        fp.audit(paths)
    assert fp.audit(paths, claim=(1.0, DELTA)).verdict is Verdict.CANNOT_BE_CERTIFIED


@pytest.mark.parametrize("source", [[], [ROUND], [3], [Path(__file__)], ["no such file"]])
def test_lists_of_something_else_are_refused(source):
    with pytest.raises((ParameterError, LedgerError)) as refusal:
        fp.audit(source, claim=(8.0, DELTA))
    told = str(refusal.value)
    assert ("ledger" in told or "no such file" in told) and "\n" not in told


def test_adaptive_schedules_are_not_added_up(tmp_path):
    """Each keeps its own filter's budget; that the rounds of both fit in one is chance."""
    rule = budget(adaptive=True).rule
    with created(tmp_path / "a", schedule="adaptive", budget_rule=rule) as ledger:
        write(ledger)
    shutil.copy(tmp_path / "a", tmp_path / "b")
    paths = [resumed(tmp_path / name, 1) for name in "ab"]
    assert fp.audit(paths[0]).verdict is Verdict.HOLDS
    assert fp.audit(paths).verdict is Verdict.CANNOT_BE_CERTIFIED
    with pytest.raises(UnsupportedCombination):
        fp.account(paths, delta=DELTA)
    # One budget that is charged with both is one filter.
    account = budget(50.0, adaptive=True)
    for path in paths:
        account.charge(fp.Ledger.open(path))
    assert sum(account.spending.rounds.values()) == 3


def test_a_plan_is_held_against_copies(tmp_path):
    """Rounds that a plan does not name are also found in the rest of a copy."""
    cheaper = ROUND.sampled(fp.FixedSize(5, population=500))
    with created(tmp_path / "a", plan=ROUND * 4) as ledger:
        write(ledger, 2)
    shutil.copy(tmp_path / "a", tmp_path / "b")
    resumed(tmp_path / "a", 2)
    with fp.Ledger.open(tmp_path / "b", resume=True) as ledger:
        write(ledger, 2, cheaper)
        ledger.close()
    paths = [tmp_path / "a", tmp_path / "b"]
    assert fp.audit(paths[0]).verdict is Verdict.HOLDS
    assert fp.audit(paths[1]).verdict is Verdict.CANNOT_BE_CERTIFIED
    assert fp.audit(paths).verdict is Verdict.CANNOT_BE_CERTIFIED


# Output


def test_resumes_are_shown_in_text_json_and_report(tmp_path, capsys):
    a, b = copied(tmp_path)
    day = fp.Ledger.open(a).resumed[0].when[:10]
    code, told = answer(capsys, "audit", a, b)
    assert code == 0 and "resumes: 2" in told and day in told
    assert fp.audit(a).to_dict()["recorded"]["resumes"] == f"1 ({day})"
    assert "no other copy of the ledger was resumed" in fp.audit(a).granted["copies"]
    page = fp.report(fp.audit([a, b]), tmp_path / "page.md").read_text()
    assert "resumes | 2" in page and day in page
    with created(tmp_path / "plain") as ledger:
        ledger.close()
    plain = fp.audit(tmp_path / "plain")
    assert plain.facts_recorded["resumes"] == "none recorded" and not plain.granted


def test_the_command_audits_and_reports_several(tmp_path, capsys):
    a, b = copied(tmp_path)
    code, told = answer(capsys, "audit", a, b, "--claim", f"25,{DELTA}", "--strict")
    assert code == 3 and told.startswith("FAILS")
    assert answer(capsys, "report", a, b, "--output", tmp_path / "page.json")[0] == 0
    assert json.loads((tmp_path / "page.json").read_text())
    before = b.read_bytes()
    assert answer(capsys, "report", a, b, "--output", b)[0] == 2 and b.read_bytes() == before


# Marks


def test_marks_are_the_same_read_or_written(tmp_path):
    with created(tmp_path / "run") as ledger:
        write(ledger, 2)
        ledger.intent(ROUND, clip_norm=1.0, noise_std=1.0)
        ledger.intent(ROUND, clip_norm=1.0, noise_std=1.0)
        ledger.abort(3, "too few")
        ledger.intent(ROUND, clip_norm=1.0, noise_std=1.0)
        trail = fp.Ledger.open(tmp_path / "run").trail
        assert (trail.begun, trail.ended) == (ledger.trail.begun, ledger.trail.ended)
    assert [trail.standing(i) for i in range(5)] == [0, 0, 1, 2, 1]


def test_clones_that_confirm_a_round_which_a_budget_knew_as_begun(tmp_path):
    """The copy that was charged as it began is not the one that the first clone's end is of."""
    first, second = cloned(tmp_path, under_way=True)
    account = budget()
    # Begun, and counted; a third copy says that it was never confirmed.
    account.charge(first)
    shutil.copy(second.path, tmp_path / "third")
    confirm(second, 1)
    second.release()
    account.charge(second)
    account.charge(first)
    confirm(first, 1)
    first.release()
    account.charge(first)
    resumed(tmp_path / "third", 1, close=False)
    account.charge(fp.Ledger.open(tmp_path / "third"))
    assert sum(account.spending.rounds.values()) == 1 + 2 + 1
