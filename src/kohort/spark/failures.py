"""Gives one sentence for each way in which a query or a process of Spark ends.

In: the error that Spark raised, the exit status of Spark's Java process. Out: an error with
the cause and the next step. Must not know: queries, sessions, sinks.
"""

from __future__ import annotations

import re
import signal
from pathlib import Path
from tempfile import gettempdir
from typing import Any, ClassVar, Final

from pyspark.errors.exceptions.base import PySparkException, StreamingQueryException

from kohort.model.errors import ConfigError, KohortError

AGAIN: Final = (
    "committed rows are safe and nothing is half-written; start `kohort pipeline` again to continue"
)
"""The end of an error message about an accident that a new start repairs."""

_LATE: Final = "Python worker failed to connect back"
_CONFIG_ERROR: Final = re.compile(r"kohort\.[a-z_.]+\.(?:ConfigError|OtherVersion): (.+)")
_KOHORT_ERROR: Final = re.compile(r"kohort\.[a-z_.]+\.[A-Za-z]+: (.+)")
_SPARK_ERROR: Final = re.compile(r"pyspark\.errors\.[a-z_.]+\.[A-Za-z]+: (.+)")
_PYTHON_ERROR: Final = re.compile(r"^([A-Za-z_.]*(?:Error|Exception|Interrupt)\b.*)$", re.MULTILINE)
_TRACE: Final = "Traceback (most recent call last):"
_TRACED: Final = re.compile(re.escape(_TRACE) + r"\n(?:[ \t][^\n]*\n)+(\S[^\n]*)")
_PLACE: Final = r"(?:open local file '(?P<arrow>[^'\n]+)'[^\n]*|(?P<java>/[^\n()]*) \()?"
"""The file in an error of Arrow or Java; Python names it behind the error."""
_FULL: Final = re.compile(
    _PLACE + r"(?:No space left on device|Disk quota exceeded|File too large|disk is full)"
    r"(?:: '(?P<other>[^'\n]+)')?"
)
_REFUSED: Final = re.compile(
    _PLACE + r"(?:Permission denied|Read-only file system)(?:: '(?P<other>[^'\n]+)')?"
)
_DAMAGED: Final = re.compile(r"Checksum error: file:((/\S+/_kohort/checkpoints/[^/\s]+)/\S+)")
_NO_MODULE: Final = re.compile(r"No module named '((?:kohort|pyspark|py4j|pyarrow)\b[^']*)'")
_NO_PROGRAM: Final = re.compile(r'Cannot run program "([^"\n]*python[^"\n]*)"')
_NO_WORKER: Final = re.compile(
    r"Error from python worker:\n(?:[^\n]*\n)*?\s*([^\n]+)\n\s*PYTHONPATH was:"
)
_STAGE_FAILED: Final = "kohort.spark.state.pieces.StageFailed: "
_NO_ACL: Final = "_AUTHORIZATION_FAILED ("
_TASK_ENDED: Final = re.compile(r"Python worker exited unexpectedly \([^)]*\)")
_SOURCE_ENDED: Final = re.compile(
    r"terminated with exception: ((?:Broken pipe|Connection reset|Socket closed)[^\n]*|null)"
)
_CALL: Final = re.compile(r"An error occurred while calling \S+\n: (?:[\w$]+\.)*")
_RECORD: Final = re.compile(
    r"\[(?P<condition>[A-Z][A-Z0-9_.]+)\] (?P<told>[^\n]*?) SQLSTATE: (?:22\w{3}|P0001)"
)
"""An error of a function of the SQL: SQLSTATE 22 is «data exception», P0001 is raise_error."""
_ABOUT_THE_JVM: Final = re.compile(r"\n=== Streaming Query|JVM stacktrace|\n\tat ")
_FRAME: Final = re.compile(
    r"\[STREAM_FAILED\] Query \[[^]]*\] terminated with exception: |\s*SQLSTATE: \w+"
)


class PipelineFailed(KohortError):
    """The query failed. All earlier batches are committed; nothing is half-written."""

    exit_status: ClassVar[int] = 1
    """The arguments are right: a supervisor may start the command again."""


class BrokersAway(PipelineFailed):
    """No broker answers at the start. Nothing was started; a later start may succeed."""


class PythonLate(PipelineFailed):
    """The source's process did not connect to Spark in time (ADR 0041). Nothing was read."""


class NoSpace(KohortError):
    """A disk is full. All earlier batches are committed; a new start waits for free space."""


class NoRight(KohortError):
    """A right is missing, on a topic, a group or a folder. All earlier batches are committed."""


class RecordRefused(KohortError):
    """The SQL or the Python function fails on a record, and so would the next start.

    All earlier batches are committed.
    """


def explained(
    error: Exception, java_status: int | None = None, output: Path | None = None
) -> KohortError:
    """The error for the user, in one line.

    Args:
        error: an error of PySpark, of its connection to Java, or of a socket.
        java_status: the exit status of Spark's Java process, negative for a signal; None while it
            runs.
        output: the directory of the table. Errors of Java about a full disk name no file.
    """
    text = str(error)
    if java_status is not None:
        return PipelineFailed(f"Spark's Java process {_how(java_status)}: {AGAIN}")
    wrong = _wrong_settings(text)
    if wrong is not None:
        return ConfigError(wrong)
    if not isinstance(error, StreamingQueryException):
        told = _about_process(text) or f"{_first_line(_CALL.sub('', text))}; {AGAIN}"
        return PipelineFailed(f"Spark ended unexpectedly: {told}")
    if _LATE in text:
        return PythonLate(_first_line(text))
    told = f"the query stopped: {_sentence(text, output)}"
    if _FULL.search(text):
        return NoSpace(told)
    refused = _REFUSED.search(text) or _NO_ACL in text
    return _about_record(text, told) or (NoRight(told) if refused else PipelineFailed(told))


def first_cause(error: Exception) -> str:
    """One line about an error; for an error of Java, about the first of its causes.

    Java's client of Kubernetes wraps each error into one that says «An error has occurred».
    """
    cause: Any = getattr(error, "java_exception", None)
    if cause is None:
        return _first_line(str(error))
    while (deeper := cause.getCause()) is not None:
        cause = deeper
    return _first_line(str(cause.toString())).partition(". Received status: ")[0]


def error_of_task(error: PySparkException) -> str:
    """The last line of the Python error within an error of Spark."""
    lines = [line.strip() for line in str(error).splitlines() if "Error: " in line]
    return lines[-1] if lines else _first_line(str(error))


def _about_record(text: str, told: str) -> RecordRefused | None:
    if _STAGE_FAILED in text:
        return RecordRefused(
            f"{told}; earlier batches are safe, and this one is read again at the next start: mend "
            "the function, or let the function give such records a dead_letter"
        )
    found = None if _KOHORT_ERROR.search(text) else _RECORD.search(text)
    if found is None:
        return None
    return RecordRefused(
        f"the query stopped: the SQL fails on a record: {found['told'].strip()} "
        f"({found['condition']}); earlier batches are safe, and this one is read again at the next "
        "start: let the SQL make NULL or a dead_letter of such records"
    )


def _wrong_settings(text: str) -> str | None:
    """The mistake in the arguments or the environment; None if there is none."""
    told = _CONFIG_ERROR.findall(text)
    if told:
        return str(told[-1]).strip()
    damaged = _DAMAGED.search(text)
    if damaged is not None:
        return (
            f"the query stopped: {damaged[1]}, a file of the checkpoint, is damaged; committed "
            f"rows are safe, and the table has the positions: remove {damaged[2]}, and start again"
        )
    missing, absent = _NO_MODULE.search(text), _NO_PROGRAM.search(text)
    wrong = (missing and f"has no module {missing[1]!r}") or (
        absent and f"cannot be run: there is no program {absent[1]}"
    )
    return wrong and (
        f"the Python of Spark's workers {wrong}; expected this version of kohort[spark] in the "
        "Python that PYSPARK_PYTHON names, on each host: install it there, or unset PYSPARK_PYTHON"
    )


def _sentence(text: str, output: Path | None) -> str:
    """The sentence of kohort or of Spark at the end of the stack traces."""
    told = _KOHORT_ERROR.findall(text)
    if told:
        return str(told[-1]).strip()
    for known in (_about_disk(text, output), _about_process(text)):
        if known is not None:
            return known
    told = _SPARK_ERROR.findall(text)
    if told and told[-1].endswith("from the Python worker:"):
        told = _PYTHON_ERROR.findall(text) or told
    if told:
        return str(told[-1]).strip()
    line = _first_line(_FRAME.sub("", _ABOUT_THE_JVM.split(text, maxsplit=1)[0]))
    # The error of a Python function stands below the frames of its trace.
    traced = _TRACED.findall(text) if line.endswith(_TRACE) else ()
    return str(traced[-1]) if traced else line


def _about_disk(text: str, output: Path | None) -> str | None:
    full, refused = _FULL.search(text), _REFUSED.search(text)
    if full is not None:
        place = _place(full)
        if place is None and output is not None:
            place = f"{output} or {gettempdir()}"
        where = f" under {place}" if place else ""
        return (
            f"no space is left on the disk{where}; free some (--output has the table and the "
            f"checkpoints, the temporary folder has files of Spark): {AGAIN}"
        )
    if refused is not None:
        return (
            f"this user may not write {_place(refused) or 'a file'}; give the user the right to "
            f"write the folder and all below it (--output, the temporary folder of Spark): {AGAIN}"
        )
    return None


def _place(found: re.Match[str]) -> str | None:
    return found["arrow"] or found["java"] or found["other"]


def _about_process(text: str) -> str | None:
    failed = _NO_WORKER.search(text)
    if failed is not None:
        return f"the Python of Spark's workers (PYSPARK_PYTHON) did not start: {failed[1]}: {AGAIN}"
    crashed = _TASK_ENDED.search(text)
    if crashed is not None:
        return f"a process that reads or writes records ended ({crashed[0]}){_KILLED}: {AGAIN}"
    if _SOURCE_ENDED.search(text) is not None:
        return f"the process of the source, a member of the group, ended{_KILLED}: {AGAIN}"
    return None


_KILLED: Final = ", perhaps killed by the kernel because memory was short"


def _how(status: int) -> str:
    if status == -signal.SIGKILL:
        return "was killed by SIGKILL" + _KILLED.replace(" killed", "")
    if status < 0:
        return f"was ended by {signal.Signals(-status).name}"
    return f"ended with status {status}"


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0].strip()
