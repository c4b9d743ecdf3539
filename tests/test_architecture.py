"""Allowed imports, and the sizes of functions and modules, read from the source."""

import ast
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.arrows import ARROWS
from tests.common import ROOT, statements, tree_of

PACKAGE = ROOT / "fedprivacy"

ROOTS = {"cli", "__init__", "__main__", "public"}
"""Where everything comes together; they may import every part."""

FACES = {"training/__init__.py": {"systems"}}
"""Files that lend names from above, and only when they are asked for."""

SYSTEM_FILES = {"__init__", "loop"}
"""Every system has these files; FURTHER are a loop's own parts, and what a loop asks for."""
FURTHER = {
    "averaging": {"scaffold", "clients", "collect", "upload", "rows", "server", "state", "epochs"},
    "fa_hmc": {"law"},
    "fa_ld": {"law"},
    "fed_plt": {"agents", "bounds", "proximal", "solvers"},
    "projected": {"averaging", "hidden"},
}

TRAINS = {
    "training",
    "integrations/flower",
    "integrations/nvflare",
    "integrations/opacus",
    "integrations/lightning",
    "integrations/accelerate",
    "systems/averaging/loop",
    "systems/averaging/clients",
    "systems/averaging/collect",
    "systems/averaging/epochs",
    "systems/averaging/upload",
    "systems/averaging/rows",
    "systems/averaging/server",
    "systems/averaging/state",
    "systems/averaging/scaffold",
    "systems/fa_ld/loop",
    "systems/fa_hmc/loop",
    "systems/fed_plt/loop",
    "systems/projected/averaging",
    "systems/projected/hidden",
    "systems/projected/loop",
    "systems/fed_plt/agents",
    "systems/fed_plt/proximal",
    "systems/fed_plt/solvers",
    "reproductions/chains",
    "reproductions/fed_plt/algorithms",
    "reproductions/fed_plt/measuring",
    "reproductions/fed_plt/rows",
    "reproductions/fedavg_two_sided/runs",
    "reproductions/fed_smp/runs",
    "reproductions/fed_smp/settings",
    "runs/demo",
    "runs/experiment",
    "runs/jobs",
    "runs/own_data",
    "runs/planting",
    "runs/sources",
    "runs/private_sweep",
    "runs/sweep",
    "runs/progress_logging",
}
"""What needs torch: nothing else may import it, but for a command at the moment it runs."""

AT_WORK = {"cli", "runs/attack_targets", "runs/methods"}
"""What may import it inside a function: a command, an attack on a loop by its name, or a method."""

LAZY = {
    "portalocker",
    "flint",
    "flwr",
    "nvflare",
    "lightning",
    "accelerate",
    "starlette",
    "uvicorn",
    "markupsafe",
    "torch",
    "arviz_stats",
    "arviz_base",
    "arviz",
    "tensorboard",
    "mlflow",
    "scipy.linalg",
    "matplotlib",
    "pandas",
    "dp_accounting",
    "scipy.optimize",
    "scipy.stats",
    "joblib",
    "opacus",
    "prv_accountant",
    "jinja2",
    "ssl",
    "yaml",
}
"""Slow to import: inside functions only, except where the whole part needs them."""

HOMES = {
    "flint": {"check_certificate"},
    "torch": TRAINS | {"audit/imports/opacus", "integrations/opacus", "runs/methods"},
    "arviz_stats": {"training"},
    "arviz_base": {"training"},
    "arviz": {"training"},
    "mlflow": {"runs/progress_logging"},
    "dp_accounting": {"integrations"},
    "joblib": {"audit/attacks", "runs/parallel", "systems/averaging/clients"},
    "opacus": {"integrations/opacus", "integrations/peers"},
    "lightning": {"integrations/lightning"},
    "accelerate": {"integrations/accelerate"},
    "prv_accountant": {"integrations/peers"},
    "flwr": {"integrations/flower"},
    "nvflare": {"integrations/nvflare"},
    "starlette": {"page/server"},
    "uvicorn": {"page/server"},
    "markupsafe": {"page"},
}
"""Where a heavy package may be imported at all."""

SLOW_PARTS = {
    "flint": {"check_certificate"},
    "torch": TRAINS | {"integrations/opacus"},
    "opacus": {"integrations/opacus"},
    "lightning": {"integrations/lightning"},
    "accelerate": {"integrations/accelerate"},
    "dp_accounting": {"integrations"},
    "flwr": {"integrations/flower"},
    "nvflare": {"integrations/nvflare"},
    "starlette": {"page/server"},
    "uvicorn": {"page/server"},
    "markupsafe": {"page"},
}
"""Parts that may import a heavy package at once: they are imported late themselves."""

MAX_FUNCTION = 80
MAX_MODULE = 600
MAX_BRANCHES = 12
"""Of a function: 1, and 1 for every condition, loop, except, case, comprehension, and, or."""
MAX_NESTING = 3
"""Of conditions, loops, with and try in each other; an elif is as deep as its if."""
ALONE = {"check_certificate.py"}
"""One file that is also read and run by itself, without the package."""


def files() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def name_of(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


def part_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def stands_in(path: Path, places: set[str]) -> bool:
    """Return whether a file is one of the places, or in one: "training", "runs/sweep"."""
    return is_in(name_of(path).removesuffix(".py"), places)


def is_in(module: str, places: set[str]) -> bool:
    """Return whether a module, written with slashes, is one of the places or in one."""
    return any(module == place or module.startswith(place + "/") for place in places)


def absolute(path: Path, node: ast.ImportFrom) -> str:
    """Return the dotted module that a from-import names."""
    if not node.level:
        return node.module or ""
    package = ("fedprivacy", *path.relative_to(PACKAGE).parts[:-1])
    base = package[: len(package) - node.level + 1]
    return ".".join([*base, *([node.module] if node.module else [])])


@cache
def imports(path: Path, tree: ast.AST | None = None) -> list[str]:
    """Return every dotted name imported in a file, `from a import b` as a.b."""
    found = []
    for node in statements(tree or tree_of(path)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = absolute(path, node)
            found += [f"{module}.{alias.name}" for alias in node.names]
    return found


def inner_parts(path: Path) -> set[str]:
    """Return the parts of this package that a file imports, but for its own."""
    dotted = [name.split(".") for name in imports(path)]
    parts = {name[1] for name in dotted if name[0] == "fedprivacy" and len(name) > 1}
    return parts - {part_of(path), "__version__"}


def functions(tree: ast.AST) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return [node for node in statements(tree) if isinstance(node, kinds)]


@cache
def inside_functions(tree: ast.AST) -> set[int]:
    """Return the ids of the import statements that run only when a function is called."""
    kinds = (ast.Import, ast.ImportFrom)
    return {id(n) for f in functions(tree) for n in statements(f) if isinstance(n, kinds)}


@cache
def for_types_only(tree: ast.AST) -> set[int]:
    """Return the ids of the import statements under ``if TYPE_CHECKING``."""
    blocks = [
        node
        for node in statements(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
    ]
    return {id(n) for block in blocks for statement in block.body for n in statements(statement)}


def is_of(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


def every_file(check):
    """Return one test that makes a check of every file and names all files that fail."""

    def test():
        wrong = {}
        for path in files():
            try:
                check(path)
            except AssertionError as error:
                wrong[name_of(path)] = str(error)
        assert not wrong

    test.__doc__ = check.__doc__
    return test


@every_file
def test_arrows(path):
    part = part_of(path)
    if part in ROOTS:
        return
    assert part in ARROWS, f"{part} is a new part: say in ARROWS what it may import"
    assert inner_parts(path) <= ARROWS[part] | FACES.get(name_of(path), set())


def test_no_cycle_between_parts():
    arrows: dict[str, set[str]] = {}
    for path in files():
        if part_of(path) not in ("__init__", "__main__"):
            lent = FACES.get(name_of(path), set())
            arrows.setdefault(part_of(path), set()).update(inner_parts(path) - lent)
    while arrows:
        free = {part for part, needs in arrows.items() if not needs & arrows.keys()}
        assert free, f"an import cycle runs through {sorted(arrows)}"
        arrows = {part: needs for part, needs in arrows.items() if part not in free}


@every_file
def test_heavy_packages_stay_at_home(path):
    for name in imports(path):
        for package, homes in HOMES.items():
            assert not is_of(name, package) or stands_in(path, homes), name


@every_file
def test_heavy_packages_are_imported_late(path):
    tree = tree_of(path)
    late = inside_functions(tree) | for_types_only(tree)
    for node in statements(tree):
        if not isinstance(node, ast.Import | ast.ImportFrom) or id(node) in late:
            continue
        for name in imports(path, node):
            heavy = [
                p for p in LAZY if is_of(name, p) and not stands_in(path, SLOW_PARTS.get(p, set()))
            ]
            assert not heavy, f"line {node.lineno} imports {name} whenever the module is imported"


@every_file
def test_imports_inside_functions_are_for_heavy_things_only(path):
    tree = tree_of(path)
    late = inside_functions(tree)
    allowed = {
        *LAZY,
        "fedprivacy.runs.progress",
        "fedprivacy.runs.planting",
        "fedprivacy.training",
        "fedprivacy.audit",
        "fedprivacy.integrations",
        "fedprivacy.systems.averaging.server",
        "fedprivacy.systems.fed_plt.proximal",
    }
    for node in statements(tree):
        if isinstance(node, ast.Import | ast.ImportFrom) and id(node) in late:
            for name in imports(path, node):
                heavy = any(is_of(name, package) for package in allowed)
                assert heavy or part_of(path) in ROOTS, f"line {node.lineno}: {name}"


def test_only_a_command_at_work_imports_training():
    for path in files():
        tree = tree_of(path)
        late = inside_functions(tree) | for_types_only(tree)
        for node in statements(tree):
            if not isinstance(node, ast.Import | ast.ImportFrom) or stands_in(path, TRAINS):
                continue
            dotted = [name.split(".") for name in imports(path, node)]
            inner = ["/".join(name[1:]) for name in dotted if name[0] == "fedprivacy"]
            trains = any(is_in(name, TRAINS) for name in inner)
            at_work = stands_in(path, AT_WORK) and id(node) in late
            assert not trains or at_work, name_of(path)


def test_every_system_has_the_same_rooms():
    rooms = sorted(path for path in (PACKAGE / "systems").iterdir() if path.is_dir())
    for room in (room for room in rooms if room.name != "__pycache__"):
        held = {path.stem for path in room.glob("*.py")}
        assert held == SYSTEM_FILES | FURTHER.get(room.name, set()), room.name


def test_only_the_published_claims_reproductions_and_commands_import_papers():
    importers = {part_of(path) for path in files() if "papers" in inner_parts(path)}
    assert importers == {"cli", "published", "public", "reproductions"}


def test_only_a_command_at_work_imports_reproductions():
    for path in files():
        late = inside_functions(tree_of(path)) | for_types_only(tree_of(path))
        for node in statements(tree_of(path)):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [name.split(".")[1:2] for name in imports(path, node)]
                own = part_of(path) == "reproductions"
                at_work = part_of(path) == "cli" and id(node) in late
                assert ["reproductions"] not in names or own or at_work, name_of(path)


def test_nothing_imports_papers_before_they_are_used():
    """``import fedprivacy`` and every command start without them."""
    for path in files():
        late = inside_functions(tree_of(path)) | for_types_only(tree_of(path))
        for node in statements(tree_of(path)):
            if isinstance(node, ast.Import | ast.ImportFrom) and id(node) not in late:
                names = [name.split(".")[1:2] for name in imports(path, node)]
                own = part_of(path) in ("papers", "reproductions")
                assert ["papers"] not in names or own, name_of(path)


def mechanism_names() -> set[str]:
    paths = [path for part in ("mechanisms", "sampling") for path in (PACKAGE / part).glob("*.py")]
    nodes = [node for path in paths for node in statements(tree_of(path))]
    return {node.name for node in nodes if isinstance(node, ast.ClassDef)}


@pytest.mark.parametrize("path", sorted((PACKAGE / "accountants").glob("*.py")), ids=name_of)
def test_no_accountant_names_a_mechanism_or_a_scheme(path):
    nodes = list(ast.walk(tree_of(path)))
    used = {node.id for node in nodes if isinstance(node, ast.Name)}
    used |= {name.rpartition(".")[2] for name in imports(path) if "mechanisms" in name}
    curves = {"Sampled"}  # a curve in loss, not the mechanism
    assert not (used & mechanism_names()) - curves


def curve_names() -> set[str]:
    """Return the names of all kinds of curves: classes of loss/curves, and what is made of them."""
    bases = {
        node.name: {base.id for base in node.bases if isinstance(base, ast.Name)}
        for path in files()
        for node in statements(tree_of(path))
        if isinstance(node, ast.ClassDef)
    }
    found = {"Curve"}
    while more := {name for name, above in bases.items() if above & found} - found:
        found |= more
    return found - {"Curve"}


def test_few_places_ask_for_a_kind_of_curve():
    """All others ask for a capability: tails, moments, support, components."""
    kinds, places = curve_names(), []
    assert {"Gdp", "Mix", "Composed", "InnerDraws"} <= kinds
    named = (path for path in files() if any(kind in source_of(path) for kind in kinds))
    for path in named:
        for node in ast.walk(tree_of(path)):
            is_test = isinstance(node, ast.Call) and getattr(node.func, "id", "") == "isinstance"
            asked = node.args[1:] if is_test else []
            if isinstance(node, ast.Compare) and getattr(node.left, "func", None) is not None:
                asked = node.comparators if getattr(node.left.func, "id", "") == "type" else []
            used = {n.id for each in asked for n in ast.walk(each) if isinstance(n, ast.Name)}
            if used & kinds:
                places.append(f"{name_of(path)}:{node.lineno}")
    assert len(places) <= 5, places


def code_lines(node: ast.AST, source: list[str]) -> int:
    """Count lines of a function: no docstring, no comments, no blank lines."""
    body = node.body[1:] if ast.get_docstring(node) else node.body
    if not body:
        return 0
    lines = [source[i].strip() for i in range(node.lineno - 1, body[0].lineno - 1)]
    signature = sum(1 for line in lines if line and not line.startswith(("#", '"""')))
    if ast.get_docstring(node):
        docstring = node.body[0]
        text = source[docstring.lineno - 1 : docstring.end_lineno]
        signature -= sum(1 for t in text if t.strip() and not t.strip().startswith(("#", '"""')))
    inside = source[body[0].lineno - 1 : body[-1].end_lineno]
    return signature + sum(
        1 for line in inside if line.strip() and not line.strip().startswith("#")
    )


@every_file
def test_lengths(path):
    source = path.read_text(encoding="utf-8").splitlines()
    assert len(source) <= MAX_MODULE or name_of(path) in ALONE
    long = {f.name: code_lines(f, source) for f in functions(tree_of(path))}
    assert {name: n for name, n in long.items() if n > MAX_FUNCTION} == {}


DECISIONS = (ast.If, ast.IfExp, ast.For, ast.AsyncFor, ast.While)
DECISIONS += (ast.ExceptHandler, ast.match_case, ast.comprehension)
BLOCKS = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.Match)


def branches(function: ast.AST) -> int:
    """Count the decisions of a function and of those inside it, plus 1."""
    count = 1
    for node in ast.walk(function):
        if isinstance(node, DECISIONS):
            count += 1
        elif isinstance(node, ast.BoolOp):
            count += len(node.values) - 1
    return count


def nesting(node: ast.AST, depth: int = 0) -> int:
    """Return the largest number of blocks around a statement; an inner function starts at 0."""
    deepest, kinds = depth, (ast.stmt, ast.excepthandler, ast.match_case)
    for child in [one for one in ast.iter_child_nodes(node) if isinstance(one, kinds)]:
        follows = isinstance(node, ast.If) and isinstance(child, ast.If) and node.orelse == [child]
        inner = depth + (isinstance(child, BLOCKS) and not follows)
        named = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef))
        deepest = max(deepest, nesting(child, 0 if named else inner))
    return deepest


def test_branches_and_nesting_are_counted():
    text = """
def f(a, b):
    if a and b or not a:
        for x in [y for y in a if y]:
            while x:
                x = 1 if b else 2
    elif b:
        try:
            pass
        except ValueError:
            def g():
                with a:
                    pass
"""
    (function,) = ast.parse(text).body
    assert (branches(function), nesting(function)) == (10, 3)


@every_file
def test_functions_have_few_branches_and_little_nesting(path):
    found = [(f.name, branches(f), nesting(f)) for f in functions(tree_of(path))]
    assert [one for one in found if one[1] > MAX_BRANCHES or one[2] > MAX_NESTING] == []


@every_file
def test_everything_public_has_a_docstring(path):
    tree = tree_of(path)
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    owners = [tree, *(node for node in classes if not node.name.startswith("_"))]
    public = [n for owner in owners for n in owner.body if isinstance(n, kinds)]
    public = [n for n in public if "overload" not in map(ast.unparse, n.decorator_list)]
    bare = [n.name for n in public if not n.name.startswith("_") and not ast.get_docstring(n)]
    assert ast.get_docstring(tree) or not source_of(path), "the module has no docstring"
    assert bare == []


def source_of(path: Path) -> str:
    return path.read_text(encoding="utf-8").strip()


def test_the_standard_library_and_the_declared_packages_are_all():
    declared = {
        "numpy",
        "scipy",
        "dp_accounting",
        "msgspec",
        "click",
        "jinja2",
    }
    declared |= {"matplotlib", "torch", "arviz_stats", "joblib", "fedprivacy"}
    declared |= {"opacus", "prv_accountant", "arviz_base", "arviz", "mlflow", "flint", "flwr"}
    declared |= {"nvflare", "lightning", "accelerate", "portalocker", "yaml", "pytest"}
    declared |= {"starlette", "uvicorn", "markupsafe"}
    for path in files():
        tops = {name.partition(".")[0] for name in imports(path)}
        assert tops - declared - set(sys.stdlib_module_names) == set(), name_of(path)


SUITES = {"contract", "property", "statistical", "benchmarks", "traces", "reference"}
"""Folders of tests that span several modules, and their data."""

WHOLE = {"architecture", "benchmarks", "campaign", "docs", "examples", "import"}
WHOLE |= {"light_core", "names", "recipe", "plain_words", "randomness", "words"}
"""Tests of the repository as a whole, directly in ``tests``."""

MIRRORED = 0.8
"""Least share of the modules that have a test file of their name, or a line in ELSEWHERE."""

ELSEWHERE = {
    "loss/curves": (
        "averages curve discrete discretised_laws finite_support fold laplace lattice mixture"
        " stated triangles worst_of",
        "the tests of strategies and of mechanisms use these curves",
    ),
    "loss/moments": (
        "gaussian_rules legendre mixtures spectrum truncated_moments",
        "loss/strategies/test_inversion, loss/strategies/test_tail_splitting",
    ),
    "loss/strategies": (
        "adaptive_adversary cells direct search second_moment too_large",
        "loss/strategies/test_game, test_queries and test_renyi; accountants/test_responses",
    ),
    "accountants": ("game pld rdp", "contract/test_accountants: all make one promise"),
    "sampling": ("everyone fixed_size poisson", "contract/test_table: all cells of the table"),
    "runs/methods": (
        "canaries dp_fedavg fa_hmc fa_ld fed_plt fed_smp fedavg records",
        "contract/test_jobs, runs/test_attack_targets: every method in turn",
    ),
    "runs": ("planting sources", "runs/test_attack_targets, cli/test_program"),
    "mechanisms": (
        "arrays exact_tails noise streams tensors",
        "mechanisms/test_rounded, mechanisms/test_correlated: parts of the noise",
    ),
    "": ("bound errors relations", "contract/test_refusals and every file of tests"),
    "vectors": ("ours worker", "vectors/test_cases, vectors/test_runner"),
    "page": (
        "forms messages rendering",
        "page/test_plan, page/test_auditing, page/test_server: every form and part",
    ),
    "integrations": (
        "dp_states flower_state opacus_state",
        "integrations/test_dp_accounting, audit/imports: states that the importers read",
    ),
}
"""Room -> modules without a test file of their name, and where their tests are."""


def modules_with_public_code() -> set[str]:
    kinds = (ast.FunctionDef, ast.ClassDef)
    found = set()
    for path in files():
        public = [n for n in tree_of(path).body if isinstance(n, kinds) and n.name[0] != "_"]
        if public and not path.stem.startswith("__"):
            found.add(name_of(path).removesuffix(".py"))
    return found


def listed_elsewhere() -> set[str]:
    return {
        f"{room}/{name}" if room else name
        for room, (names, _) in ELSEWHERE.items()
        for name in names.split()
    }


def test_a_test_file_has_the_name_of_a_module_of_its_room():
    tests = Path(__file__).parent
    for path in sorted(tests.rglob("test_*.py")):
        *room, _ = path.relative_to(tests).parts
        name = path.stem.removeprefix("test_")
        if (room and room[0] in SUITES) or (not room and name in WHOLE):
            continue
        assert PACKAGE.joinpath(*room, f"{name}.py").exists(), path.relative_to(tests)


def test_most_modules_have_a_test_file_of_their_name():
    tests = Path(__file__).parent
    modules, listed = modules_with_public_code(), listed_elsewhere()
    assert listed <= modules, f"no such modules: {sorted(listed - modules)}"
    own = {m for m in modules if (tests / m).with_name(f"test_{Path(m).name}.py").exists()}
    assert not own & listed, (
        f"these have a file: take them out of ELSEWHERE: {sorted(own & listed)}"
    )
    bare = modules - own - listed
    share = 1.0 - len(bare) / len(modules)
    assert share >= MIRRORED, f"only {share:.0%} of the modules have tests: {sorted(bare)}"
