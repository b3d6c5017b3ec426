"""A process that follows a storage: zodium backup --watch."""

import json
import subprocess
import time

WAIT_SECONDS = 60
STOP_SECONDS = 30


class Archiver:
    """Its output goes to a file; its state is read from its status file."""

    def __init__(self, binary, storage, repository, folder, *options, env=None):
        self.status_path = folder / "archiver.json"
        self.log_path = folder / "archiver.log"
        self.words = [str(binary), "backup", str(storage), str(repository), "--watch"]
        self.words += ["--interval", "0.05", "--status-file", str(self.status_path)]
        self.words += [str(option) for option in options]
        self.env, self.process = env, None

    def start(self):
        self.status_path.unlink(missing_ok=True)
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(self.words, stdout=log, stderr=log, env=self.env)
        return self

    def status(self):
        try:
            return json.loads(self.status_path.read_text())
        except FileNotFoundError:
            return {"state": None, "last": None, "rereading": True, "transactions": 0}

    def wait(self, condition, what):
        """Waits until `condition` is true of the status, and gives it."""
        end = time.monotonic() + WAIT_SECONDS
        while not condition(status := self.status()):
            assert self.process.poll() is None, f"the archiver has ended: {self.log()}"
            assert time.monotonic() < end, f"{what}: {status}; {self.log()}"
            time.sleep(0.01)
        return status

    def wait_for_tid(self, tid):
        return self.wait(
            lambda status: (status["last"] or "") >= tid.hex(), f"{tid.hex()} archived"
        )

    def wait_until_reread(self):
        return self.wait(lambda status: not status["rereading"], "all was read once more")

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        """SIGTERM; the exit code."""
        self.process.terminate()
        return self.process.wait(STOP_SECONDS)

    def close(self):
        if self.process and self.process.poll() is None:
            self.kill()

    def log(self):
        return self.log_path.read_text()
