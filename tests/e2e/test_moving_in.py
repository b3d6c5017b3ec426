"""Moving in from the stock server and back, with everything a site has.

One zeo.conf of the usual kind: two storages with blobs, TLS with client
certificates, a log file, a pid file.  Three client processes write over it
through runzeo, then through Zodium, then through runzeo again; each time all
that was ever acknowledged is there, and the files pass the stock checks.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import ZEO.tests
from harness import files
from harness.process import ServerProcess, free_port
from harness.servers import BINARY, STOCK_SERVER

CERTIFICATES = Path(ZEO.tests.__file__).parent
VISITOR = Path(__file__).parents[1] / "harness" / "visitor.py"
VISITORS = 3
ROUNDS = 15

ZEO_CONF = """\
%define INSTANCE {folder}
%define CERTIFICATES {certificates}

<zeo>
  address 127.0.0.1:{port}
  read-only false
  invalidation-queue-size 100
  pid-filename $INSTANCE/var/zeo.pid
  transaction-timeout 300
  <ssl>
    certificate $CERTIFICATES/server.pem
    key $CERTIFICATES/server_key.pem
    authenticate $CERTIFICATES/client.pem
  </ssl>
</zeo>

<filestorage main>
  path $INSTANCE/var/filestorage/Data.fs
  blob-dir $INSTANCE/var/blobstorage
</filestorage>

# The way it was written before FileStorage knew blobs.
<blobstorage catalog>
  blob-dir $INSTANCE/var/blobstorage-catalog
  <filestorage>
    path $INSTANCE/var/filestorage/Catalog.fs
  </filestorage>
</blobstorage>

<eventlog>
  level info
  <logfile>
    path $INSTANCE/var/log/zeo.log
    format %(asctime)s %(message)s
  </logfile>
</eventlog>

<runner>
  program $INSTANCE/bin/runzeo
  socket-name $INSTANCE/var/zeo.zdsock
  daemon true
  forever false
  backoff-limit 10
  exit-codes 0, 2
  directory $INSTANCE
  default-to-interactive true
</runner>
"""

DATABASE_CONF = """\
<zodb {name}>
  cache-size 1000
  allow-implicit-cross-references true
  <clientstorage>
    server 127.0.0.1:{port}
    storage {name}
    blob-dir {blobs}
    shared-blob-dir {shared}
    wait-timeout 20
    <ssl>
      certificate {certificates}/client.pem
      key {certificates}/client_key.pem
      authenticate {certificates}/server.pem
      server-hostname zodb.org
    </ssl>
  </clientstorage>
</zodb>
"""


class Site:
    def __init__(self, folder):
        self.folder = folder
        self.port = free_port()
        self.acknowledged = {"pages": {}, "visits": 0}
        for name in ("filestorage", "log"):
            (folder / "var" / name).mkdir(parents=True)
        (folder / "zeo.conf").write_text(
            ZEO_CONF.format(folder=folder, port=self.port, certificates=CERTIFICATES)
        )

    def serve(self, *command):
        return ServerProcess([*command, str(self.folder / "zeo.conf")], self.port, self.folder)

    def visit(self, period):
        """Three client processes at once; what they had acknowledged is remembered."""
        # One of them shares the server's directory of blobs, as on the same machine.
        visitors = [
            self.start_visitor(f"{period}-{number}", shared=number == 0)
            for number in range(VISITORS)
        ]
        for visitor in visitors:
            self.acknowledged["pages"].update(json.loads(self.finish(visitor)))
            self.acknowledged["visits"] += ROUNDS

    def finish(self, visitor):
        """What a visitor has printed, once it has ended well."""
        out, errors = visitor.communicate(timeout=120)
        assert visitor.returncode == 0, errors
        return out

    def begin(self):
        """One client makes the roots: the stock DB does not expect others to, meanwhile."""
        self.finish(self.start_visitor("founder", shared=False, rounds=0))

    def check(self):
        expected = self.folder / "expected.json"
        expected.write_text(json.dumps(self.acknowledged))
        self.finish(self.start_visitor("checker", False, 0, "--check", str(expected)))

    def start_visitor(self, name, shared, rounds=ROUNDS, *options):
        conf = self.folder / f"{name}.conf"
        parts = []
        for storage, blobs in (("main", "blobstorage"), ("catalog", "blobstorage-catalog")):
            private = self.folder / "cache" / f"{name}-{storage}"
            parts.append(
                DATABASE_CONF.format(
                    name=storage,
                    port=self.port,
                    blobs=self.folder / "var" / blobs if shared else private,
                    shared="true" if shared else "false",
                    certificates=CERTIFICATES,
                )
            )
        conf.write_text("%import ZEO\n" + "".join(parts))
        return subprocess.Popen(
            [sys.executable, str(VISITOR), str(conf), name, str(rounds), *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


@pytest.mark.zodium
def test_a_site_moves_in_and_back_out(tmp_path):
    (tmp_path / "cache").mkdir()
    site = Site(tmp_path)
    periods = (
        ("before", (STOCK_SERVER, "-C")),
        ("with", (BINARY, "serve", "-C")),
        ("after", (STOCK_SERVER, "-C")),
    )
    for period, command in periods:
        server = site.serve(*command)
        try:
            site.begin()
            site.visit(period)
            site.check()
            assert (tmp_path / "var" / "zeo.pid").exists()
        except Exception:
            print(server.log(), (tmp_path / "var/log/zeo.log").read_text()[-3000:])
            raise
        finally:
            assert server.stop() == 0
        for name in ("Data.fs", "Catalog.fs"):
            files.check(tmp_path / "var" / "filestorage" / name)
