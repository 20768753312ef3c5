"""How a modular file imports from its neighbours."""

from __future__ import annotations

from collections.abc import Iterable

from modular_converter.findings import Finding, Location, Rule, did_you_mean


UNKNOWN_NEIGHBOUR = Rule("MC104", "unknown-neighbour", "the imported model file does not exist")


def not_installed(location: Location, module: str, package: str) -> Finding:
    """`module` as written in the import; `package` is neither installed here nor found beside the modular file."""
    return UNKNOWN_NEIGHBOUR.finding(
        location,
        f"`{module}` does not exist: there is no package `{package}` in this environment",
        help=f"Run `pip install {package}`. In `.pre-commit-config.yaml`, give the hook "
        f'`additional_dependencies: ["{package}"]` with the version that you use.',
    )


def unknown_neighbour(location: Location, module: str, path: str, *, candidates: Iterable[str] = ()) -> Finding:
    """`module` as written in the import, `path` where it was looked for, `candidates` modules that do exist."""
    return UNKNOWN_NEIGHBOUR.finding(
        location,
        f"`{module}` does not exist: there is no {path}",
        help=did_you_mean(module, candidates)
        + "Correct the import, convert the neighbour's own modular file in the same run, or give `--root`.",
    )


CONFIG_FROM_MODELING = Rule("MC106", "config-from-modeling", "a configuration class is imported from a modeling file")


def config_from_modeling(location: Location, name: str, module: str) -> Finding:
    """`module` is the `modeling_*` module as written in the import."""
    right = module.replace("modeling_", "configuration_")
    return CONFIG_FROM_MODELING.finding(
        location,
        f"configuration class `{name}` is imported from `{module}`",
        help=f"Write `from {right} import {name}`.",
    )


IMPORT_FROM_PACKAGE_ROOT = Rule(
    "MC107", "import-from-package-root", "a name is imported from the package root instead of its defining module"
)


def import_from_package_root(location: Location, name: str, package: str, *, module: str = "") -> Finding:
    """`module` is the defining module, where it is known."""
    return IMPORT_FROM_PACKAGE_ROOT.finding(
        location,
        f"`{name}` is imported from the root of `{package}`",
        help=f"Import it from its defining module: `from {module or f'{package}.<module>'} import {name}`.",
    )


CYCLE = Rule("MC110", "cycle", "modular files depend on each other in a circle")


def cycle(location: Location, members: tuple[str, ...]) -> Finding:
    """`members` are the modular files or models of the circle in the order in which each needs the next."""
    return CYCLE.finding(
        location,
        f"modular files depend on each other in a circle: {' -> '.join((*members, members[0]))}",
        help="Let one of them import from a model outside the circle, or write the class out in full there.",
    )


MISSING_MODULE = Rule("MC326", "missing-module", "generated code imports from a module beside it that does not exist")


def missing_module(location: Location, module: str, path: str, comes_from: str = "", instead: str = "") -> Finding:
    """`module` is the name in the import; `path` is the file that was searched, relative to the modular file.

    Args:
        comes_from: the place of the import in a neighbour whose code has it.
        instead: the import of the modular file that would replace it.
    """
    whose = f", imported by code that comes along from {comes_from}," if comes_from else ""
    help = "Correct the import, write the module, or define in the modular file what you import from it."
    if comes_from:
        help = "Write the module, or override the function with an import of your own."
    if instead:
        help = f"Write the module, or import in the modular file what lies beside the parent: `{instead}`."
    return MISSING_MODULE.finding(
        location,
        f"`{module}`{whose} does not exist: there is no {path}, and none is generated",
        help=help,
    )
