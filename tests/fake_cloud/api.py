"""The TPU service itself, as far as gcloud asks it, on loopback: for tests of the real gcloud without any cloud."""

from __future__ import annotations

import http.server
import json
import re
import threading
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlparse


class Service:
    """Keeps nodes and queued resources; every operation is done at once.

    Attributes:
      requests: what gcloud asked, as (method, path, body).
      refuse: error answered to the next requests to create, as (HTTP status, status word, message).
    """

    def __init__(self, workers: int = 2):
        self.workers = workers
        self.kinds: dict[str, dict[str, dict[str, Any]]] = {"nodes": {}, "queuedResources": {}}
        self.requests: list[tuple[str, str, Any]] = []
        self.refuse: list[tuple[int, str, str]] = []
        service = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def answer(self) -> None:
                text = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                status, content = service.act(self.command, self.path, json.loads(text) if text else {})
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.end_headers()
                self.wfile.write(json.dumps(content).encode())

            do_GET = do_POST = do_DELETE = do_PATCH = answer

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def environment(self, folder: Path) -> dict[str, str]:
        """Variables that let gcloud talk to this service only, without credentials or a configuration."""
        return {
            "CLOUDSDK_CONFIG": str(folder / "gcloud"),
            "CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU": f"http://127.0.0.1:{self._server.server_port}/",
            "CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE": f"http://127.0.0.1:{self._server.server_port}/compute/v1/",
            "CLOUDSDK_AUTH_DISABLE_CREDENTIALS": "true",
            "CLOUDSDK_CORE_PROJECT": "my-project",
            "CLOUDSDK_CORE_DISABLE_USAGE_REPORTING": "true",
        }

    def act(self, method: str, url: str, body: Any) -> tuple[int, Any]:
        parts = urlparse(url)
        self.requests.append((method, parts.path, body))
        if parts.path.startswith("/compute/v1/"):  # asked whether the project has OS Login
            return 200, {"name": "my-project", "commonInstanceMetadata": {"items": []}}
        place = re.fullmatch(r"/v2/(projects/[^/]+/locations/[^/]+)/(\w+)(?:/([^/:]+))?(:\w+)?", parts.path)
        assert place, url
        where, kind, name, verb = place.groups()
        if verb == ":getGuestAttributes":
            key = {"namespace": "hostkeys", "key": "ssh-ed25519", "value": "AAAA"}
            return 200, {"guestAttributes": [{"queryValue": {"items": [key]}}] * self.workers}
        if kind == "operations":
            return 200, self._done(where, name)
        found = self.kinds[kind]
        if method == "POST":
            if self.refuse:
                code, word, message = self.refuse.pop(0)
                return code, {"error": {"code": code, "message": message, "status": word}}
            name = parse_qs(parts.query)["nodeId" if kind == "nodes" else "queuedResourceId"][0]
            self._create(where, kind, name, body)
        elif name is None:
            return 200, {kind: list(found.values())}
        elif name not in found:
            return 404, {"error": {"code": 404, "message": "Resource not found", "status": "NOT_FOUND"}}
        elif method == "GET":
            return 200, found[name]
        elif method == "PATCH":
            found[name].update(body)
        elif method == "DELETE":
            del found[name]
            self.kinds["nodes"] = {
                node: content
                for node, content in self.kinds["nodes"].items()
                if content.get("queuedResource", "").rpartition("/")[2] != name
            }
        return 200, self._done(where, name)

    def _done(self, where: str, name: str) -> Any:
        """A finished operation on a resource, which its own name tells."""
        node = self.kinds["nodes"].get(name, {})
        kind = "type.googleapis.com/google.cloud.tpu.v2.Node"
        return {"name": f"{where}/operations/{name}", "done": True, "response": {"@type": kind, **node}}

    def _create(self, where: str, kind: str, name: str, body: Any) -> None:
        if kind == "nodes":
            self._node(where, name, body)
            return
        [spec] = body["tpu"]["nodeSpec"]
        nodes = [spec["nodeId"]] if "nodeId" in spec else []
        params = spec.get("multisliceParams", {})
        nodes = nodes or [f"{params.get('nodeIdPrefix', name)}-{n}" for n in range(params["nodeCount"])]
        queue = {**body, "name": f"{where}/queuedResources/{name}", "state": {"state": "ACTIVE"}}
        self.kinds["queuedResources"][name] = queue
        for node in nodes:
            self._node(where, node, {**spec["node"], "queuedResource": queue["name"]})

    def _node(self, where: str, name: str, body: Any) -> None:
        endpoints = [{"ipAddress": f"10.0.0.{number + 2}", "port": 8470} for number in range(self.workers)]
        known = {"name": f"{where}/nodes/{name}", "state": "READY", "health": "HEALTHY", "apiVersion": "V2"}
        self.kinds["nodes"][name] = {**body, **known, "networkEndpoints": endpoints}
