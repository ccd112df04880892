"""Jars from Maven Central, fetched once into the user's cache directory.

In: a list of Maven artifacts. Out: a directory with all their jars; the directory appears in one
step, and two processes that fetch at once take turns. Must not know: how a Kafka node is
configured or started. Ivy, which is among PySpark's jars, does the fetching (ADR 0019).
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kohort.host.java import find_java
from kohort.model.errors import ConfigError, KohortError

KAFKA_VERSION: Final = "4.3.1"
"""The release that kohort is tested against."""

OLDEST_VERSION: Final = "3.3.2"
"""The oldest release line with KRaft for production; clients are tested against this one, too."""

FETCH_TIMEOUT_S: Final = 900
_ATTEMPTS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class JarSet:
    """Maven artifacts that are fetched and kept together.

    Attributes:
        title: the name of the set in messages.
        folder: the directory of the set below kohort's cache directory.
        artifacts: ``organisation:name:version`` each; the first one's jar shows that the set is
            complete.
        transitive: whether to fetch the dependencies of the artifacts too.
    """

    title: str
    folder: str
    artifacts: tuple[str, ...]
    transitive: bool = True

    @property
    def version(self) -> str:
        """The version of the first artifact."""
        return self.artifacts[0].rpartition(":")[2]


def _release(version: str, *modules: str) -> JarSet:
    # Kafka logs through slf4j 1.7; the binding of that version for log4j 2 is log4j-slf4j-impl.
    return JarSet(
        title=f"Apache Kafka {version}",
        folder=f"real-kafka/{version}",
        artifacts=(
            *(f"org.apache.kafka:{module}:{version}" for module in modules),
            "org.apache.logging.log4j:log4j-core:2.25.5",
            "org.apache.logging.log4j:log4j-slf4j-impl:2.25.5",
            # Kafka 3 uses classes of log4j 1.
            *(
                ()
                if version == KAFKA_VERSION
                else ("org.apache.logging.log4j:log4j-1.2-api:2.25.5",)
            ),
        ),
    )


KAFKA: Final = _release(KAFKA_VERSION, "kafka_2.13", "kafka-tools")
OLDEST_KAFKA: Final = _release(OLDEST_VERSION, "kafka_2.13")
RELEASES: Final = {KAFKA_VERSION: KAFKA, OLDEST_VERSION: OLDEST_KAFKA}
"""The releases that can be fetched, the newest first."""


class KafkaUnavailable(KohortError):
    """A real Kafka could not be fetched or started; the message names the step and the cause."""


def home(jars: JarSet = KAFKA) -> Path:
    """The directory of a set, such as ``$XDG_CACHE_HOME/kohort/real-kafka/4.3.1``."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "kohort" / jars.folder


def installed(jars: JarSet = KAFKA) -> Path | None:
    """The directory of a set's jars; None before the set was fetched."""
    _, name, version = jars.artifacts[0].split(":")
    libs = home(jars) / "libs"
    return libs if (libs / f"{name}-{version}.jar").is_file() else None


def fetch(jars: JarSet = KAFKA) -> Path:
    """The directory of a set's jars; fetches them from Maven Central if they are missing.

    Raises:
        ConfigError: there is no Java 17 or newer, or no PySpark that contains Ivy.
        KafkaUnavailable: Maven Central did not answer, or did not have everything.
    """
    present = installed(jars)
    if present is not None:
        return present
    ivy = _ivy_jar()
    java = find_java().executable
    home(jars).mkdir(parents=True, exist_ok=True)
    with _one_at_a_time(home(jars) / "fetch.lock"):
        present = installed(jars)
        return present if present is not None else _retrieve(java, ivy, jars)


def _retrieve(java: Path, ivy: Path, jars: JarSet) -> Path:
    partial, cache = home(jars) / "partial", home(jars) / "ivy"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    module = partial / "ivy.xml"
    module.write_text(_ivy_module(jars), encoding="utf-8")
    pattern = partial / "libs" / "[artifact]-[revision](-[classifier]).[ext]"
    command = [str(java), "-jar", str(ivy), "-ivy", str(module), "-cache", str(cache)]
    command += ["-retrieve", str(pattern)]
    # Ivy's cache keeps the jars of a failed attempt; the next attempt asks for the rest only.
    for attempt in range(1, _ATTEMPTS + 1):
        done = _run(command, jars)
        if done.returncode == 0:
            break
        if attempt == _ATTEMPTS:
            raise KafkaUnavailable(
                f"{jars.title} could not be fetched from Maven Central in {_ATTEMPTS} attempts; "
                f"check the network and try again. Ivy's messages:\n{_error_lines(done.stdout)}"
            )
    libs = home(jars) / "libs"
    shutil.rmtree(libs, ignore_errors=True)
    (partial / "libs").replace(libs)
    shutil.rmtree(cache, ignore_errors=True)
    shutil.rmtree(partial, ignore_errors=True)
    return libs


def _ivy_module(jars: JarSet) -> str:
    # `->default` fetches an artifact and its dependencies; `->compile,runtime` would leave out the
    # artifact itself.
    dependencies = "".join(
        '<dependency org="{}" name="{}" rev="{}" conf="default->default" transitive="{}"/>'.format(
            *artifact.split(":"), str(jars.transitive).lower()
        )
        for artifact in jars.artifacts
    )
    return (
        '<ivy-module version="2.0"><info organisation="kohort" module="jars"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{dependencies}</dependencies></ivy-module>"
    )


def _run(command: list[str], jars: JarSet) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=FETCH_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise KafkaUnavailable(
            f"fetching {jars.title} from Maven Central took longer than {FETCH_TIMEOUT_S} s; "
            "check the network and try again"
        ) from None


def _error_lines(output: str) -> str:
    marks = ("module not found", "FAILED", "not found:", "ERROR", "Exception")
    errors = [line.strip() for line in output.splitlines() if any(m in line for m in marks)]
    return "\n".join((errors or output.splitlines())[-12:])


def _ivy_jar() -> Path:
    # Importing PySpark would take a second.
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ConfigError(
            "fetching jars needs PySpark, which contains Ivy: pip install 'kohort[spark]'"
        )
    jars = sorted((Path(spec.origin).parent / "jars").glob("ivy-*.jar"))
    if not jars:
        raise ConfigError(
            f"expected jars/ivy-*.jar in {Path(spec.origin).parent}, found none; reinstall pyspark"
        )
    return jars[-1]


@contextmanager
def _one_at_a_time(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
