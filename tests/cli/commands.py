"""Runs commands against a broker of the test."""

from __future__ import annotations

from click.testing import CliRunner

from kohort.cli.main import cli


class Kohort:
    """Runs commands against a broker; ``errors`` is what the last good one told beside."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.errors = ""
        self._bootstrap = bootstrap_servers

    def __call__(
        self,
        *args: str,
        error: type[Exception] | None = None,
        status: int = 0,
        typed: str | None = None,
    ) -> str:
        """The output of the command, or the text of the ``error`` that it must raise."""
        full = [*args, "--bootstrap-server", self._bootstrap]
        result = CliRunner().invoke(cli, full, input=typed)
        if error is not None:
            assert isinstance(result.exception, error), result
            return str(result.exception)
        assert result.exit_code == status, (result.output, result.exception)
        self.errors = result.stderr
        return result.stdout


def rows(text: str) -> list[list[str]]:
    """The cells of a table, its head first."""
    return [line.split() for line in text.strip().splitlines()]
