"""A repeated field is refused, since two readers could read two records."""

import json
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

import fedprivacy as fp
from fedprivacy.cli import main
from fedprivacy.errors import ConversionError, DamagedLedger, ForeignLedger
from fedprivacy.json_fields import RepeatedField, check_fields

ROUND = fp.Gaussian(noise_multiplier=1.4, unit="client")


@pytest.fixture
def path(tmp_path):
    with fp.Ledger.create(
        tmp_path / "run", unit="client", adjacency="zero_out", claim=(8.0, 1e-5), plan=ROUND * 2
    ) as ledger:
        for _ in range(2):
            number = ledger.intent(ROUND, clip_norm=1.0, noise_std=1.4)
            ledger.done(number, cohort=5, arrived=5, refused=0, noise_std=1.4, denominator=5.0)
        ledger.close()
    return tmp_path / "run"


def forged(path, number, old, new):
    """Change the one line of this number, and compute the chain of checksums again."""
    check, lines = "", []
    for index, line in enumerate(path.read_bytes().splitlines()):
        body = line[: -len(b',"check":""}') - 64]
        if index == number:
            assert old in body
            body = body.replace(old, new, 1)
        check = sha256(check.encode() + body).hexdigest()
        lines.append(body + b',"check":"' + check.encode() + b'"}\n')
    path.write_bytes(b"".join(lines))


CASES = {
    "std of a done line": (
        2,
        b'"noise_std":1.4',
        b'"noise_std":0.001,"noise_std":1.4',
        "noise_std",
    ),
    "equal values": (2, b'"cohort":5', b'"cohort":5,"cohort":5', "cohort"),
    "behind the others": (
        2,
        b'"denominator":5.0',
        b'"denominator":5.0,"noise_std":1.4',
        "noise_std",
    ),
    "the kind": (2, b'"kind":"done"', b'"kind":"done","kind":"done"', "kind"),
    "written with an escape": (2, b'"cohort":5', b'"cohor\\u0074":5000,"cohort":5', "cohort"),
    "with spaces": (2, b'"cohort":5', b'"cohort" : 5000 , "cohort":5', "cohort"),
    "the token": (2, b'"token"', b'"token":"0","token"', "token"),
    "norm of an intent": (1, b'"clip_norm":1.0', b'"clip_norm":9.0,"clip_norm":1.0', "clip_norm"),
    "the mechanism": (3, b'"mechanism":', b'"mechanism":{},"mechanism":', "mechanism"),
    "in a mechanism": (
        3,
        b'"noise_multiplier":1.4',
        b'"noise_multiplier":0.1,"noise_multiplier":1.4',
        "noise_multiplier",
    ),
    "its type": (1, b'{"type":"Gaussian"', b'{"type":"Laplace","type":"Gaussian"', "type"),
    "the claim": (0, b'"claim":', b'"claim":[1.0,1e-5],"claim":', "claim"),
    "a version": (0, b'"numpy":', b'"numpy":"0","numpy":', "numpy"),
    "in the plan": (
        0,
        b'"noise_multiplier":1.4',
        b'"noise_multiplier":9.0,"noise_multiplier":1.4',
        "noise_multiplier",
    ),
    "the end": (5, b'"rounds":2', b'"rounds":9,"rounds":2', "rounds"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_ledger_with_a_field_twice_is_refused(path, case):
    """Every one of them was read by its last value, with a verdict of HOLDS."""
    number, old, new, name = CASES[case]
    forged(path, number, old, new)
    with pytest.raises(DamagedLedger) as refusal:
        fp.audit(path)
    told = str(refusal.value)
    assert f"line {number + 1}: the field '{name}' occurs twice" in told and "\n" not in told
    with pytest.raises(DamagedLedger):
        fp.Ledger.open(path, resume=True)


def test_a_ledger_that_is_written_otherwise_is_read(path):
    """Another order of fields, spaces, numbers with an exponent: no field is repeated."""
    forged(path, 2, b'"cohort":5,"arrived":5', b'"arrived" :5, "cohort": 5')
    forged(path, 4, b'"noise_std":1.4', b'"noise_std":14e-1')
    forged(path, 3, b'"noise_multiplier":1.4', b'"noise_multiplier": 1.4')
    assert fp.audit(path).rounds == 2
    assert str(fp.audit(path).verdict) == "HOLDS"


def test_the_name_of_a_field_is_one_line_whatever_it_holds(path):
    name = b"a\\n\\u001b[2Jb"
    forged(path, 0, b'"numpy":', b'"%s":"0","%s":"0","numpy":' % (name, name))
    with pytest.raises(DamagedLedger) as refusal:
        fp.Ledger.open(path)
    assert str(refusal.value).isprintable()


def test_an_unknown_field_of_a_ledger_is_told_in_one_line(path):
    forged(path, 2, b'"cohort":5', b'"a\\n\\u001bb":5,"cohort":5')
    with pytest.raises(ForeignLedger) as refusal:
        fp.Ledger.open(path)
    assert str(refusal.value).isprintable()


@pytest.mark.parametrize(
    "text", ['{"a":1,"a":1}', '[{"b":{"a":1,"c":2,"a":3}}]', '{"a":1,"\\u0061":2}']
)
def test_repeated_fields_are_found_at_any_depth(text):
    with pytest.raises(RepeatedField, match="'a' occurs twice"):
        check_fields(text)
    check_fields('{"a":{"a":1},"b":[{"a":1},{"a":1}]}')


# Certificates


@pytest.fixture(scope="module")
def checker():
    return pytest.importorskip(
        "fedprivacy.check_certificate", reason="needs python-flint", exc_type=ImportError
    )


@pytest.fixture(scope="module")
def certificate():
    return json.dumps(fp.epsilon(ROUND, delta=1e-5, adjacency="zero_out").certificate())


def test_a_certificate_with_a_field_twice_is_refused(checker, certificate, tmp_path):
    path = tmp_path / "run.json"
    path.write_text(certificate)
    assert checker.read(str(path))[0] == 0
    for old, new, name in (
        ('"bound": ', '"bound": {"upper": 0.1}, "bound": ', "bound"),
        ('"upper": ', '"upper": 0.1, "upper": ', "upper"),
        (
            '"noise_multiplier": ',
            '"noise_multiplier": 9.0, "noise_multiplier": ',
            "noise_multiplier",
        ),
        ('"digest": ', '"digest": "0", "digest": ', "digest"),
    ):
        assert old in certificate
        path.write_text(certificate.replace(old, new, 1))
        assert checker.read(str(path)) == (2, f"refused: the field '{name}' occurs twice")


ODD = {"[1]": "a list", "null": "null", "3": "a number", '"x"': "a string", "true": "true or false"}


@pytest.mark.parametrize("text", ODD)
def test_what_is_no_object_is_refused_in_one_clear_line(checker, tmp_path, capsys, text):
    path = tmp_path / "odd.json"
    path.write_text(text)
    with pytest.raises(SystemExit) as stop:
        main(["verify", str(path)])
    told = capsys.readouterr().out
    wanted = f"odd.json: refused: a certificate is a JSON object, not {ODD[text]}\n"
    assert stop.value.code == 2 and told.endswith(wanted) and told.count("\n") == 1
    with pytest.raises(checker.Refused, match="a certificate is a JSON object"):
        checker.check(json.loads(text))


def leaves(value, where=()):
    """Yield the places of all values in plain JSON values."""
    yield where
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, inner in items:
        yield from leaves(inner, (*where, key))


@pytest.mark.parametrize("odd", [None, "x", [], {}, -1, 1e308, True, [[]], {"type": "Gdp"}])
def test_odd_certificates_are_refused_cleanly(checker, certificate, odd):
    """KeyError, TypeError and OverflowError came out of ``check``."""
    document = json.loads(certificate)
    for where in leaves(document):
        if not where:
            continue
        changed = json.loads(certificate)
        at = changed
        for key in where[:-1]:
            at = at[key]
        for gone in (False, True):
            if gone and isinstance(at, dict):
                at.pop(where[-1], None)
            elif not gone:
                at[where[-1]] = odd
            try:
                signed = {**changed, "digest": checker.digest(changed)}
                found = checker.check(signed)
            except (checker.Refused, checker.Undecided) as problem:
                assert "\n" not in str(problem)
            else:
                # Words about the run that no proof needs may be anything.
                assert set(found) == {"upper", "lower", "resolution"}


def test_the_checker_alone_refuses_them(checker, certificate, tmp_path):
    (tmp_path / "twice.json").write_text(
        certificate.replace('"bound": ', '"bound": 1, "bound": ', 1)
    )
    (tmp_path / "list.json").write_text("[]")
    program = Path(checker.__file__)
    names = ["twice.json", "list.json"]
    command = [sys.executable, "-I", str(program), *names]
    found = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert found.returncode == 2 and not found.stderr
    assert [line.split(":")[1] for line in found.stdout.splitlines()] == [" refused"] * 2


# Messages of the API


@pytest.mark.parametrize(
    "content",
    [
        '{"mechanism": "gaussian", "a\\n\\u001b[2Jb": 1, "noise_multiplier": 1.0}',
        '{"noise_multiplier": 1.0, "rounds": 3, "sampling": "poisson", "x\\ny": 2}',
        '{"a\\nb": 1, "a\\nb": 2}',
        'noise_multiplier = 1.0\n"a\\nb" = 3\n',
        "round,noise_multiplier,a\x1bb\n1,1.0,2\n",
        '{"history": [[1.0, 0.01, 3]], "a\\n\\u001bb": 0, "mechanism": "rdp"}',
    ],
)
def test_conversion_errors_are_one_printable_line(tmp_path, content):
    for name in ("run.json", "two\nlines\x1b[2J.json"):
        (tmp_path / name).write_text(content)
        with pytest.raises((ConversionError, fp.errors.ParameterError)) as refusal:
            fp.audit(tmp_path / name, claim=(8.0, 1e-5), adjacency="zero_out")
        if isinstance(refusal.value, ConversionError):
            assert str(refusal.value).isprintable()
