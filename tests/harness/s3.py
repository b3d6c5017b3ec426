"""An object store that speaks the protocol of S3, and fails as networks and stores do.

Objects are in memory.  It has what a client of backups needs: objects with conditions, lists in
pages, and removal of several at once.  Signatures are not looked at.
"""

import contextlib
import hashlib
import random
import threading
import time
import xml.etree.ElementTree as ElementTree
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

PAGE = 100
SLOW_SECONDS = 0.05
FAULTS = ["error", "busy", "slow", "lost request", "lost answer", "half a request"]
TIME = "2026-01-01T00:00:00.000Z"


class ObjectStore(ThreadingHTTPServer):
    """`objects` are its content; `fault_rate` of the requests fail."""

    daemon_threads = True

    def __init__(self, seed=0):
        super().__init__(("127.0.0.1", 0), Handler)
        self.objects, self.lock = {}, threading.Lock()
        self.random, self.fault_rate, self.faults = random.Random(seed), 0, {}
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def environment(self):
        """For programs that use it."""
        return {
            "AWS_ENDPOINT": f"http://127.0.0.1:{self.server_port}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "nowhere",
            "AWS_ACCESS_KEY_ID": "id",
            "AWS_SECRET_ACCESS_KEY": "secret",
        }

    def fault(self):
        with self.lock:
            if self.random.random() >= self.fault_rate:
                return None
            fault = self.random.choice(FAULTS)
            self.faults[fault] = self.faults.get(fault, 0) + 1
            return fault

    def handle_error(self, request, address):
        """Connections that were cut are what this is for."""

    def close(self):
        self.shutdown()
        self.server_close()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do(self):
        fault = self.server.fault()
        length = int(self.headers.get("content-length") or 0)
        if fault == "lost request":
            return self.cut()
        if fault == "half a request":
            self.rfile.read(length // 2)
            return self.cut()
        body = self.rfile.read(length)
        if fault == "slow":
            time.sleep(SLOW_SECONDS)
        if fault in ("error", "busy"):
            return self.answer(500 if fault == "error" else 503, b"<Error/>")
        status, answer, headers = self.act(body)
        if fault == "lost answer":
            return self.cut()
        return self.answer(status, answer, headers)

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = do

    def cut(self):
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(2)

    def answer(self, status, body=b"", headers=None):
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        if self.command != "HEAD":
            self.send_header("content-length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def act(self, body):
        parts = urlsplit(self.path)
        query = parse_qs(parts.query, keep_blank_values=True)
        _, _, name = unquote(parts.path).lstrip("/").partition("/")
        with self.server.lock:
            if "delete" in query:
                return self.remove(body)
            if not name:
                return self.list(query)
            if self.command == "PUT":
                return self.put(name, body)
            if self.command == "DELETE":
                self.server.objects.pop(name, None)
                return 204, b"", {}
            return self.get(name)

    def get(self, name):
        data = self.server.objects.get(name)
        if data is None:
            return (
                404,
                b"<Error><Code>NoSuchKey</Code></Error>",
                {"content-length": "0"} if (self.command == "HEAD") else {},
            )
        headers = {"etag": etag(data), "last-modified": "Thu, 01 Jan 2026 00:00:00 GMT"}
        if self.command == "HEAD":
            headers["content-length"] = str(len(data))
        return 200, data, headers

    def put(self, name, body):
        now = self.server.objects.get(name)
        if self.headers.get("if-none-match") == "*" and now is not None:
            return 412, b"<Error><Code>PreconditionFailed</Code></Error>", {}
        expected = self.headers.get("if-match")
        if expected and (now is None or etag(now) != expected):
            return 412, b"<Error><Code>PreconditionFailed</Code></Error>", {}
        self.server.objects[name] = body
        return 200, b"", {"etag": etag(body)}

    def remove(self, body):
        root = ElementTree.fromstring(body)
        names = [node.text for node in root.iter() if node.tag.endswith("Key")]
        for name in names:
            self.server.objects.pop(name, None)
        removed = "".join(f"<Deleted><Key>{escape(name)}</Key></Deleted>" for name in names)
        return 200, f"<DeleteResult>{removed}</DeleteResult>".encode(), {}

    def list(self, query):
        prefix = query.get("prefix", [""])[0]
        after = query.get("continuation-token", query.get("start-after", [""]))[0]
        names = sorted(it for it in self.server.objects if it.startswith(prefix) and it > after)
        page, is_cut = names[:PAGE], len(names) > PAGE
        entries = "".join(
            f"<Contents><Key>{escape(name)}</Key><LastModified>{TIME}</LastModified>"
            f"<ETag>{etag(self.server.objects[name])}</ETag>"
            f"<Size>{len(self.server.objects[name])}</Size></Contents>"
            for name in page
        )
        token = (
            f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if is_cut else ""
        )
        text = (
            f"<ListBucketResult><Name>b</Name><Prefix>{escape(prefix)}</Prefix>"
            f"<KeyCount>{len(page)}</KeyCount><MaxKeys>{PAGE}</MaxKeys>"
            f"<IsTruncated>{'true' if is_cut else 'false'}</IsTruncated>{token}{entries}"
            "</ListBucketResult>"
        )
        return 200, text.encode(), {}


def etag(data):
    return f'"{hashlib.md5(data).hexdigest()}"'
