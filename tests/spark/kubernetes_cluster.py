"""Kubernetes as Spark sees it: an API server without nodes, and pods that are local processes.

The API server is the mock server of fabric8's Kubernetes client, which Spark uses. Maven Central
has its jars; Ivy fetches them once. The class here is the kubelet: it runs each executor's pod with
the variables of the pod, and tells the API server how the process ended.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import psutil
import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from kohort.host.java import find_java, keep_temporary_files
from kohort.testing.kafka_jars import JarSet, fetch

SERVER: Final = JarSet(
    title="the mock server of fabric8's Kubernetes client 7.6.1",
    folder="kubernetes-server-mock/7.6.1",
    artifacts=("io.fabric8:kubernetes-server-mock:7.6.1",),
)

_JARS: Final = Path(pyspark.__file__).parent / "jars"
_PODS: Final = "/api/v1/namespaces/lake/pods"
_LOOK_S: Final = 0.2
_FIELDS: Final = {"status.podIP": "127.0.0.1"}
_NOW: Final = "2026-01-01T00:00:00Z"


class KubernetesCluster:
    """A Kubernetes with one node; all pods run on this machine.

    Attributes:
        url: the master for ``--master``.
        processes: the Java process of the API server.
        environment: nothing, since a driver needs no variables.
        settings: Spark's settings for small executors.
    """

    environment: Mapping[str, str] = {}

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        template = folder / "executor.yaml"
        container = {"name": "executor", "command": [sys.executable, "-m", "kohort", "spark"]}
        template.write_text(json.dumps({"spec": {"containers": [container]}}))
        self.settings: Sequence[str] = (
            "spark.executor.instances=1", "spark.executor.memory=512m",
            "spark.driver.host=127.0.0.1", "spark.kubernetes.namespace=lake",
            "spark.kubernetes.container.image=kohort",
            f"spark.kubernetes.executor.podTemplateFile={template}",
        )  # fmt: skip
        self._seen: dict[str, str] = {}
        """The application of each pod that was started."""
        (jar,) = _JARS.glob("py4j-*.jar")
        with (folder / "server.log").open("w") as log:
            port, token, process = launch_gateway(
                jarpath=str(jar),
                classpath=f"{fetch(SERVER)}/*:{_JARS}/*",
                javaopts=["-Xmx200m", *keep_temporary_files(folder)],
                java_path=str(find_java().executable),
                die_on_exit=True,
                enable_auth=True,
                return_proc=True,
                redirect_stdout=log,
                redirect_stderr=log,
            )
        self.processes: list[subprocess.Popen[str]] = [process]
        gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))
        try:
            self._server = self._started(gateway.jvm)
        finally:
            gateway.close()
        self.url = f"k8s://{self._server}"
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kubelet")
        self._thread.start()

    @staticmethod
    def _started(java: JavaGateway.jvm) -> str:
        """Start the API server; its address."""
        fabric8 = java.io.fabric8
        server = fabric8.kubernetes.client.server.mock.KubernetesMockServer(
            fabric8.mockwebserver.Context(), fabric8.mockwebserver.MockWebServer(),
            java.java.util.HashMap(),
            fabric8.kubernetes.client.server.mock.KubernetesCrudDispatcher(), False,
        )  # fmt: skip
        server.init()
        return f"http://127.0.0.1:{server.getPort()}"

    def executors(self) -> list[psutil.Process]:
        """The Java processes of all executors."""
        found = []
        for process in self._running.copy().values():
            # The kubelet's thread may see the end of the process now.
            with suppress(psutil.NoSuchProcess):
                found.append(psutil.Process(process.pid))
        return found

    def homes(self) -> set[str]:
        """The applications that ran executors on the node."""
        return set(self._seen.copy().values())

    def close(self) -> None:
        """End the node and all its pods; the API server still runs."""
        self._stop.set()
        self._thread.join()
        for process in self._running.values():
            process.kill()
            process.wait()

    def _run(self) -> None:
        while not self._stop.wait(_LOOK_S):
            pods = {pod["metadata"]["name"]: pod for pod in self._call("GET", _PODS)["items"]}
            for name in self._running.keys() - pods.keys():
                process = self._running.pop(name)
                process.kill()
                process.wait()
            for name, pod in pods.items():
                if name not in self._seen:
                    self._start(name, pod)
                elif name in self._running and self._running[name].poll() is not None:
                    status = self._running.pop(name).returncode
                    ended = {"exitCode": status % 256, "startedAt": _NOW, "finishedAt": _NOW}
                    self._tell(name, "Failed" if status else "Succeeded", {"terminated": ended})

    def _start(self, name: str, pod: Mapping[str, Any]) -> None:
        """Run the command of a pod with its variables; ``PATH`` is that of the image."""
        (container,) = pod["spec"]["containers"]
        folder = self._folder / name
        folder.mkdir()
        fields = _FIELDS | {"metadata.name": name}
        variables = {
            given["name"]: fields[given["valueFrom"]["fieldRef"]["fieldPath"]]
            if "valueFrom" in given
            else given.get("value", "")
            for given in container["env"]
        } | {"SPARK_LOCAL_DIRS": str(folder), "PATH": os.environ["PATH"], "HOME": str(Path.home())}
        with (folder / "log").open("w") as log:
            self._running[name] = subprocess.Popen(
                [*container["command"], *container["args"]],
                stdout=log, stderr=log, env=variables, cwd=folder,
            )  # fmt: skip
        self._seen[name] = variables["SPARK_APPLICATION_ID"]
        self._tell(name, "Running", {"running": {"startedAt": _NOW}})

    def _tell(self, name: str, phase: str, state: Mapping[str, Any]) -> None:
        """Tell the API server the state of a pod; the driver may remove the pod meanwhile."""
        container = {"name": "executor", "state": state}
        status = {"phase": phase, "containerStatuses": [container]}
        try:
            self._call("PATCH", f"{_PODS}/{name}/status", {"status": status})
        except urllib.error.HTTPError as error:
            if error.code != 404:
                raise

    def _call(self, method: str, path: str, body: object = None) -> Any:
        request = urllib.request.Request(
            self._server + path,
            json.dumps(body).encode() if body else None,
            {"Content-Type": "application/merge-patch+json"},
            method=method,
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)
