"""A server's monitor as its readers see it: over HTTP, parsed by Prometheus' own parsers."""

import http.client
import json
import time

from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from .process import HOST, free_port
from .waiting import WAIT_SECONDS, wait_for

PARSERS = {
    "application/openmetrics-text": openmetrics.text_string_to_metric_families,
    "text/plain": text_string_to_metric_families,
}

# For so long the server may give the same answer again.
SNAPSHOT_SECONDS = 0.1


class Monitor:
    """The monitor of one server."""

    def __init__(self, port=None):
        self.port = port or free_port()

    @property
    def options(self):
        """What tells a server to have this monitor."""
        return ["--monitor", f"{HOST}:{self.port}"]

    @property
    def url(self):
        return f"http://{HOST}:{self.port}/"

    def fetch(self, path, method="GET", seconds=WAIT_SECONDS, accept=None):
        """Status code, headers and body of an answer."""
        connection = http.client.HTTPConnection(HOST, self.port, timeout=seconds)
        try:
            connection.request(method, path, headers={"Accept": accept} if accept else {})
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            connection.close()

    def status(self):
        time.sleep(1.5 * SNAPSHOT_SECONDS)
        return json.loads(self.fetch("/status.json")[2])

    def families(self, accept="application/openmetrics-text"):
        """The families of metrics as the parser of the format has them that the server chose."""
        time.sleep(1.5 * SNAPSHOT_SECONDS)
        code, headers, body = self.fetch("/metrics", accept=accept)
        assert code == 200
        media_type = headers["content-type"].split(";")[0]
        return list(PARSERS[media_type](body.decode()))

    def samples(self):
        """Every sample: a value by name and labels."""
        return Samples(
            {
                (sample.name, frozenset(sample.labels.items())): sample.value
                for family in self.families()
                for sample in family.samples
            }
        )

    def wait_serving(self, seconds=WAIT_SECONDS):
        """Waits until the server is past its start: it listens a moment before that."""
        wait_for(lambda: b'"opening"' not in self.fetch("/health")[2], "storages open", seconds)

    def wait_until(self, condition, seconds=WAIT_SECONDS):
        """Waits until `condition` holds of the status, and gives that status."""
        deadline = time.monotonic() + seconds
        while True:
            status = self.status()
            if condition(status):
                return status
            assert time.monotonic() < deadline, status


class Samples:
    def __init__(self, values):
        self.values = values

    def __getitem__(self, name):
        return self.of(name)

    def of(self, name, **labels):
        """A value; of storage 1 where nothing is said, and 0 when there is no sample yet."""
        of_storage = frozenset({"storage": "1", **labels}.items())
        plain = frozenset(labels.items())
        return self.values.get((name, of_storage), self.values.get((name, plain), 0))

    def calls(self, method):
        return self.of("zodium_request_duration_seconds_count", method=method)
