"""A local server that answers like the two model hubs: Hugging Face and ModelScope."""

import hashlib
import json
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit


class HubServer(ThreadingHTTPServer):
    """Serves one repository; `refs` and commits name its versions, each a folder.

    Attributes:
        requests: method and path of everything that was asked, in order.
        gone: answer nothing more but 500.
    """

    daemon_threads = True

    def __init__(self, name: str, refs: Mapping[str, str], versions: Mapping[str, Path]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.name, self.refs, self.versions = name, refs, versions
        self.requests: list[str] = []
        self.gone = False
        self.thread = threading.Thread(target=self.serve_forever, daemon=True)
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def close(self) -> None:
        self.shutdown()
        self.server_close()
        self.thread.join()

    def commit(self, revision: str) -> str | None:
        return self.refs.get(revision, revision if revision in self.versions else None)


class Handler(BaseHTTPRequestHandler):
    server: HubServer
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        self.server.requests.append(f"{self.command} {self.path}")
        if url.path == "/stop":
            self.server.gone = True
            return self.answer(200, b"")
        if self.server.gone:
            return self.answer(500, b"gone")
        parts = [unquote(part) for part in url.path.strip("/").split("/")]
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        if parts[:3] == ["api", "v1", "models"]:
            return self.modelscope("/".join(parts[3:5]), parts[5:], query)
        if parts[:2] == ["api", "models"]:
            return self.hugging_face("/".join(parts[2:4]), parts[4:])
        if parts[2:3] == ["resolve"]:
            return self.file("/".join(parts[:2]), parts[3], "/".join(parts[4:]))
        return self.answer(404, b"{}")

    def hugging_face(self, name: str, rest: list[str]) -> None:
        commit = self.server.commit(rest[1] if rest else "main")
        if name != self.server.name or commit is None:
            code = "RepoNotFound" if name != self.server.name else "RevisionNotFound"
            return self.answer(404, b"{}", {"X-Error-Code": code, "X-Error-Message": code})
        folder = self.server.versions[commit]
        if rest and rest[0] == "tree":
            return self.json([hugging_face_entry(path) for path in sorted(folder.iterdir())])
        names = [{"rfilename": path.name} for path in folder.iterdir()]
        return self.json({"id": name, "modelId": name, "sha": commit, "siblings": names})

    def modelscope(self, name: str, rest: list[str], query: dict[str, str]) -> None:
        commit = self.server.commit(query.get("Revision", "master"))
        if name != self.server.name or commit is None:
            return self.json({"Code": 404, "Success": False, "Message": "not found"}, 404)
        if rest == ["repo", "files"]:
            entries = [
                modelscope_entry(path, commit)
                for path in sorted(self.server.versions[commit].iterdir())
            ]
            return self.json({"Code": 200, "Success": True, "Data": {"Files": entries}})
        if rest == ["repo"]:
            return self.file(name, commit, query["FilePath"])
        return self.json({"Code": 200, "Success": True, "Data": {"Name": name}})

    def file(self, name: str, revision: str, path: str) -> None:
        commit = self.server.commit(revision)
        if name != self.server.name or commit is None:
            return self.answer(404, b"")
        content = (self.server.versions[commit] / path).read_bytes()
        etag = f'"{hashlib.sha256(content).hexdigest()}"'
        return self.answer(200, content, {"ETag": etag, "X-Repo-Commit": commit})

    def json(self, value: Any, status: int = 200) -> None:
        self.answer(status, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def answer(self, status: int, content: bytes, headers: Mapping[str, str] = {}) -> None:
        self.send_response(status)
        for key, value in {"Content-Length": str(len(content)), **headers}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *args: Any) -> None:
        """The test reads `requests` instead."""


def hugging_face_entry(path: Path) -> dict[str, Any]:
    digest = hashlib.sha1(path.read_bytes()).hexdigest()
    return {"type": "file", "oid": digest, "size": path.stat().st_size, "path": path.name}


def modelscope_entry(path: Path, commit: str) -> dict[str, Any]:
    # the label file is older than the rest, and a file that no model needs is the newest
    dates = {"tokens.txt": ("0" * 40, 100), "README.md": ("f" * 40, 300)}
    revision, date = dates.get(path.name, (commit, 200))
    return {
        "Name": path.name,
        "Path": path.name,
        "Type": "blob",
        "Size": path.stat().st_size,
        "Sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "Revision": revision,
        "CommittedDate": date,
    }
