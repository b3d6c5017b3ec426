"""Both servers on copies of a site, and delaying proxies before them."""

import contextlib
import shutil
import socket
import subprocess
import sys
import time

START_SECONDS = 60


@contextlib.contextmanager
def started(options, site, milliseconds):
    """The ports of the servers by name, with a round trip of so many milliseconds."""
    with contextlib.ExitStack() as stack:
        ports = {}
        for name in ("ZEO", "zodium"):
            folder = options.folder / f"served-by-{name}"
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(site, folder)
            port = run(stack, folder, command(options, name, folder))
            if milliseconds:
                proxy = [options.bench, "delay-proxy", "--port={port}", f"--to=127.0.0.1:{port}"]
                proxy.append(f"--round-trip-ms={milliseconds}")
                port = run(stack, folder, proxy)
            ports[name] = port
        yield ports


def command(options, name, folder):
    path, blobs = folder / "Data.fs", folder / "blobs"
    if name == "zodium":
        serve = [options.program, "serve", path, "-a", "127.0.0.1:{port}"]
        return [*serve, "--blob-dir", blobs, "--log-level", "warn"]
    path_of_configuration = folder / "zeo.conf"
    path_of_configuration.write_text(
        f"<zeo>\naddress 127.0.0.1:$PORT\n</zeo>\n<filestorage 1>\npath {path}\n"
        f"blob-dir {blobs}\n</filestorage>\n"
    )
    return [sys.executable, "-m", "ZEO.runzeo", "-C", path_of_configuration]


def run(stack, folder, words):
    """Start a server; return its port."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    configuration = folder / "zeo.conf"
    if configuration.exists():
        configuration.write_text(configuration.read_text().replace("$PORT", str(port)))
    log = stack.enter_context(open(folder / "log", "a"))
    words = [str(word).format(port=port) for word in words]
    process = subprocess.Popen(words, stdout=log, stderr=subprocess.STDOUT)
    stack.callback(process.wait)
    stack.callback(process.terminate)
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return port
        except OSError as error:
            if process.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"{words[0]} does not listen: {error}; see {folder}/log")
            time.sleep(0.05)
