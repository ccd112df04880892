"""The jars of a real Apache Kafka, fetched once into the user's cache directory.

What lives here: which Kafka, where its jars are kept, and their fetching from Maven Central with
the Ivy that is among PySpark's jars, so that neither Maven nor an installed Kafka is needed. Out
comes a directory of jars, whole or not at all: it appears in one step, and two processes that fetch
at once take turns. It must not know how a node is configured or started.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from kohort.host.java import find_java
from kohort.model.errors import ConfigError, KohortError

KAFKA_VERSION: Final = "4.3.1"
"""The release that kohort is tested against."""

FETCH_TIMEOUT_S: Final = 900
_ATTEMPTS: Final = 3

# `->default` brings an artifact with what it needs; `->compile,runtime` leaves the artifact itself
# out. Kafka 4.3 logs through slf4j 1.7, whose binding for log4j 2 is log4j-slf4j-impl.
_IVY_MODULE: Final = f"""\
<ivy-module version="2.0">
  <info organisation="kohort" module="real-kafka"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
    <dependency org="org.apache.kafka" name="kafka_2.13" rev="{KAFKA_VERSION}"
                conf="default->default"/>
    <dependency org="org.apache.kafka" name="kafka-tools" rev="{KAFKA_VERSION}"
                conf="default->default"/>
    <dependency org="org.apache.logging.log4j" name="log4j-core" rev="2.25.5"
                conf="default->default"/>
    <dependency org="org.apache.logging.log4j" name="log4j-slf4j-impl" rev="2.25.5"
                conf="default->default"/>
  </dependencies>
</ivy-module>
"""


class KafkaUnavailable(KohortError):
    """A real Kafka could not be fetched or started; the message says which step failed and why."""


def home() -> Path:
    """Where this version is kept: ``$XDG_CACHE_HOME/kohort/real-kafka/<version>``."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "kohort" / "real-kafka" / KAFKA_VERSION


def installed() -> Path | None:
    """The directory of jars, or None when Kafka was not fetched yet."""
    jars = home() / "libs"
    return jars if (jars / f"kafka_2.13-{KAFKA_VERSION}.jar").is_file() else None


def fetch() -> Path:
    """The directory of jars, fetched from Maven Central unless it is there (some 60 MB).

    Raises:
        ConfigError: no Java 17 or newer, or no PySpark whose Ivy could do it.
        KafkaUnavailable: Maven Central did not answer, or not with everything.
    """
    present = installed()
    if present is not None:
        return present
    ivy = _ivy_jar()
    java = find_java().executable
    place = home()
    place.mkdir(parents=True, exist_ok=True)
    with _one_at_a_time(place / "fetch.lock"):
        present = installed()
        return present if present is not None else _retrieve(java, ivy, place)


def _retrieve(java: Path, ivy: Path, place: Path) -> Path:
    partial, cache = place / "partial", place / "ivy"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    module = partial / "ivy.xml"
    module.write_text(_IVY_MODULE, encoding="utf-8")
    pattern = partial / "libs" / "[artifact]-[revision](-[classifier]).[ext]"
    command = [str(java), "-jar", str(ivy), "-ivy", str(module), "-cache", str(cache)]
    command += ["-retrieve", str(pattern)]
    # What one attempt brought stays in Ivy's cache, so that another asks for the rest only.
    for attempt in range(1, _ATTEMPTS + 1):
        done = _run(command)
        if done.returncode == 0:
            break
        if attempt == _ATTEMPTS:
            raise KafkaUnavailable(
                f"Apache Kafka {KAFKA_VERSION} could not be fetched from Maven Central in "
                f"{_ATTEMPTS} attempts; Ivy said:\n{_complaint(done.stdout)}"
            )
    jars = place / "libs"
    shutil.rmtree(jars, ignore_errors=True)
    (partial / "libs").replace(jars)
    shutil.rmtree(cache, ignore_errors=True)
    shutil.rmtree(partial, ignore_errors=True)
    return jars


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
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
            f"Maven Central took longer than {FETCH_TIMEOUT_S} s for Apache Kafka {KAFKA_VERSION}"
        ) from None


def _complaint(output: str) -> str:
    words = ("module not found", "FAILED", "not found:", "ERROR", "Exception")
    told = [line.strip() for line in output.splitlines() if any(word in line for word in words)]
    return "\n".join((told or output.splitlines())[-12:])


def _ivy_jar() -> Path:
    # Looked up and not imported: starting PySpark costs a second, and this room does without it.
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ConfigError(
            "fetching Kafka needs the Ivy that comes with PySpark: pip install 'kohort[spark]'"
        )
    jars = sorted((Path(spec.origin).parent / "jars").glob("ivy-*.jar"))
    if not jars:
        raise ConfigError(f"{Path(spec.origin).parent} has no jars/ivy-*.jar; reinstall pyspark")
    return jars[-1]


@contextmanager
def _one_at_a_time(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
