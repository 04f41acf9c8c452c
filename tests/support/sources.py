"""The project's own source files, parsed once, for the tests of the code's style and structure."""
import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@cache
def paths(folder: str = "rmqha") -> tuple[str, ...]:
    """Return the path of every module below `folder`, relative to the root."""
    return tuple(str(file.relative_to(ROOT)) for file in sorted((ROOT / folder).rglob("*.py")))


@cache
def modules() -> dict[str, ast.Module]:
    """Return every module of rmqha: path relative to the root -> syntax tree."""
    return {path: ast.parse((ROOT / path).read_text("utf-8"), str(ROOT / path)) for path in paths()}


@cache
def nodes() -> dict[str, tuple[ast.AST, ...]]:
    """Return every node of every module of rmqha, by path."""
    return {path: tuple(ast.walk(tree)) for path, tree in modules().items()}


@cache
def lines(path: str) -> list[str]:
    """Return the lines of one file, path relative to the root."""
    return (ROOT / path).read_text("utf-8").splitlines()


def imports(tree: ast.Module, run_time_only: bool = True) -> list[tuple[str, int]]:
    """Return (dotted module, line) of each import; those under `if TYPE_CHECKING` are left out unless requested.

    `from rmqha.store import ha` counts as `rmqha.store.ha` too: layering is about the longer name.
    """
    found: list[tuple[str, int]] = []

    def visit(node: ast.AST) -> None:
        if run_time_only and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for child in node.orelse:
                visit(child)
            return
        if isinstance(node, ast.Import):
            found.extend((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.extend((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(tree)
    return found
