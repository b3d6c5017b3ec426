"""Our commands and our admin beside those of NEO/py, in one cluster: the output is the same."""

import json

import pytest
from harness.neo import CHECKOUT, clusters, needs_neo
from harness.waiting import WAIT_SECONDS, wait_for

pytestmark = [pytest.mark.zodium, needs_neo]

# Nothing changes between them.
QUESTIONS = [
    "print ids",
    "print pt",
    "print pt 3 7",
    "print pt 0 2 S1",
    "print pt 5 2",
    "print pt 4",
    "print node storage",
    "print node MASTER",
    "print node client",
    "print cluster",
    "print primary",
    "print summary",
    "tweak -n",
]
# Only the number of the partition table changes.
COMMANDS = [
    "tweak",
    "add all",
    "add S1 S2",
    "set replicas 1",
    "check 0:S1 1:",
    "check 1:S2 2:S1 1325421296 2e9",
    "prune_orphan 1 all",
    "flush_log",
]
# Refused by the admin or by the master.
REFUSALS = [
    "set cluster VERIFYING",
    "set cluster starting_backup",
    "set cluster running",
    "kill M1",
    "kill S9",
    "kill C1",
    "drop S1",
    "tweak S1 S2",
    "truncate tid:1",
    "truncate tid:0x7fffffffffffffff",
    "print pt 0 99",
    "prune_orphan 1 S9",
]


@pytest.fixture
def cluster(tmp_path):
    """cluster(**shape): a running cluster with an admin of each kind."""
    with clusters(tmp_path) as make:

        def start(**shape):
            one = make(**shape)
            one.start()
            one.own_admin.start()
            wait_for(lambda: own(one, "print", "cluster").returncode == 0, "our admin is ready")
            return one

        yield start


def own(cluster, *words):
    """Our command, to our admin."""
    return cluster.ctl(*words, admin=cluster.own_admin_address)


def answers(cluster, questions):
    """By question, (exit code, output, errors) of both commands with both admins."""
    commands = [words.split() for words in questions]
    admins = (cluster.admin_address, cluster.own_admin_address)
    columns = [cluster.neoctl_each(commands, admin=admin) for admin in admins]
    for admin in admins:
        done = [cluster.ctl(*words, admin=admin) for words in commands]
        columns.append([(one.returncode, one.stdout, one.stderr) for one in done])
    return dict(zip(questions, zip(*columns, strict=True), strict=True))


def assert_all_say_the_same(cluster, questions):
    """What each question is answered: exit code and output."""
    said = {}
    for words, all_answers in answers(cluster, questions).items():
        said[words] = all_answers[0][:2]
        assert [one[:2] for one in all_answers] == [said[words]] * 4, (words, all_answers)
    return said


def test_both_commands_and_both_admins_print_the_same(cluster):
    cluster = cluster(storages=2, partitions=12, replicas=1)
    client = cluster.client()
    client.call("set", a=1)
    said = assert_all_say_the_same(cluster, QUESTIONS)
    said |= assert_all_say_the_same(cluster, COMMANDS)
    assert {code for code, _ in said.values()} == {0}
    assert said["print pt"][1].splitlines()[1:] == [
        "             10v",
        "S1 R UUUUUUUUUUUU",
        "S2 R UUUUUUUUUUUU",
    ]
    assert said["check 0:S1 1:"][1] == said["flush_log"][1] == ""
    # neoctl takes the number of replicas for the rows of the table.
    assert own(cluster, "check", ":S1", "tid:0x1").returncode == 0
    assert said["set replicas 1"][1] == "\n"
    assert_all_say_the_same(cluster, ["print ids"])
    # Each admin is in its own list, and in no other one.
    for admin in (cluster.admin_address, cluster.own_admin_address):
        neos, ours = (do("print", "node", admin=admin) for do in (cluster.neoctl, cluster.ctl))
        assert neos.stdout == ours.stdout
        assert neos.stdout.count(" ADMIN ") == 1
        assert admin in neos.stdout
    refused = assert_all_say_the_same(cluster, REFUSALS)
    assert set(refused.values()) == {(1, "")}
    for words, all_answers in answers(cluster, REFUSALS[:5]).items():
        errors = [errors for _, _, errors in all_answers]
        assert errors == [errors[0]] * 4, (words, errors)
    # A storage less, and its cells out of date.
    cluster.storages[1].kill()
    wait_for(lambda: "DOWN" in cluster.nodes(), "the storage is down")
    wait_for(lambda: "DOWN" in own(cluster, "print", "node").stdout, "our admin knows it")
    said = assert_all_say_the_same(cluster, [*QUESTIONS, "kill S1"])
    assert "\nS2 D OOOOOOOOOOOO" in said["print pt"][1]
    assert (
        '# {"problem": [null]}\nRUNNING; OUT_OF_DATE=12, UP_TO_DATE=12; DOWN=1'
        in (said["print summary"][1])
    )
    status = cluster.status(admin=cluster.own_admin_address)
    assert status.returncode == 3
    assert "S2 is down, which has cells of 12 partitions: start it." in joined(status.stdout)
    assert all(len(line) <= 80 for line in status.stdout.splitlines()), status.stdout


def joined(text):
    return " ".join(text.split())


def test_json_has_the_same_facts(cluster):
    cluster = cluster(storages=2, partitions=3)
    cluster.client().call("set", a=1)

    def asked(*words):
        done = own(cluster, "--json", *words)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    assert asked("print", "cluster") == {"state": "RUNNING"}
    assert asked("print", "primary") == {"primary": "M1"}
    table = asked("print", "pt")
    assert (table["replicas"], len(table["partitions"])) == (0, 3)
    assert {cell["state"] for row in table["partitions"] for cell in row["cells"]} == {"UP_TO_DATE"}
    nodes = asked("print", "node", "storage")
    assert [(node["id"], node["state"]) for node in nodes] == [("S1", "RUNNING"), ("S2", "RUNNING")]
    ids = asked("print", "ids")
    assert (
        cluster.neoctl("print", "ids")
        .stdout.splitlines()[1]
        .startswith(f"last_tid = 0x{ids['last_tid'].lstrip('0')} ")
    )
    assert asked("print", "summary")["problem"] == []
    assert asked("tweak", "-n")["changed"] is False
    assert asked("add", "all") == {"message": "No node added"}
    assert asked("flush_log") == {"message": ""}
    status = json.loads(cluster.status("--json").stdout)
    assert (status["state"], status["is_well"], status["advice"]) == ("RUNNING", True, [])
    assert status["last_tid"] == ids["last_tid"]


def test_the_admin_follows_the_primary_master(cluster):
    cluster = cluster(masters=2)
    cluster.client().call("set", a=1)
    primary = own(cluster, "print", "primary").stdout.strip()
    masters = own(cluster, "print", "node", "master").stdout.splitlines()
    address = next(line.split("|")[2].strip() for line in masters if line.startswith(primary))
    node = next(node for node in cluster.master_nodes if address in node.words)
    node.kill()

    def has_another():
        done = own(cluster, "print", "primary")
        assert done.returncode == 0 or "ot connected to a primary master" in done.stderr, done
        return done.returncode == 0 and done.stdout.strip() != primary

    wait_for(has_another, "another primary master")
    wait_for(lambda: own(cluster, "print", "cluster").stdout == "RUNNING\n", "RUNNING again")
    wait_for(
        lambda: cluster.neoctl("print", "pt").stdout == own(cluster, "print", "pt").stdout,
        "both admins have the same table",
    )
    # The end of the cluster ends its admin.
    assert own(cluster, "set", "cluster", "STOPPING").stdout == "Cluster state changed\n"
    assert cluster.own_admin.process.wait(WAIT_SECONDS) == 0


def test_storages_are_added_moved_and_dropped(cluster):
    """What operators do to a cluster, with our commands over our admin."""
    cluster = cluster(storages=1, partitions=4)
    client = cluster.client()
    client.call("fill", count=10)
    cluster.storages.append(cluster.storage_node(2))
    cluster.storages[1].start()
    wait_for(lambda: "PENDING" in own(cluster, "print", "node").stdout, "S2 is pending")
    status = cluster.status(admin=cluster.own_admin_address).stdout
    assert "S2 is pending: `zodium neo ctl add S2`" in joined(status)
    assert own(cluster, "add", "all").stdout == "Nodes added: S2\n"
    planned = own(cluster, "tweak", "-n", "S1").stdout
    assert planned == "S1 R UUUU\nS2 R OOOO\n"
    assert own(cluster, "tweak", "S1").stdout == planned
    wait_for(
        lambda: own(cluster, "print", "pt").stdout.endswith("S1 R UUUU\nS2 R UUUU\n"), "S2 has all"
    )
    assert own(cluster, "kill", "S1").stdout == "state changed\n"
    assert cluster.storages[0].process.wait(WAIT_SECONDS) == 0
    assert own(cluster, "drop", "S1").returncode == 0
    wait_for(lambda: "S1" not in own(cluster, "print", "node").stdout, "S1 is gone")
    assert cluster.client().call("filled") == list(range(10))
    assert cluster.status(admin=cluster.own_admin_address).returncode == 0


def test_admins_with_tls(cluster):
    folder = f"{CHECKOUT}/neo/tests"
    cluster = cluster(tls=[f"{folder}/{name}" for name in ("ca.crt", "node.crt", "node.key")])
    said = assert_all_say_the_same(cluster, ["print cluster", "print summary", "print pt"])
    assert said["print cluster"] == (0, "RUNNING\n")
    cluster.tls = None
    done = own(cluster, "print", "cluster")
    assert done.returncode == 1
    assert "TLS" in done.stderr


@pytest.mark.parametrize("own_masters", [(), (1,)], ids=["master of NEO/py", "our master"])
def test_another_node_is_not_taken_for_an_admin(cluster, own_masters):
    cluster = cluster(own_masters=own_masters)
    done = cluster.ctl("print", "ids", admin=cluster.masters)
    assert done.returncode == 1
    assert "is it the address of the cluster's admin?" in done.stderr


def test_admins_tell_each_other_of_backups(cluster):
    """Both kinds of admins, on both sides."""
    upstream = cluster(monitors=["zodium_backup"], partitions=2)
    client = upstream.client()
    client.call("set", a=1)
    backup = cluster(partitions=2, upstream=upstream)
    assert own(backup, "set", "cluster", "STARTING_BACKUP").returncode == 0
    backup.wait_state("BACKINGUP")
    # The master of the backup cluster announces one of the two upstream admins to its own.
    addresses = {upstream.admin_address, upstream.own_admin_address}

    def summaries():
        return [upstream.ctl("print", "summary", admin=address).stdout for address in addresses]

    def is_monitored():
        return any(
            "zodium_backup\n    BACKINGUP; UP_TO_DATE=2; ltid=" in one for one in summaries()
        )

    wait_for(is_monitored, "an upstream admin knows the backup")
    wait_for(lambda: any("lag=0.0" in one for one in summaries()), "the backup has everything")
    assert_all_say_the_same(backup, ["print ids", "print cluster", "print pt"])
