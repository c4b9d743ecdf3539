"""Tests of ``fedprivacy.cli.panels``."""

import os
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from fedprivacy.cli.panels import HINTS, PanelGroup, option
from tests.commands import EVERY
from tests.contract.test_command_line import command


def built():
    @click.group(
        cls=PanelGroup,
        package="fedprivacy",
        panels={
            "First": {"one": ("version", "Do one thing.")},
            "Second": {"two": ("version", "Do two things.")},
        },
    )
    @option("--deep", panel="Depth", help="How deep.")
    def group(deep):
        """Do things."""

    @group.command()
    @option("--loud", panel="Sound", is_flag=True, help="Shout.")
    @option("--far", panel="Place", type=int, default=3, show_default=True, help="How far.")
    @option("--soft", panel="Sound", is_flag=True, help="Whisper.")
    @click.option("--plain", help="No panel.")
    def one(loud, far, soft, plain):
        """Do one thing. And more."""

    @group.command()
    def two():
        """Do two things."""

    return group


def told(*words):
    done = CliRunner().invoke(built(), [*words, "--help"])
    assert done.exit_code == 0
    return done.output


def test_options_stand_in_panels_and_those_without_one_last():
    lines = [line.split("  ")[0] or line.split()[0] for line in told("one").splitlines() if line]
    first = lines.index("Sound:")
    assert lines[first:] == [
        *("Sound:", "--loud", "--soft", "Place:", "--far"),
        *("Help:", "--plain", "--help"),
    ]
    assert "How far.  [default: 3]" in told("one")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--sigma", "1"], "No such option '--sigma'. Did you mean '--noise-multiplier'?"),
        (["--noise", "1"], "Did you mean '--noise-multiplier'?"),
        (["--q", "0.1"], "Did you mean '--sampling-probability'?"),
        (["--batch-size", "8"], "Did you mean '--cohort'?"),
        (["--steps", "5"], "Did you mean '--rounds'?"),
        (["--steps=5"], "Did you mean '--rounds'?"),
        (["--max-grad-norm", "1"], "No such option '--max-grad-norm'."),
        ([], "Missing options '--delta', '--noise-multiplier', '--adjacency'."),
        (["--delta", "1e-5"], "Missing options '--noise-multiplier', '--adjacency'."),
        (
            ["--delta", "1e-5", "--noise-multiplier", "1", "--rounds", "3"],
            "Missing option '--adjacency'.",
        ),
    ],
)
def test_other_programs_names_and_missing_options_are_named(capsys, words, told):
    code, out, err = command(capsys, "epsilon", *words)
    assert (code, out) == (2, "") and told in err
    if "Did you mean" not in told:
        assert "Did you mean" not in err


def test_a_setting_of_a_method_is_named_for_an_option_that_is_none(capsys):
    for words, told in ((["--batch-size", "8"], "'--set batch_size=VALUE'"), (["--foo"], "")):
        code, out, err = command(capsys, "train", *words)
        assert (code, out) == (2, "") and told in err and ("Did you mean" in err) == bool(told)


def test_every_hint_is_an_option_of_a_command():
    known = {name for each in EVERY.values() for param in each.params for name in param.opts}
    assert HINTS.keys() <= known
    assert not known & {name for names in HINTS.values() for name in names}, "they are no options"


def test_commands_stand_in_panels():
    text = told()
    order = ["Depth:", "--deep", "Help:", "--help", "First:", "one", "Second:", "two"]
    places = [text.index(f"\n{word}" if word[-1] == ":" else f"\n  {word} ") for word in order]
    assert places == sorted(places) and "one  Do one thing." in text and "And more" not in text


def test_an_account_multiplies_its_small_matrices_in_one_thread():
    code = (
        "import os, click; from fedprivacy.cli import cli; "
        "cli.get_command(click.Context(cli), 'audit'); print(os.environ['OPENBLAS_NUM_THREADS'])"
    )
    for given, used in ((None, "1"), ("2", "2")):
        env = {name: value for name, value in os.environ.items() if "BLAS" not in name}
        env |= {} if given is None else {"OPENBLAS_NUM_THREADS": given}
        done = subprocess.run(
            [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == used
