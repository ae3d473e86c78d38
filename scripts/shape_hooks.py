"""Installed hooks: behaviour that one object gets from another after it was made.

Two forms are found. A *write* sets an attribute of an object other than ``self`` to something that
acts: a function, a bound method, or an object whose class is no value. A *setter* is a method that
does nothing but keep such a thing. Types are told by what the whole source says about names, so a
finding is a place to look at; ``# shape: state`` on its line says that it was looked at and is no
wiring.
"""

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from shape_source import FUNCTIONS, Function, Source, fields, is_self

LOOKED_AT = "# shape: state"
VALUES = {"dataclass", "Struct", "NamedTuple", "Enum", "IntEnum", "StrEnum", "IntFlag", "TypedDict"}


@dataclass(frozen=True, slots=True)
class Hook:
    """Behaviour that is set from outside."""

    where: str
    text: str


@dataclass(slots=True)
class Names:
    """What the source says about its names."""

    functions: set[str] = field(default_factory=set)  # functions and methods, not properties
    results: dict[str, ast.expr] = field(default_factory=dict)  # of functions that say their type
    callables: set[str] = field(default_factory=set)  # aliases of Callable, protocols of a call
    actors: set[str] = field(default_factory=set)  # classes that are no values
    attributes: set[str] = field(default_factory=set)  # of instances
    holding: set[str] = field(default_factory=set)  # attributes that are declared to hold a call
    data: set[str] = field(default_factory=set)  # attributes that are declared to hold a value
    emptied: set[str] = field(default_factory=set)  # attributes that lose what they hold again


def hooks(found: Sequence[Source], stubs: Sequence[Source] = ()) -> list[Hook]:
    """Return every hook of a source tree, by place; ``stubs`` tell about compiled modules."""
    names = learned(found)
    names.attributes |= learned(stubs).attributes
    return [hook for source in found for hook in _hooks_of(source, names)]


def learned(found: Iterable[Source]) -> Names:
    """Read what all files say about names."""
    names = Names()
    trees = [source.tree for source in found]
    for node in (node for tree in trees for node in tree.body):
        if (alias := _callable_alias(node)) is not None:
            names.callables.add(alias)
    for node in (node for tree in trees for node in ast.walk(tree)):
        if isinstance(node, ast.ClassDef):
            _learn_class(node, names)
        elif isinstance(node, FUNCTIONS) and not _is_property(node):
            names.functions.add(node.name)
            if node.returns is not None:
                names.results[node.name] = node.returns
    for node in (node for tree in trees for node in ast.walk(tree)):
        _learn_stores(node, names)
    return names


def _callable_alias(node: ast.stmt) -> str | None:
    """Return the name of an alias such as ``Done = Callable[…]``."""
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        target: ast.expr = node.targets[0]
    elif isinstance(node, ast.AnnAssign) and node.value is not None:
        target = node.target
    else:
        return None
    is_alias = isinstance(target, ast.Name) and "Callable[" in ast.unparse(node.value or target)
    return target.id if is_alias and isinstance(target, ast.Name) else None


def _learn_class(node: ast.ClassDef, names: Names) -> None:
    said = [ast.unparse(part) for part in (*node.bases, *node.decorator_list)]
    is_value = any(word.split("(")[0].split(".")[-1] in VALUES for word in said)
    methods = {part.name for part in node.body if isinstance(part, FUNCTIONS)}
    if "Protocol" in said and "__call__" in methods:
        names.callables.add(node.name)
    elif not is_value and any(not name.startswith("__") for name in methods):
        names.actors.add(node.name)
    for name, annotation in fields(node).items():
        names.attributes.add(name)
        (names.holding if _is_call(annotation, names) else names.data).add(name)
    for part in node.body:
        if isinstance(part, ast.FunctionDef) and _is_property(part):
            names.data.add(part.name)
        if isinstance(part, FUNCTIONS) and part.name == "__init__":
            _learn_init(part, names)


def _learn_init(node: Function, names: Names) -> None:
    """Learn what attributes are from the parameters and types that they begin with."""
    types = parameters(node)
    for inner in ast.walk(node):
        for target, value in _stores(inner):
            if not is_self(target):
                continue
            names.attributes.add(target.attr)
            said = inner.annotation if isinstance(inner, ast.AnnAssign) else None
            if said is None and isinstance(value, ast.Name):
                said = types.get(value.id)
            if isinstance(value, ast.Lambda) or (said is not None and _is_call(said, names)):
                names.holding.add(target.attr)
            else:
                names.data.add(target.attr)


def _learn_stores(node: ast.AST, names: Names) -> None:
    for target, value in _stores(node):
        if isinstance(value, ast.Constant) and value.value is None and not is_self(target):
            names.emptied.add(target.attr)


def _is_property(node: Function) -> bool:
    said = {ast.unparse(each).split(".")[-1] for each in node.decorator_list}
    return bool(said & {"property", "cached_property", "setter"})


def parameters(node: Function) -> dict[str, ast.expr]:
    """Return the parameters that say their type."""
    every = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
    return {each.arg: each.annotation for each in every if each.annotation is not None}


def _is_call(annotation: ast.expr, names: Names) -> bool:
    words = _words(annotation)
    return "Callable" in words or bool(words & names.callables)


def _is_actor(annotation: ast.expr, names: Names) -> bool:
    """Say whether one object that acts is meant, not a list of them."""
    if any(isinstance(node, ast.Subscript) for node in ast.walk(annotation)):
        return False
    return bool(_words(annotation) & names.actors)


def _words(annotation: ast.expr) -> set[str]:
    """Return the class names in an annotation, also in one that is written as text."""
    found: set[str] = set()
    for node in ast.walk(annotation):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found |= _words(ast.parse(node.value, mode="eval").body)
    return found


def _stores(node: ast.AST) -> Iterator[tuple[ast.Attribute, ast.expr]]:
    """Yield the attributes that a statement sets, with what they are set to."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from _paired(target, node.value)
    elif isinstance(node, ast.AnnAssign) and node.value is not None:
        yield from _paired(node.target, node.value)


def _paired(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.Attribute, ast.expr]]:
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for left, right in zip(target.elts, value.elts, strict=False):
            yield from _paired(left, right)
    elif isinstance(target, ast.Attribute):
        yield target, value


@dataclass(frozen=True, slots=True)
class Scope:
    """What a function can name: types of its own names, methods of its class, its module's."""

    types: Mapping[str, ast.expr]
    methods: frozenset[str]
    functions: frozenset[str]


def _hooks_of(source: Source, names: Names) -> Iterator[Hook]:
    lines = source.text.splitlines()
    functions = _module_functions(source.tree, names)
    for function, methods in _functions(source.tree):
        scope = Scope(_types(function, names), methods, functions - _bound(function))
        found = [*_writes(function, scope, names)]
        if is_setter(function, scope, names):
            found.append((function.lineno, f"def {function.name} keeps what it is given"))
        for number, text in found:
            if LOOKED_AT not in lines[number - 1]:
                yield Hook(f"{source.path}:{number}", text)


def _module_functions(tree: ast.Module, names: Names) -> frozenset[str]:
    """Return the functions that the file defines or imports from another."""
    found = {node.name for node in tree.body if isinstance(node, FUNCTIONS)}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom):
            imported = {alias.asname or alias.name for alias in node.names}
            found |= imported & names.functions
    return frozenset(found)


def _functions(
    node: ast.AST, methods: frozenset[str] = frozenset()
) -> Iterator[tuple[Function, frozenset[str]]]:
    """Yield each function with the methods of the class that it is in."""
    for part in ast.iter_child_nodes(node):
        if isinstance(part, ast.ClassDef):
            own = {f.name for f in part.body if isinstance(f, FUNCTIONS) and not _is_property(f)}
            yield from _functions(part, frozenset(own))
            continue
        if isinstance(part, FUNCTIONS):
            yield part, methods
        yield from _functions(part, methods)


def _own(function: Function) -> Iterator[ast.AST]:
    """Go through a function without the functions in it."""
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop(0)
        yield node
        if not isinstance(node, FUNCTIONS):
            waiting += ast.iter_child_nodes(node)


def _bound(function: Function) -> frozenset[str]:
    """Return the names that are the function's own, so that no function of the file is meant."""
    every = (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
    stored = {
        node.id
        for node in _own(function)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    return frozenset(stored | {each.arg for each in every})


def _types(function: Function, names: Names) -> dict[str, ast.expr]:
    """Return what the function says about the types of its own names."""
    found = parameters(function)
    for node in _own(function):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            called = node.value.func
            if isinstance(called, ast.Name) and called.id in names.actors:
                found |= {t.id: called for t in node.targets if isinstance(t, ast.Name)}
        elif isinstance(node, FUNCTIONS):
            found[node.name] = ast.Name("Callable")
    return found


def _writes(function: Function, scope: Scope, names: Names) -> Iterator[tuple[int, str]]:
    """Yield the lines that give behaviour to an object other than ``self``."""
    for node in _own(function):
        for target, value in _stores(node):
            if is_self(target) or target.attr not in names.attributes:
                continue
            if acts(value, scope, names) or _installs(target, value, scope, names):
                text = f"{ast.unparse(target)} = {ast.unparse(value)}"
                yield value.lineno, text[:100]


def acts(value: ast.expr, scope: Scope, names: Names) -> bool:
    """Say whether a value is a function or a bound method."""
    match value:
        case ast.Lambda():
            return True
        case ast.Call(func=ast.Name(id="partial")):
            return True
        case (
            ast.Call(func=ast.Name(id=called))
            | ast.Call(func=ast.Attribute(value=ast.Name(id="self"), attr=called))
        ):
            result = names.results.get(called)
            return result is not None and _is_call(result, names)
        case ast.IfExp(body=body, orelse=orelse):
            return acts(body, scope, names) or acts(orelse, scope, names)
        case ast.Name(id=name):
            said = scope.types.get(name)
            return name in scope.functions if said is None else _is_call(said, names)
        case ast.Attribute(value=ast.Name(id="self"), attr=name) if name in scope.methods:
            return True
        case ast.Attribute(attr=name):
            return name in names.functions | names.holding and name not in names.data
    return False


def _installs(target: ast.Attribute, value: ast.expr, scope: Scope, names: Names) -> bool:
    """Say whether the value is an object that acts, put where nothing takes it away again."""
    if target.attr in names.emptied:
        return False
    match value:
        case ast.Name(id="self"):
            return True
        case ast.Name(id=name):
            return name in scope.types and _is_actor(scope.types[name], names)
        case (
            ast.Call(func=ast.Name(id=called))
            | ast.Call(func=ast.Attribute(value=ast.Name(id="self"), attr=called))
        ):
            result = names.results.get(called)
            return called in names.actors or (result is not None and _is_actor(result, names))
    return False


def is_setter(function: Function, scope: Scope, names: Names) -> bool:
    """Say whether a method does nothing but keep behaviour that it is given."""
    body = [node for node in function.body if not _is_docstring(node)]
    if function.name == "__init__" or not all(isinstance(node, ast.Assign) for node in body):
        return False
    kept = [pair for node in body for pair in _stores(node)]
    given = [
        value.id
        for target, value in kept
        if is_self(target) and isinstance(value, ast.Name) and value.id in scope.types
    ]
    said = [scope.types[name] for name in given]
    behaviour = [each for each in said if _is_call(each, names) or _is_actor(each, names)]
    return bool(behaviour) and len(given) == len(kept)


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
