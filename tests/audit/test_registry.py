"""Tests of ``fedprivacy.audit.registry``."""

import pytest

import fedprivacy as fp
from fedprivacy.audit import registry as deployments
from tests.contract.test_refused_calls import RUN

STEP = fp.Gaussian(noise_multiplier=1.0, unit="client")
# ---- what a registry of deployments asks for

SAID = {
    "data_curators": ["A hospital"],
    "registry_authors": ["B", "C"],
    "publication_date": "2026-11-23",
}
"""Fields of a form of their own; every other one is some text."""


def deployment(**changed):
    given = dict.fromkeys(deployments.REQUIRED, "be a non-empty string") | {
        name: value for name, value in SAID.items() if name in deployments.REQUIRED
    }
    return {**given, **changed}


def test_a_whole_deployment_is_taken():
    found = deployments.entry(AUDITED, deployment(name="Größe 1!"))
    assert found["url_slug"] == "gr_e_1" and found["status"] == "Draft"
    assert set(deployment()) >= set(SAID)


AUDITED = fp.audit(RUN, claim=(9.0, 1e-5), adjacency="zero_out")


@pytest.mark.parametrize("name", deployments.REQUIRED)
def test_a_deployment_without_a_field_is_asked_for_it(name):
    given = deployment()
    del given[name]
    with pytest.raises(fp.ParameterError) as caught:
        deployments.entry(AUDITED, given)
    told = f"deployment[{name!r}] must be given: {deployments.REQUIRED[name]}, got None"
    assert str(caught.value) == told


@pytest.mark.parametrize("name", deployments.REQUIRED)
@pytest.mark.parametrize("value", ["", "  ", 3, None, [], [""], {"a": "b"}], ids=repr)
def test_a_field_of_another_form_is_refused(name, value):
    with pytest.raises(fp.ParameterError) as caught:
        deployments.entry(AUDITED, deployment(**{name: value}))
    forms = {"data_curators": "be a list of names", "registry_authors": "be a list of names"}
    forms["publication_date"] = "be a date, YYYY-MM-DD"
    told = str(caught.value)
    wanted = f"deployment[{name!r}] must {forms.get(name, 'be ')}"
    assert told.startswith(wanted) and told.endswith(f"got {value!r}")


@pytest.mark.parametrize("text", ["23.11.2026", "2026-13-01", "20261123", "2026-11-23T00:00"])
def test_a_date_of_another_form_is_refused(text):
    with pytest.raises(fp.ParameterError, match=r"publication_date.*must be a date, YYYY-MM-DD"):
        deployments.entry(AUDITED, deployment(publication_date=text))


def test_a_field_that_nobody_asks_for_is_refused():
    with pytest.raises(fp.ParameterError) as caught:
        deployments.entry(AUDITED, deployment(colour="blue"))
    told = str(caught.value)
    assert told.startswith("deployment['colour'] must be one of the fields ")
    assert all(name in told for name in (*deployments.REQUIRED, *deployments.OPTIONAL))
