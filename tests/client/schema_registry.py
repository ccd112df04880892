"""A schema registry in the tests, which answers as Confluent's does where clients ask it.

Schemas are in memory. A schema has one id, also under several subjects. Answers of an unknown
subject or schema have Confluent's error codes.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

Answer = tuple[int, Any]

NO_SUBJECT: Answer = 404, {"error_code": 40401, "message": "Subject not found."}
NO_SCHEMA: Answer = 404, {"error_code": 40403, "message": "Schema not found"}
NO_SUCH_PATH: Answer = 404, {"error_code": 404, "message": "HTTP 404 Not Found"}
DOWN: Answer = 503, {"error_code": 50003, "message": "The registry is down."}


class SchemaRegistry:
    """The schemas, and the answers to requests."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.asked: list[str] = []
        """Method and path of every request."""
        self.down = False
        """Whether every request is refused at present."""
        self._schemas: list[dict[str, Any]] = []
        """The schema with the id n is at n - 1."""
        self._versions: dict[str, list[int]] = {}
        """The ids of each subject, the first version first."""

    def answer(self, method: str, path: str, body: Any) -> Answer:
        """Status and body of the answer to one request."""
        self.asked.append(f"{method} {path}")
        if self.down:
            return DOWN
        match method, [unquote(part) for part in path.strip("/").split("/")]:
            case "POST", ["subjects", subject, "versions"]:
                return self._registered(subject, body)
            case "POST", ["subjects", subject]:
                return self._found(subject, body)
            case "GET", ["subjects", subject, "versions", version]:
                return self._version(subject, version)
            case "GET", ["schemas", "ids", text]:
                return self._schema(int(text))
            case _:
                return NO_SUCH_PATH

    def _registered(self, subject: str, body: Any) -> Answer:
        schema = {"schemaType": "AVRO", "references": [], **body}
        if schema not in self._schemas:
            self._schemas.append(schema)
        number = self._schemas.index(schema) + 1
        versions = self._versions.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return 200, {"id": number, "version": versions.index(number) + 1, **schema}

    def _found(self, subject: str, body: Any) -> Answer:
        schema = {"schemaType": "AVRO", "references": [], **body}
        for version, number in enumerate(self._versions.get(subject, []), 1):
            if self._schemas[number - 1] == schema:
                return self._row(subject, version)
        return NO_SCHEMA if subject in self._versions else NO_SUBJECT

    def _version(self, subject: str, version: str) -> Answer:
        if subject not in self._versions:
            return NO_SUBJECT
        return self._row(
            subject, len(self._versions[subject]) if version == "latest" else int(version)
        )

    def _row(self, subject: str, version: int) -> Answer:
        number = self._versions[subject][version - 1]
        row = {"subject": subject, "version": version, "id": number}
        return 200, {**row, **self._schemas[number - 1]}

    def _schema(self, number: int) -> Answer:
        if not 0 < number <= len(self._schemas):
            return NO_SCHEMA
        return 200, self._schemas[number - 1]


@contextmanager
def schema_registry() -> Iterator[SchemaRegistry]:
    """A registry that serves on a free port."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            status, answer = registry.answer(self.command, urlsplit(self.path).path, body)
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_POST = do_GET

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        registry = SchemaRegistry(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield registry
        finally:
            server.shutdown()
            thread.join()
