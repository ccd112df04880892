"""Deployments in the documentation: their options exist, and the manifest keeps its schema."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from zipfile import ZipFile

import click
import pytest
from tests.checkers import CHECKERS
from tests.tidy.blocks import block_with, commands_of

from kohort.cli.spark.commands import spark as kohort_spark
from kohort.cli.spark.pipeline import pipeline
from kohort.client.config import parse_client_settings

FOLDER = Path(__file__).parents[2] / "docs" / "deploying"
MANIFEST = FOLDER / "kubernetes.yaml"
EXECUTORS = FOLDER / "kubernetes-executors.yaml"


def options_in(manifest: Path) -> click.Context:
    """The options of the pipeline in a manifest; its pod is lake-0."""
    lines = manifest.read_text(encoding="utf-8").splitlines()
    args = [found[1] for line in lines if (found := re.match(r" +- (--\S+)", line))]
    return pipeline.make_context("pipeline", [arg.replace("$(POD)", "lake-0") for arg in args])


def unknown_to_spark(settings: Iterable[str], *classes: tuple[str, str]) -> list[str]:
    """The settings that are in no class of Spark; a class is given by its jar and its path."""
    pyspark = pytest.importorskip("pyspark", reason="pip install 'kohort[spark]'")
    known = b"".join(
        ZipFile(jar).read(f"org/apache/spark/{path}$.class")
        for name, path in (("core", "internal/config/package"), *classes)
        for jar in (Path(pyspark.__file__).parent / "jars").glob(f"spark-{name}_*.jar")
    )
    return [name for name in settings if name.encode() not in known]


def test_the_manifest_starts_pipelines_with_options_that_exist() -> None:
    lines = MANIFEST.read_text(encoding="utf-8").splitlines()
    options = options_in(MANIFEST)
    settings = options.params["kafka"]
    client = parse_client_settings({**settings, "bootstrap.servers": options.params["bootstrap"]})
    assert client.group_instance_id == "lake-0"
    assert options.params["name"] == "lake-0"
    # The SQL and the table are in folders that the pod mounts.
    mounted = re.findall(r"mountPath: ([^,}]+)", MANIFEST.read_text(encoding="utf-8"))
    used = [str(options.params[name].parent) for name in ("sql_file", "output")]
    assert sorted(used) == sorted(mounted)
    assert re.search(rf"^  {options.params['sql_file'].name}: \|$", "\n".join(lines), re.MULTILINE)


@pytest.mark.optional_peer
def test_the_manifest_keeps_the_schema_of_kubernetes(monkeypatch: pytest.MonkeyPatch) -> None:
    for wheel in sorted(CHECKERS.glob("*.whl")):
        monkeypatch.syspath_prepend(str(wheel))  # 17,000 files, which nobody unpacks
    schemas = pytest.importorskip("kubernetes_validate", reason="pip install kubernetes-validate")
    yaml = pytest.importorskip("yaml")
    documents = [
        document
        for manifest in (MANIFEST, EXECUTORS)
        for document in yaml.safe_load_all(manifest.read_text(encoding="utf-8"))
    ]
    assert len(documents) == 8
    for document in documents:
        schemas.validate(document, schemas.latest_version(), strict=True)


def test_the_command_for_yarn_has_options_of_kohort_and_settings_of_this_spark() -> None:
    text = block_with("docs/howto/many-hosts.md", "--master yarn")
    ((name, *words),) = commands_of(text.replace("orders.sql", __file__))
    assert name == "pipeline"
    options = pipeline.make_context("pipeline", words).params
    settings = options["spark"]
    archive, _, folder = settings["spark.yarn.dist.archives"].partition("#")
    assert f"tar -xzf {archive} -C {folder}\n" in text
    assert f"PYSPARK_PYTHON={folder}/bin/python\n" in text
    assert not unknown_to_spark(settings, ("yarn", "deploy/yarn/config/package"))


def test_the_manifest_for_executors_has_settings_of_this_spark_and_the_volume_of_the_table() -> (
    None
):
    text = EXECUTORS.read_text(encoding="utf-8")
    options = options_in(EXECUTORS).params
    settings = options["spark"]
    assert not unknown_to_spark(settings, ("kubernetes", "deploy/k8s/Config"))
    template = Path(settings["spark.kubernetes.executor.podTemplateFile"])
    assert f"{{name: executor, mountPath: {template.parent}, readOnly: true}}" in text
    assert f"  {template.name}: |\n" in text
    assert "command: [kohort, spark]" in text
    assert "executor" in kohort_spark.commands
    assert text.count("{name: table, mountPath: /table}") == 2, "the driver and its executors"
    other = options_in(MANIFEST).params
    for same in ("sql_file", "output", "group", "topics"):
        assert options[same] == other[same]
