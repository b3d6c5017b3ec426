"""The server one conformance test talks to: its settings, and its process.

Key decision: what a test asks for is kept as neutral settings, and spelt for the
server at hand: as --long-options for {options}, as ZConfig for {config}.  A
server command that has neither skips the tests that ask for anything.
"""

import contextlib
import importlib
import os
import re
import sys
import tempfile
import unittest

from harness.process import HOST, ServerProcess, command_words, free_port

# The classes of the tests are resolved with this Python, as the stock server does, which passes
# over the line.
RESOLVER_LINE = f"%define zodium_python_resolver {sys.executable}\n"
NOT_SUPPORTED = "conformance: not supported by this server command"


class Unsupported(unittest.SkipTest):
    """The test asks for a setting the server command cannot express."""


class Settings:
    """What one test wants of its server, beyond a path and a port."""

    FLAGS = ("read-only", "client-conflict-resolution")
    VALUES = ("invalidation-queue-size", "invalidation-age", "transaction-timeout")
    SSL = ("certificate", "key", "authenticate")

    def __init__(self, **values):
        self.values = {key.replace("_", "-"): value for key, value in values.items() if value}

    @classmethod
    def from_zconfig(cls, zeo_text, storage_text):
        """The settings in a <zeo> section and a storage section."""

        def value(key, text):
            hit = re.search(rf"^\s*{key}[ \t]+(.+?)\s*$", text, re.M)
            return hit and hit[1] not in ("false", "no") and hit[1]

        found = {key: bool(value(key, zeo_text)) for key in cls.FLAGS}
        found.update({key: value(key, zeo_text) for key in cls.VALUES})
        ssl = re.search(r"<ssl>(.*?)</ssl>", zeo_text, re.S)
        if ssl:
            found.update({f"ssl-{key}": value(key, ssl[1]) for key in cls.SSL})
            found["ssl-key-password-file"] = password_file(value("password-function", ssl[1]))
        found["blob-dir"] = value("blob-dir", storage_text)
        found["read-only"] = found["read-only"] or bool(value("read-only", storage_text))
        found["no-pack-gc"] = bool(re.search(r"^\s*pack-gc\s+false", storage_text, re.M))
        return cls(**found)

    def options(self):
        words = []
        for key, value in sorted(self.values.items()):
            words.append(f"--{key}")
            if value is not True:
                words.append(str(value))
        return words

    def zconfig(self, address, path):
        lines = ["<zeo>", f"  address {address}"]
        for key, value in self.values.items():
            if key != "blob-dir":
                lines.append(f"  {key} {'true' if value is True else value}")
        lines += ["</zeo>"]
        storage = ["<filestorage 1>", f"  path {path}", "</filestorage>"]
        if "blob-dir" in self.values:
            storage = [
                "<blobstorage 1>",
                f"  blob-dir {self.values['blob-dir']}",
                "<filestorage>",
                f"  path {path}",
                "</filestorage>",
                "</blobstorage>",
            ]
        return "\n".join(lines + storage) + "\n"


def password_file(function):
    """A file with what `function` returns: who moves from the stock server writes it by hand."""
    if function:
        module, _, name = function.rpartition(".")
        handle, path = tempfile.mkstemp(".txt", "password-", os.getcwd())
        with os.fdopen(handle, "w") as out:
            out.write(getattr(importlib.import_module(module), name)())
        return path


class Server(ServerProcess):
    """One external server process, and a count of all that were started."""

    template = None  # the server command, set once per process
    msgpack = False  # announce M5 instead of Z5, set once per process
    started = 0  # servers started so far by this process
    running = set()

    def __init__(self, path, settings=None, config_text=None, port=None, log_path=None):
        self.path = os.path.abspath(path)
        folder = os.path.dirname(self.path)
        settings = settings or Settings()
        self._refuse_unsupported(settings)
        port = port or free_port()
        options = settings.options() + ["--msgpack"] * self.msgpack
        words = command_words(
            self.template,
            options,
            path=self.path,
            port=port,
            dir=folder,
            config=self._write_config(folder, port, settings, config_text),
            blob_dir=settings.values.get("blob-dir", ""),
        )
        Server.started += 1
        Server.running.add(self)
        env = {
            # The stock server takes its encoding from the environment.
            "ZEO_MSGPACK": "1" if self.msgpack else "",
        }
        super().__init__(words, port, folder, log_path, env)

    def stop(self, *_ignored):
        Server.running.discard(self)
        return super().stop()

    def remove_files(self):
        for suffix in ("", ".index", ".lock", ".tmp", ".old"):
            with contextlib.suppress(OSError):
                os.remove(self.path + suffix)

    def _refuse_unsupported(self, settings):
        extra = set(settings.values)
        if "{blob_dir}" in self.template:
            extra.discard("blob-dir")
        if extra and not ("{config}" in self.template or "{options}" in self.template):
            raise Unsupported(f"{NOT_SUPPORTED}: {', '.join(sorted(extra))}")

    def _write_config(self, folder, port, settings, text):
        if text is None:
            text = settings.zconfig(f"{HOST}:{port}", self.path)
        else:
            text = re.sub(r"(?m)^(\s*address)\s.*$", rf"\1 {HOST}:{port}", text)
        # A server that leaves all conflicts to its clients refuses the line.
        if not re.search(r"(?mi)^\s*client-conflict-resolution\s+true", text):
            text = RESOLVER_LINE + text
        handle, name = tempfile.mkstemp(".conf", "server-", folder)
        with os.fdopen(handle, "w") as out:
            out.write(text)
        return name
