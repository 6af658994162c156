"""What each layer may import, and that the engine runs on four packages alone."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.checkpoint import read_checkpoint
from engine.prepared import Prepared, write_prepared

ROOT = Path(__file__).parents[3]
LAYERS = ("engine", "deployments", "serve_app", "client", "cluster")

# package -> what it may not import anywhere, not even inside a function
FORBIDDEN = {
    "engine": {"ray", "starlette", "fastapi", "httpx", "httpx2", "pydantic", "uvicorn"}
    | {"deployments", "serve_app", "client", "cluster", "benchmarks", "training", "tests"},
    "deployments": {"serve_app", "client", "cluster", "benchmarks", "training", "tests"},
    # of `cluster` the policy that scales the model, which itself imports nothing of ours
    "serve_app": {"client", "benchmarks", "training", "tests"},
    "client": {"benchmarks", "training", "tests"},
}

# the distributions that `import engine` may need, with their own dependencies
ALONE = """
import importlib.metadata, re, sys

def closure(*roots):
    names, left = set(), list(roots)
    while left:
        name = re.sub(r"[-_.]+", "-", left.pop()).lower()
        if name in names:
            continue
        try:
            requires = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        names.add(name)
        left += [re.match(r"[\\w.-]+", r)[0] for r in requires if "extra ==" not in r]
    return names

allowed = closure("torch", "torchaudio", "numpy", "safetensors")
owners = importlib.metadata.packages_distributions()
normal = lambda name: re.sub(r"[-_.]+", "-", name).lower()
blocked = {
    module
    for module, distributions in owners.items()
    if not {normal(d) for d in distributions} & allowed
}
blocked -= {"engine", "deployments", "serve_app", "client", "cluster", "__pycache__"}
blocked |= {"deployments", "serve_app", "client"}
refused = []

class Without:
    # a finder to which the blocked packages are not installed
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in blocked:
            refused.append(name)
            return None
        return self.finder.find_spec(name, path, target)

sys.meta_path[:] = [Without(finder) for finder in sys.meta_path]
for name in ("ray", "yaml", "av", "pydantic", "funasr", "huggingface_hub", "modelscope", "scipy"):
    assert name in blocked, name
"""

INFER = """
import engine
assert "torch" not in sys.modules, "import engine alone must not cost torch's import"
from engine import EmotionError, ModelError
assert "torch" not in sys.modules
from engine import Engine
import numpy as np
model = Engine.load(sys.argv[1], device="cpu")
wave = np.random.default_rng(0).standard_normal(16_000).astype(np.float32)
[emotions] = model.infer([wave])
assert abs(sum(emotions.scores.values()) - 1) < 1e-5
print(emotions.label, emotions.frame_logits.shape)
# torch asks for some packages itself, and does without
mine = [name for name in refused if name.partition(".")[0] in ("yaml", "av", "ray", "pydantic")]
assert not mine, mine
"""


def run(script: str, *arguments: str) -> str:
    process = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert process.returncode == 0, process.stderr
    return process.stdout


def test_the_engine_runs_where_only_four_packages_are(tiny: Path, tmp_path: Path) -> None:
    write_prepared(tmp_path, Prepared(read_checkpoint(tiny), "tiny", "local"))
    assert "(49, 9)" in run(ALONE + INFER, str(tmp_path))


def test_the_client_imports_neither_torch_nor_ray() -> None:
    if not (ROOT / "client" / "__init__.py").is_file():
        pytest.skip("there is no client here yet")
    run(
        "import sys\n"
        "for name in ('torch', 'ray', 'torchaudio', 'numpy', 'av'): sys.modules[name] = None\n"
        "import client\n"
        "assert not {'engine.engine', 'deployments', 'serve_app'} & set(sys.modules)"
    )


@pytest.mark.parametrize("layer", LAYERS)
def test_imports_point_downwards(layer: str) -> None:
    forbidden = FORBIDDEN.get(layer, set())
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in sorted((ROOT / layer).rglob("*.py"))
        for name, line in imported(path)
        if name.partition(".")[0] in forbidden
    ]
    assert not wrong


def test_of_cluster_only_the_scaling_policy_is_below_the_application() -> None:
    policy = {"cluster.autoscaling", "cluster.scaled"}
    used = {
        name
        for path in (ROOT / "serve_app").rglob("*.py")
        for name, _ in imported(path)
        if name.partition(".")[0] == "cluster"
    }
    assert used <= policy
    for module in policy:
        path = ROOT / f"{module.replace('.', '/')}.py"
        ours = {name for name, _ in imported(path) if name.partition(".")[0] in LAYERS}
        assert ours <= policy


def test_nothing_relative_hides_an_import() -> None:
    # the walk above reads absolute names only
    for layer in LAYERS:
        for path in (ROOT / layer).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                assert not (isinstance(node, ast.ImportFrom) and node.level > 1), path


def imported(path: Path) -> Iterator[tuple[str, int]]:
    """Every module that a file imports, by statement or by a literal name, and its line."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module, node.lineno
        elif (
            isinstance(node, ast.Call)
            and ast.unparse(node.func) in ("__import__", "import_module", "importlib.import_module")
            and node.args
            and isinstance(node.args[0], ast.Constant)
        ):
            yield str(node.args[0].value), node.lineno
