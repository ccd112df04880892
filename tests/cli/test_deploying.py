"""Deployments in the documentation: their options exist, and the manifest keeps its schema."""

from __future__ import annotations

import re
from pathlib import Path
from zipfile import ZipFile

import pytest
from tests.checkers import CHECKERS
from tests.tidy.blocks import block_with, commands_of

from kohort.cli.output import name_and_value
from kohort.cli.spark.pipeline import pipeline
from kohort.client.config import parse_client_settings

MANIFEST = Path(__file__).parents[2] / "docs" / "deploying" / "kubernetes.yaml"


def test_the_manifest_starts_pipelines_with_options_that_exist() -> None:
    lines = MANIFEST.read_text(encoding="utf-8").splitlines()
    args = [found[1] for line in lines if (found := re.match(r" +- (--\S+)", line))]
    options = pipeline.make_context("pipeline", [arg.replace("$(POD)", "lake-0") for arg in args])
    settings = dict(name_and_value("--set", text) for text in options.params["kafka"])
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
    documents = list(yaml.safe_load_all(MANIFEST.read_text(encoding="utf-8")))
    assert len(documents) == 3
    for document in documents:
        schemas.validate(document, schemas.latest_version(), strict=True)


def test_the_command_for_yarn_has_options_of_kohort_and_settings_of_this_spark() -> None:
    pyspark = pytest.importorskip("pyspark", reason="pip install 'kohort[spark]'")
    text = block_with("docs/howto/many-hosts.md", "--master yarn")
    ((name, *words),) = commands_of(text.replace("orders.sql", __file__))
    assert name == "pipeline"
    options = pipeline.make_context("pipeline", words).params
    settings = dict(name_and_value("--conf", text) for text in options["spark"])
    archive, _, folder = settings["spark.yarn.dist.archives"].partition("#")
    assert f"tar -xzf {archive} -C {folder}\n" in text
    assert f"PYSPARK_PYTHON={folder}/bin/python\n" in text
    known = b"".join(
        ZipFile(jar).read(f"org/apache/spark/{part}/package$.class")
        for name, part in (("core", "internal/config"), ("yarn", "deploy/yarn/config"))
        for jar in (Path(pyspark.__file__).parent / "jars").glob(f"spark-{name}_*.jar")
    )
    unknown = [name for name in settings if name.encode() not in known]
    assert not unknown
