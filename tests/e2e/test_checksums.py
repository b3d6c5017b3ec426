"""Checksums beside the data file, through the real binary: what is damaged on the disk is an error
that names it and never other bytes, and everything else is served.
"""

import json
import subprocess

import pytest
import ZODB
import ZODB.FileStorage
from harness.damage import OBJECTS, damage, flip, is_covered, text
from harness.monitor import Monitor
from ZEO.Exceptions import ServerException
from ZODB.utils import u64

pytestmark = pytest.mark.zodium
RUN_SECONDS = 60


def damaged(monitor):
    return monitor.status()["storages"][0]["checksums"]["damaged"]


def test_damaged_record_is_an_error_that_names_it_and_all_others_load(
    covered, start_server, connect
):
    path, oids = covered
    damage(path, 7)
    monitor = Monitor()
    served = start_server(path, *monitor.options)
    storage = connect(served)
    for number, oid in enumerate(oids):
        if number == 7:
            with pytest.raises(ServerException) as raised:
                storage.load(oid)
            assert f"{u64(oid):016x}" in str(raised.value)
            assert "position" in str(raised.value)
        else:
            assert text(number).encode() in storage.load(oid)[0]
    assert damaged(monitor) == 1
    assert monitor.samples()["zodium_checksum_damaged"] == 1
    code, _, body = monitor.fetch("/health")
    assert (code, json.loads(body)["status"]) == (200, "degraded")
    assert "does not fit its checksum" in served.log()


@pytest.mark.parametrize("checksums", ["full", "commit", "off"])
def test_damaged_header_that_a_client_meets_degrades_health_and_is_counted_once(
    covered, start_server, connect, checksums
):
    path, oids = covered
    record = path.read_bytes().rindex(text(7).encode())
    header = path.read_bytes().rindex(oids[7], 0, record)
    monitor = Monitor()
    served = start_server(path, "--checksums", checksums, *monitor.options)
    storage = connect(served)
    assert json.loads(monitor.fetch("/health")[2])["status"] == "ok"
    with open(path, "r+b") as file:
        file.seek(header)
        file.write(bytes([oids[7][0] ^ 1]))
    for _ in range(3):
        with pytest.raises(ServerException) as raised:
            storage.load(oids[7])
        assert f"position {header}" in str(raised.value)
    assert text(8).encode() in storage.load(oids[8])[0]
    assert damaged(monitor) == 1
    assert monitor.samples()["zodium_checksum_damaged"] == 1
    code, _, body = monitor.fetch("/health")
    health = json.loads(body)
    assert (code, health["status"]) == (200, "degraded")
    assert health["storages"][0]["damaged"] == 1
    assert f"position={header}" in served.log()


def test_scrub_finds_what_nobody_loads(covered, start_server):
    path, _ = covered
    damage(path, 3)
    monitor = Monitor()
    start_server(path, "--scrub-interval", "0.1", *monitor.options)
    monitor.wait_until(lambda status: status["storages"][0]["checksums"]["damaged"] == 1)


def test_check_names_what_does_not_fit(covered, binary):
    path, oids = covered

    def check(*words):
        done = subprocess.run(
            [str(binary), "check", "--json", *words, str(path)],
            capture_output=True,
            text=True,
            timeout=60,
        )
        return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]

    code, lines = check()
    assert (code, lines[-1]["checksums"], lines[-1]["uncovered"]) == (0, True, 0)
    position = damage(path, 11)
    code, lines = check()
    assert code == 1
    assert [(line["kind"], line["oid"]) for line in lines[:-1]] == [
        ("checksum", f"{u64(oids[11]):016x}")
    ]
    flip(path, position)
    (path.parent / "Data.fs.checksums").unlink()
    assert check("--write-checksums")[1][-1]["covered"] == 0
    assert check()[1][-1]["uncovered"] == 0


@pytest.mark.parametrize("command", ["backup", "copy"])
def test_what_checksums_contradict_is_not_passed_on(covered, run, tmp_path, command):
    path, _ = covered
    assert run(command, path, tmp_path / "sound.fs")[0] == 0
    damage(path, 7)
    code, _, said = run(command, path, tmp_path / "damaged.fs")
    assert code == 1 and "does not fit its checksum" in said


def test_stock_server_may_append_and_pack_in_between(covered, start_server, connect):
    path, _ = covered
    db = ZODB.DB(ZODB.FileStorage.FileStorage(str(path)))
    for is_packed in (False, True):
        connection = db.open()
        for number in range(OBJECTS):
            connection.root()[number]["text"] = text(number + 1)
            connection.transaction_manager.commit()
        connection.close()
        if is_packed:
            db.pack()
        db.close()
        monitor = Monitor()
        served = start_server(path, *monitor.options)
        monitor.wait_until(is_covered)
        assert len(list(connect(served).iterator())) > 0
        assert damaged(monitor) == 0
        served.stop()
        db = ZODB.DB(ZODB.FileStorage.FileStorage(str(path)))
    db.close()
