"""What a run reads, once, and what it notes of it."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from modular_converter.convert.source.library import Library, Observations
from modular_converter.findings import EXISTS, MISSING, UNREADABLE, ConversionError
from modular_converter.settings.load import profile_settings


def hashed(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def library() -> Library:
    return Library(profile_settings())


def write(path: Path, content: bytes | str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def test_a_text_is_read_once_with_its_hash(tmp_path: Path, library: Library) -> None:
    content = b"\xef\xbb\xbfx = 1\r\ny = 2\rz = 3\n"
    path = write(tmp_path / "a.py", content)
    assert library.text(path) == "x = 1\ny = 2\nz = 3\n"
    Path(path).write_text("other")
    later = library.observing(Observations())
    assert later.text(path) == "x = 1\ny = 2\nz = 3\n"
    assert later.observations.reads == library.observations.reads == {path: hashed(content)}
    assert later.module(path).definitions.keys() == {"x", "y", "z"}


def test_a_library_under_other_texts_shares_what_was_read(tmp_path: Path, library: Library) -> None:
    path, other = write(tmp_path / "a.py", "x = 1\n"), write(tmp_path / "b.py", "y = 1\n")
    module = library.module(other)
    assert library.module(path).definitions.keys() == {"x"}
    Path(other).write_text("later")
    under = library.under({path: "z = 1\n"})
    assert under.module(path).definitions.keys() == {"z"}
    assert under.module(other) is module
    assert under.observations.reads == {path: hashed(b"z = 1\n"), other: hashed(b"y = 1\n")}
    assert library.text(path) == "x = 1\n"
    assert library.under({}).under({}).text(path) == "x = 1\n"


def test_texts_are_laid_over_the_files_and_taken_back(tmp_path: Path, library: Library) -> None:
    path, new = write(tmp_path / "a.py", "x = 1\n"), str(tmp_path / "b.py")
    assert library.module(path).definitions.keys() == {"x"}
    for name in ("y", "zé"):
        library.put({path: f"{name} = 2\n", new: f"{name} = 3\n"})
        assert library.module(path).definitions.keys() == library.module(new).definitions.keys() == {name}
        assert library.observations.reads == {one: hashed(library.text(one).encode()) for one in (path, new)}
        assert library.exists(new)
    Path(path).write_text("w = 4\n")
    library.take_back([path, new, "unknown"])
    assert library.module(path).definitions.keys() == {"w"}
    assert library.observations.files[path] == hashed(b"w = 4\n")
    assert not library.exists(new) and library.text_if_readable(new) is None


def test_what_is_asked_for_is_noted(tmp_path: Path, library: Library) -> None:
    there, missing = write(tmp_path / "a.py", "x = 1\n"), str(tmp_path / "b.py")
    assert library.exists(there) and not library.exists(missing)
    assert library.observations.reads == {there: EXISTS, missing: MISSING}
    library.text(there)
    assert library.exists(there) and library.observations.files[there] == hashed(b"x = 1\n")


def test_packages_that_are_looked_for_are_noted(tmp_path: Path, library: Library) -> None:
    write(tmp_path / "lib/models/__init__.py", "")
    write(tmp_path / "lib/__init__.py", "")
    folder = str(tmp_path / "lib/models")
    assert library.find_package("lib", folder) == str(tmp_path / "lib")
    assert library.find_package("not_installed_at_all", folder) is None
    assert library.observations.packages == {
        f"{folder}/lib": str(tmp_path / "lib"),
        f"{folder}/not_installed_at_all": "",
    }


@pytest.mark.parametrize(
    ("content", "code", "place"),
    [
        (None, "MC103", (1, 1)),
        (b"x = 1\n# \xc3\xa9\xff\n", "MC102", (2, 4)),
        (b"\xff", "MC102", (1, 1)),
        (b"#" * 200, "MC112", (1, 1)),
    ],
)
def test_what_cannot_be_read_is_an_error_with_its_place(
    tmp_path: Path, content: bytes | None, code: str, place: tuple[int, int]
) -> None:
    path = str(tmp_path / "a.py") if content is None else write(tmp_path / "a.py", content)
    library = Library(replace(profile_settings(), max_file_bytes=100))
    for read in (library.text, library.module):
        with pytest.raises(ConversionError) as caught:
            read(path)
        (found,) = caught.value.findings
        assert (found.code, found.location.line, found.location.column) == (code, *place)
    assert library.text_if_readable(path) is None
    assert library.observations.files[path] == UNREADABLE


def test_what_is_no_python_is_an_error_with_its_line(tmp_path: Path, library: Library) -> None:
    path = write(tmp_path / "a.py", "x = 1\ny = (\n")
    for _ in range(2):
        with pytest.raises(ConversionError) as caught:
            library.module(path)
        (found,) = caught.value.findings
        assert (found.code, found.location.line, found.source_line) == ("MC101", 2, "y = (")
    library.put({path: "y = (\n"})
    with pytest.raises(ConversionError):
        library.module(path)


def test_comments_that_silence_are_left_out_of_modular_files_alone(tmp_path: Path, library: Library) -> None:
    text = "x = 1  # modular: ignore[MC309]\n"
    modular, other = write(tmp_path / "modular_a.py", text), write(tmp_path / "a.py", text)
    assert [library.module(path).statements[0].text for path in (modular, other)] == ["x = 1", text.strip()]


AUTO = 'CONFIG_MAPPING_NAMES = {{"{}": "{}Config"}}\n'


def test_the_names_of_models_are_read_once_and_noted_by_each(tmp_path: Path, library: Library) -> None:
    folder = str(tmp_path / "models")
    tables = [str(tmp_path / "models/auto" / name) for name in ("auto_mappings.py", "configuration_auto.py")]
    write(Path(tables[1]), AUTO.format("a", "Aa"))
    later = library.observing(Observations())
    for one in (library, later):
        assert one.names(folder).by_type == {"a": "Aa"}
        assert one.observations.reads == {tables[0]: MISSING, tables[1]: hashed(AUTO.format("a", "Aa").encode())}
    assert library.names(str(tmp_path / "others")).by_type == {}


def test_a_table_of_names_that_is_no_python_is_an_error_with_its_line(tmp_path: Path, library: Library) -> None:
    path = write(tmp_path / "models/auto/configuration_auto.py", "\nCONFIG_MAPPING_NAMES = (\n")
    with pytest.raises(ConversionError) as caught:
        library.names(str(tmp_path / "models"))
    (found,) = caught.value.findings
    assert (found.code, found.location.path, found.location.line) == ("MC101", path, 2)
    assert found.source_line == "CONFIG_MAPPING_NAMES = ("
