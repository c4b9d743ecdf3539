"""Which part of the package may import which; a test holds it and the documentation prints it."""

BASE = {"errors", "relations", "rounding"}
CORE = BASE | {"bound", "loss", "privacy_loss"}
ARROWS = {
    "errors": set(),
    "relations": set(),
    "rounding": set(),
    "json_fields": set(),
    "outputs": {"errors"},
    "registry": {"errors"},
    "loss": {"errors", "registry", "rounding"},
    "bound": BASE,
    "privacy_loss": BASE | {"loss"},
    "theory": BASE,
    "factors": {"errors", "registry", "outputs", "rounding"},
    "sampling": BASE | {"loss", "privacy_loss", "registry"},
    "mechanisms": BASE | {"sampling", "loss", "privacy_loss", "theory", "registry", "factors"},
    "accountants": CORE | {"registry"},
    "questions": CORE | {"accountants", "factors", "mechanisms", "registry", "ledger", "evidence"},
    "version": set(),
    "check_certificate": set(),
    "vectors": BASE
    | {"bound", "outputs", "mechanisms", "questions", "registry", "integrations", "version"},
    "ledger": BASE
    | {"mechanisms", "sampling", "registry", "version", "factors", "outputs", "json_fields"},
    "evidence": CORE | {"ledger", "mechanisms", "sampling", "factors"},
    "audit": CORE
    | {"ledger", "evidence", "questions", "accountants", "mechanisms", "sampling", "integrations"}
    | {"version", "outputs", "factors", "json_fields"},
    "training": BASE
    | {"mechanisms", "sampling", "ledger", "evidence", "theory", "factors", "outputs"},
    "systems": BASE
    | {"mechanisms", "factors", "sampling", "ledger", "theory", "training", "outputs"},
    "papers": BASE | {"bound", "loss", "mechanisms", "sampling", "theory", "questions", "systems"},
    "published": {"questions", "papers"},
    "reproductions": BASE
    | {"outputs", "mechanisms", "sampling", "ledger", "questions", "theory", "training"}
    | {"systems", "papers"},
    "integrations": CORE
    | {"questions", "accountants", "mechanisms", "sampling", "ledger"}
    | {"training", "systems", "outputs"},
    "page": BASE
    | {"bound", "outputs", "mechanisms", "questions", "runs", "audit", "systems", "vectors"},
    "runs": BASE
    | {"bound", "mechanisms", "sampling", "ledger", "questions", "training"}
    | {"systems", "evidence", "audit", "factors", "outputs"},
}
"""Part -> parts it may import."""
