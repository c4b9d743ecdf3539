"""The command that proves certificates again: verify."""

from __future__ import annotations

import click

from ..errors import needs
from .group import cli
from .options import as_json, say, show


@cli.command()
@click.argument("certificates", nargs=-1, required=True, type=click.Path(exists=True))
@as_json
def verify(certificates: tuple[str, ...], as_json: bool) -> int:
    """Prove the ends of certificates, or report the ends that fail.

    The program for this shares no arithmetic with the rest of the package: it is the script
    benchmarks/check_certificate.py. Exit codes: 0 all proved, 1 an end is wrong, 2 refused, 3 an
    end was not decided.

    \b
    Example, of a certificate that --certificate wrote:
      fedprivacy epsilon --noise-multiplier 1.1 --sampling-probability 0.01 \\
          --rounds 1000 --delta 1e-5 --adjacency add_remove --certificate run.json
      fedprivacy verify run.json
    """  # noqa: D301
    with needs("verify", "'fedprivacy[verify]'", "flint"):
        from .. import check_certificate
    found = [(path, *check_certificate.read(path)) for path in certificates]

    def text() -> None:
        for path, _, verdict in found:
            say(f"{path}: {verdict}")

    files = [{"file": path, "exit_code": code, "said": verdict} for path, code, verdict in found]
    show({"certificates": files}, as_json, text)
    return max(code for _, code, _ in found)
