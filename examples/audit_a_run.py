"""I audit: a claim about another party's run, from the log of that run.

The log has cohorts of exactly 100 of 6,000 clients, and noise of 2.8 on a sum clipped to 2. The
claim is the epsilon of Poisson sampling at the same rate.

A demonstration: the log is made up.

Prints::

    FAILS, according to an imported record
    epsilon is at least 3.21... at delta = 7e-05, attained by two ...; 0.6303 was claimed.
    0.6303 would hold for Poisson sampling at the same rate (0.63...). ...
    page.html
"""

from pathlib import Path

import fedprivacy as fp

rounds = [f"{number},2.8,2.0,100,6000,fixed" for number in range(180)]
header = "round,noise_std,clip_norm,cohort,population,sampling"
Path("log.csv").write_text("\n".join([header, *rounds]), encoding="utf-8")

found = fp.audit("log.csv", claim=(0.6303, 7e-5), adjacency="add_remove")
print(found.statement)
for reason in found.reasons[:2]:
    print(reason)
print(fp.report(found, "page.html", subject="the claim of a friend").name)
