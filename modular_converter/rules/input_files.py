"""Files that cannot be read, written or found, and how a modular file imports from its neighbours."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from modular_converter.findings import Finding, Location, Rule, did_you_mean


SYNTAX_ERROR = Rule("MC101", "syntax-error", "the file is not valid Python")


def syntax_error(location: Location, reason: str, *, neighbour_of: str = "") -> Finding:
    """`reason` is the parser's own message; `neighbour_of` the modular file that needed this one, if it is another."""
    program = location.path if not location.path.startswith("<") else "FILE"  # standard input has no name
    needed = f" (needed by {neighbour_of})" if neighbour_of else ""
    return SYNTAX_ERROR.finding(
        location,
        f"this is not valid Python {sys.version_info.major}.{sys.version_info.minor}: {reason}{needed}",
        help=f"Correct the file until `python -m py_compile {program}` passes.",
    )


NOT_UTF8 = Rule("MC102", "not-utf8", "the file is not encoded in UTF-8")


def not_utf8(location: Location, byte: int, offset: int) -> Finding:
    """`byte` is the first one that does not fit, `offset` its place in the file from 0."""
    return NOT_UTF8.finding(
        location,
        f"the file is not UTF-8: byte 0x{byte:02x} at offset {offset}",
        help="Save the file as UTF-8.",
    )


def in_the_text(path: str, text: str, position: int) -> Finding:
    """The character of a text at this position, from 0, has no encoding."""
    before = text[:position]
    line, column = before.count("\n") + 1, position - before.rfind("\n")
    return NOT_UTF8.finding(
        Location(path, line, column),
        f"the text cannot be encoded in UTF-8: it holds the lone surrogate U+{ord(text[position]):04X}",
        help="Write the escape of the character in its place, or decode the text without `surrogateescape`.",
    )


def in_the_path(location: Location) -> Finding:
    """`location` is a generated file that would quote a path, as its banner does."""
    return NOT_UTF8.finding(
        location,
        "the path of its modular file is not UTF-8, so the generated file cannot name it",
        help="Rename the folder or file.",
    )


MISSING_FILE = Rule("MC103", "missing-file", "a file or folder does not exist or cannot be read")


def missing_file(location: Location, *, reason: str = "no such file") -> Finding:
    """`reason` says why it cannot be read."""
    return MISSING_FILE.finding(
        location,
        f"cannot read this file: {reason}",
        help="Check the path; it is relative to the current directory. Where models are, `root` in "
        "`[tool.modular-converter]` says, or `--root` of a command that has it.",
    )


def model(location: Location, candidates: Iterable[str]) -> Finding:
    """`location` is what stands in place of the name of a model; `candidates` are the names that exist."""
    return MISSING_FILE.finding(
        location,
        "there is no model of this name",
        help=did_you_mean(location.path, candidates)
        + "Give the name of a model, a folder or a file; `root` in `[tool.modular-converter]` says where models are.",
    )


def no_models(location: Location) -> Finding:
    """A project in which no folder holds models."""
    return MISSING_FILE.finding(
        location,
        "no folder of this project holds models",
        help="A model is a folder `x` with files `KIND_x.py` and classes that are called after it, or a file beside files "
        "with the same classes. Change to the project's folder, or write `[tool.modular-converter]` with "
        '`root = "…"` by hand.',
    )


def folder(location: Location, reason: str) -> Finding:
    """A folder that cannot be listed, so its modular files are unknown."""
    return MISSING_FILE.finding(
        location,
        f"cannot list this folder: {reason}",
        help="Give yourself the right to read the folder (`chmod u+rx`), or remove it.",
    )


NOTHING_TO_CONVERT = Rule("MC111", "nothing-to-convert", "an argument leads to no modular file")


def nothing_to_convert(argument: str, *, reason: str = "", candidates: Iterable[str] = ()) -> Finding:
    """`argument` as given on the command line; `candidates` are models that do have a modular file."""
    return NOTHING_TO_CONVERT.finding(
        Location(argument),
        f"`{argument}` leads to no modular file" + (f": {reason}" if reason else ""),
        help=did_you_mean(argument, candidates)
        + "Give a modular file, a glob, a folder that holds some, a model name, or `all`.",
    )


def not_generated(location: Location, modular: str) -> Finding:
    """A file whose edits cannot be carried; `modular` is the file that its banner names, or ""."""
    if modular:
        return MISSING_FILE.finding(
            location, f"it was generated from {modular}, which is missing", help="Restore that file."
        )
    return NOTHING_TO_CONVERT.finding(
        location, "it is not generated: no modular file gives it", help="Edit it directly."
    )


TOO_LARGE = Rule("MC112", "too-large", "a source file is larger than the limit")


def too_large(location: Location, size: int, limit: int) -> Finding:
    """Both numbers are in bytes."""
    return TOO_LARGE.finding(
        location,
        f"the file has {size:,} bytes, more than the limit of {limit:,}",
        help="Make the file smaller, or raise `max-file-bytes` in `[tool.modular-converter]`.",
    )


ELSEWHERE = "`modular-convert` and its `modularize` write elsewhere with `--output-dir DIR`."
READ_ONLY_TARGET = Rule("MC113", "read-only-target", "a generated file cannot be written")


def read_only_target(location: Location, reason: str, *, is_full: bool = False) -> Finding:
    """`location` is the generated file; `reason` says why it cannot be written; `is_full`, that the disk has no room."""
    return READ_ONLY_TARGET.finding(
        location,
        f"cannot write this file: {reason}",
        help=f"{'Make room on the disk' if is_full else 'Make it writable'}. {ELSEWHERE}",
    )


def installed(location: Location) -> Finding:
    """`location` belongs to an installed package, into which nothing is written."""
    return READ_ONLY_TARGET.finding(
        location,
        "cannot write this file: it belongs to an installed package",
        help=f"Work on a checkout or a copy of the package. {ELSEWHERE}",
    )


def model_exists(location: Location) -> Finding:
    """A new model has files already."""
    return READ_ONLY_TARGET.finding(
        location,
        "this model has Python files already, and a new model takes the place of none",
        help="Choose another name, or move the files away.",
    )


def modular_exists(location: Location) -> Finding:
    """`location` is a modular file that people have written, or may have."""
    return READ_ONLY_TARGET.finding(
        location,
        "this modular file exists, and is not overwritten",
        help="Show the differences with `--diff`, or write elsewhere with `--output-dir DIR`.",
    )


def same_place(location: Location, other: str, output_dir: str) -> Finding:
    """The files of two modular files would have the same path: below `output_dir`, only the folder of the model counts."""
    return READ_ONLY_TARGET.finding(
        location,
        f"its generated files and those of {other} would have the same paths below {output_dir}",
        help="Convert the two with different folders for `--output-dir`.",
    )


OUTSIDE_ROOT = Rule("MC114", "outside-root", "a path leads out of the root")


def outside_root(location: Location, target: str, root: str) -> Finding:
    """`target` is where the path of `location` really leads."""
    return OUTSIDE_ROOT.finding(
        location,
        f"this path leads to {target}, outside of {root}",
        help="Remove the symbolic link or the `..`, or choose a wider folder with `--root` or `--output-dir`.",
    )


UNKNOWN_REVISION = Rule("MC117", "unknown-revision", "git cannot tell what has changed since a revision")


def unknown_revision(ref: str, reason: str) -> Finding:
    """`reason` is git's own message, or the reason why git gives none."""
    return UNKNOWN_REVISION.finding(
        Location("--changed-since"),
        f"cannot tell what has changed since `{ref}`: {reason}",
        help="Fetch that commit (`git fetch origin main`, or `fetch-depth: 0` in GitHub Actions), correct its name, or "
        "leave `--changed-since` out to check everything.",
    )


UNKNOWN_LINE = Rule("MC120", "unknown-line", "a line is asked for that the file does not have")


def unknown_line(location: Location, lines: int) -> Finding:
    """`location` is the line that was asked for; `lines` is the number of lines that the file has."""
    return UNKNOWN_LINE.finding(
        location,
        f"there is no line {location.line}: this file has {lines}",
        help=f"Give a line from 1 to {lines}." if lines else "This file is empty.",
    )


UNKNOWN_OLDER_TREE = Rule("MC121", "unknown-older-tree", "the tree that `--against` names cannot be read")


def unknown_older_tree(ref: str, reason: str) -> Finding:
    """`reason` says why the tree cannot be read."""
    return UNKNOWN_OLDER_TREE.finding(
        Location("--against"),
        f"cannot compare with `{ref}`: {reason}",
        help="Give a commit that is fetched (`git fetch origin main`), a folder, a wheel, or `package==version`.",
    )


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
