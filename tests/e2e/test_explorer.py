"""The explorer in a real browser, on files and on servers. The test's folder has screenshots."""

import hashlib
import http.client
import re
import subprocess

import pytest
import transaction
import ZODB
from BTrees.OOBTree import OOBTree
from harness.browser import shoot, wait_for
from harness.process import HOST
from harness.waiting import WAIT_SECONDS
from persistent.mapping import PersistentMapping
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from ZEO.ClientStorage import ClientStorage
from ZODB.FileStorage import FileStorage
from ZODB.utils import p64, u64

pytestmark = pytest.mark.zodium

HOSTILE = "<script>document.title='taken'</script><img src=x onerror=alert(1)>\"'&"
SURVEY = "form[action='/survey'] button"


class Explorer:
    def __init__(self, binary, *words):
        words = [binary, "explore", "-a", f"{HOST}:0", *map(str, words)]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        assert line.startswith("Exploring "), line
        self.url = re.search(r"http://\S+/", line)[0]
        self.port = int(re.search(r":(\d+)/", self.url)[1])

    def fetch(self, path, method="GET", body=None, **headers):
        connection = http.client.HTTPConnection(HOST, self.port, timeout=20)
        try:
            headers = {"Host": f"{HOST}:{self.port}", **headers}
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read().decode()
        finally:
            connection.close()

    def stop(self):
        self.process.terminate()
        assert self.process.wait(WAIT_SECONDS) == 0


@pytest.fixture
def explore(binary):
    explorers = []

    def start(*words):
        explorers.append(Explorer(binary, *words))
        return explorers[-1]

    yield start
    for explorer in explorers:
        explorer.process.kill()
        explorer.process.wait()


def write_site(storage):
    """A small database, with hostile texts. Gives the tids of its transactions."""
    database = ZODB.DB(storage)
    tids = []

    def commit(user, text):
        transaction.get().setUser(user, "")
        transaction.get().note(text)
        transaction.commit()
        tids.append(storage.lastTransaction())

    with database.transaction() as connection:
        connection.root()["site"] = PersistentMapping()
    site = database.open().root()["site"]
    site["pages"] = OOBTree()
    site["title"] = "Stock"
    commit("ada", "Create the site")
    for number in range(60):
        page = PersistentMapping(title=f"Page {number}", body="text " * (number % 7 * 40))
        page["up"] = site
        site["pages"][f"page-{number:02}"] = page
        commit("grace" if number % 3 else "ada", f"Add page {number}")
    site["title"] = HOSTILE
    site["tags"] = ["a", ("b", 1), {"c": None, b"\xff": 2.5}]
    commit("mallory", HOSTILE)
    oid = u64(site._p_oid)
    database.close()
    return oid, [f"{u64(tid):016x}" for tid in tids]


def text(browser):
    # In one step: the page may be leaving.
    return browser.execute_script("return document.querySelector('main')?.innerText ?? ''")


def wait_for_text(browser, words):
    """A click may return before the page that it leads to is there."""
    wait_for(browser, lambda: words in text(browser))


def shoot_all(browser, folder, name):
    for look, width, dark in [("light", 1280, False), ("narrow-dark", 390, True)]:
        shoot(browser, folder / f"explorer-{name}-{look}.png", width, dark)
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


# axe-core is not at hand: what it checks first.
READABLE = """
const faults = [];
for (const field of document.querySelectorAll("input:not([type=hidden])"))
  if (!field.labels.length) faults.push("no label: " + field.outerHTML);
for (const drawing of document.querySelectorAll("svg"))
  if (!drawing.ariaHidden && !drawing.getAttribute("aria-label")) faults.push("svg without a text");
for (const table of document.querySelectorAll("table"))
  if (!table.caption || !table.querySelector("th[scope=col]")) faults.push("table without headers");
for (const name of ["main", "header", "nav", "footer", "h1"])
  if (!document.querySelector(name)) faults.push("no " + name);
for (const link of document.querySelectorAll("a")) {
  if (!link.textContent.trim()) faults.push("link without a text");
  if (new URL(link.href).host !== location.host) faults.push("link to elsewhere: " + link.href);
}
const seen = new Set();
for (const {id} of document.querySelectorAll("[id]")) {
  if (seen.has(id)) faults.push("two elements are called " + id);
  seen.add(id);
}
if (!document.documentElement.lang) faults.push("no language");
return faults;
"""


def visit(browser, url):
    browser.get(url)
    assert browser.execute_script(READABLE) == []
    assert "taken" not in browser.title


def test_a_database_is_looked_at(explore, browser, tmp_path):
    oid, tids = write_site(FileStorage(str(tmp_path / "Data.fs")))
    explorer = explore(tmp_path / "Data.fs")
    visit(browser, explorer.url)
    assert "Newest transactions" in text(browser) and HOSTILE in text(browser)

    # Pages of the log, there and back.
    visit(browser, explorer.url + "transactions")
    assert len(browser.find_elements(By.CSS_SELECTOR, "tbody tr")) == 50
    browser.find_element(By.LINK_TEXT, "Older").click()
    wait_for_text(browser, "Create the site")
    assert "initial database creation" in text(browser)
    browser.find_element(By.LINK_TEXT, "Newer").click()
    wait_for_text(browser, "Add page 59")
    shoot_all(browser, tmp_path, "transactions")

    # A transaction, an object of it, and what the transaction changed.
    visit(browser, f"{explorer.url}transaction/{tids[-1]}")
    assert "mallory" in text(browser) and "PersistentMapping" in text(browser)
    browser.find_element(By.LINK_TEXT, "what it changed").click()
    wait_for(browser, lambda: browser.find_elements(By.CSS_SELECTOR, ".diff .removed"))
    removed = browser.find_element(By.CSS_SELECTOR, ".diff .removed").text
    added = [line.text for line in browser.find_elements(By.CSS_SELECTOR, ".diff .added")]
    assert "'title': 'Stock'" in removed
    assert any("alert(1)" in line for line in added) and any("'tags': [" in line for line in added)
    shoot_all(browser, tmp_path, "changes")

    visit(browser, f"{explorer.url}object/0x{oid:x}")
    shown = text(browser)
    assert "persistent.mapping.PersistentMapping" in shown and "b'\\xff': 2.5" in shown
    shoot_all(browser, tmp_path, "object")
    browser.find_element(By.PARTIAL_LINK_TEXT, "BTrees.OOBTree.OOBTree").click()
    wait_for_text(browser, "'page-15': BTrees.OOBTree.OOBucket")
    assert browser.get_log("browser") == []


def test_any_earlier_state_is_shown(explore, browser, tmp_path):
    oid, tids = write_site(FileStorage(str(tmp_path / "Data.fs")))
    explorer = explore(tmp_path / "Data.fs")
    visit(browser, f"{explorer.url}object/0x{oid:x}?at={tids[0]}")
    assert "'Stock'" in text(browser) and "As of transaction" in browser.page_source
    browser.find_element(By.LINK_TEXT, "History").click()
    wait_for(browser, lambda: len(browser.find_elements(By.CSS_SELECTOR, "tbody tr")) == 2)
    browser.find_element(By.LINK_TEXT, "Back to now").click()
    wait_for(browser, lambda: len(browser.find_elements(By.CSS_SELECTOR, "tbody tr")) == 3)
    shoot_all(browser, tmp_path, "history")
    # The search leads to objects, transactions and times, from the keyboard.
    for typed, found in [
        (f"0x{oid:x}", "State"),
        (tids[3], "Add page 2"),
        ("1.minute.from", "Not"),
    ]:
        visit(browser, explorer.url)
        browser.find_element(By.TAG_NAME, "body").send_keys("/")
        browser.switch_to.active_element.send_keys(typed, Keys.ENTER)
        wait_for(browser, lambda expected=found: expected in text(browser))
    assert "is no oid" in text(browser)


def test_what_needs_the_whole_log_is_asked_for(explore, browser, tmp_path):
    oid, _ = write_site(FileStorage(str(tmp_path / "Data.fs")))
    explorer = explore(tmp_path / "Data.fs")
    visit(browser, explorer.url + "classes")
    assert not browser.find_elements(By.CSS_SELECTOR, ".treemap")
    browser.find_element(By.CSS_SELECTOR, SURVEY).click()
    wait_for(browser, lambda: browser.find_elements(By.CSS_SELECTOR, ".treemap"))
    rows = [row.text for row in browser.find_elements(By.CSS_SELECTOR, "tbody tr")]
    assert rows[0].startswith("persistent.mapping.PersistentMapping 62 ")
    assert "largest objects" in text(browser).lower()
    assert browser.execute_script(READABLE) == []
    shoot_all(browser, tmp_path, "classes")
    visit(browser, explorer.url + "growth")
    assert "Transactions\n64" in text(browser)
    shoot_all(browser, tmp_path, "growth")
    visit(browser, explorer.url)
    shoot_all(browser, tmp_path, "overview")

    visit(browser, f"{explorer.url}object/0x{oid:x}/referrers")
    browser.find_element(By.CSS_SELECTOR, "form.ask button").click()
    wait_for(browser, lambda: "Referred to by 61" in text(browser))

    # From the keyboard: from the tab to the button is one step.
    browser.find_element(By.LINK_TEXT, "Path from the root").send_keys(Keys.ENTER)
    wait_for(browser, lambda: "follows references from the root" in text(browser))
    browser.find_element(By.LINK_TEXT, "Path from the root").send_keys(Keys.TAB)
    assert browser.switch_to.active_element.text == "Find it"
    browser.switch_to.active_element.send_keys(Keys.ENTER)
    wait_for(browser, lambda: browser.find_elements(By.CSS_SELECTOR, "ol.path"))
    steps = [step.text for step in browser.find_elements(By.CSS_SELECTOR, "ol.path li")]
    assert [step.split()[0] for step in steps] == ["0x00", f"0x{oid:02x}"]
    assert browser.execute_script(READABLE) == []
    shoot_all(browser, tmp_path, "path")
    assert browser.get_log("browser") == []


def write_log(binary, path, transactions):
    """A file of so many transactions, a second apart, of ten objects each."""
    dump = []
    for number in range(transactions):
        tid = 0x040D_0000_0000_0000 + number * (1 << 32) // 60
        dump.append(b'txn %016x " "\nuser ""\ndescription "%d"\nextension ""' % (tid, number))
        for oid in range(number * 10, number * 10 + 10):
            data = b"cm\nC\n.U\xc8" + b"%010d" % oid * 20 + b"."
            digest = hashlib.sha1(data).hexdigest().encode()
            dump += [b"obj %016x %d sha1:%s" % (oid, len(data), digest), data]
        dump.append(b"")
    dump = b"\n".join([*dump, b""])
    subprocess.run([binary, "load", "-q", str(path)], input=dump, check=True, timeout=60)


def test_pages_of_a_large_file_read_as_much_as_those_of_a_small_one(binary, explore, tmp_path):
    figures = []
    for transactions in (200, 4000):
        path = tmp_path / f"{transactions}.fs"
        write_log(binary, path, transactions)
        explorer, pages = explore(path), []
        last = 0x040D_0000_0000_0000 + (transactions - 1) * (1 << 32) // 60
        for page in (
            "",
            "transactions",
            f"transaction/{last:016x}",
            "object/55",
            "object/55/history",
            "object/55/changes",
            f"?at={last - (1 << 33):016x}",
        ):
            before = bytes_read(explorer.process.pid)
            assert explorer.fetch("/" + page)[0] == 200
            pages.append(bytes_read(explorer.process.pid) - before)
        figures.append(pages)
        explorer.stop()
    for small, large in zip(*figures):
        assert large < small * 1.5 + 20_000, figures


def bytes_read(pid):
    """Bytes that a process has asked the system for."""
    with open(f"/proc/{pid}/io") as figures:
        return int(next(line.split()[1] for line in figures if line.startswith("rchar")))


def test_a_served_database_is_shown_and_undone(explore, start_server, browser, tmp_path):
    server = start_server(tmp_path / "Data.fs")
    oid, tids = write_site(ClientStorage(server.address, wait=True))
    plain = explore(server.url)
    visit(browser, f"{plain.url}transaction/{tids[-1]}")
    assert "mallory" in text(browser) and not browser.find_elements(By.ID, "undo")
    explorer = explore(server.url, "--allow-undo")
    visit(browser, f"{explorer.url}transaction/{tids[-1]}")
    browser.find_element(By.CSS_SELECTOR, ".undo input[type=checkbox]").click()
    browser.find_element(By.CSS_SELECTOR, ".undo button").click()
    wait_for(browser, lambda: f"undo of transaction {tids[-1]}" in text(browser))
    visit(browser, f"{explorer.url}object/0x{oid:x}")
    assert "'Stock'" in text(browser)
    # The other explorer sees what was committed meanwhile.
    visit(browser, plain.url)
    assert "undo of transaction" in text(browser)
    visit(browser, f"{plain.url}object/0x{oid:x}/history")
    assert len(browser.find_elements(By.CSS_SELECTOR, "tbody tr")) == 4


def test_other_sites_learn_and_change_nothing(explore, start_server, tmp_path):
    server = start_server(tmp_path / "Data.fs")
    _, tids = write_site(ClientStorage(server.address, wait=True))
    explorer = explore(server.url, "--allow-undo")
    for host in ["evil.example", f"evil.example:{explorer.port}", ""]:
        status, _, body = explorer.fetch("/", Host=host)
        assert status == 421 and "Data" not in body
    # The second is that of a forwarded port.
    for port in (explorer.port, 1):
        assert explorer.fetch("/", Host=f"localhost:{port}")[0] == 200
    status, headers, body = explorer.fetch(f"/transaction/{tids[-1]}")
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy
    token = re.search(r'name="token" value="([0-9a-f]+)"', body)[1]
    undo = f"/transaction/{tids[-1]}/undo"
    for form, more in [
        ("", {}),
        ("token=0", {}),
        (f"token={token}", {"Origin": "http://evil.example"}),
        (f"token={token}", {"Origin": "null"}),
    ]:
        assert explorer.fetch(undo, "POST", form, **more)[0] == 403
    assert explorer.fetch(undo)[0] == 404
    assert explorer.fetch(undo, "POST", "x" * 100_000)[0] == 413
    assert explorer.fetch("/", "DELETE")[0] == 405
    # Nothing was undone; an explorer without the option cannot do it either.
    assert "undo of" not in explorer.fetch("/")[2]
    plain = explore(server.url)
    token = re.search(r'name="token" value="([0-9a-f]+)"', plain.fetch("/classes")[2])[1]
    status, _, body = plain.fetch(undo, "POST", f"token={token}")
    assert status == 403 and "--allow-undo" in body
    assert explorer.fetch(undo, "POST", f"token={token}")[0] == 403
    explorer.stop()


def test_hostile_and_damaged_records_are_shown_as_what_they_are(explore, tmp_path):
    path = tmp_path / "Data.fs"
    storage = FileStorage(str(path))
    records = [
        b"no pickle <script>",
        b"cm\nC<b>\n." + b"(" * 5000 + b"t" * 5000 + b".",
        b"cm\nC\n.]q\x05h\x05a.",
        b"cos\nsystem\n.X\x08\0\0\0\xe2\x80\xae<script>.",
        # A billion values, by sharing.
        b"cm\nC\n.]q\x00"
        + b"".join(b"]q%c(%se" % (n + 1, b"h%c" % n * 10) for n in range(9))
        + b".",
    ]
    from ZODB.Connection import TransactionMetaData

    meta = TransactionMetaData(b"\xff<b>", b"\xfe\0")
    storage.tpc_begin(meta)
    for number, data in enumerate(records):
        storage.store(p64(number), p64(0), data, "", meta)
    storage.tpc_vote(meta)
    storage.tpc_finish(meta)
    storage.close()
    explorer = explore(path)
    status, _, body = explorer.fetch("/")
    assert status == 200 and "<b>" not in body
    for number in range(len(records)):
        for page in ("", "/history", "/changes", "/referrers"):
            status, _, body = explorer.fetch(f"/object/{number}{page}")
            assert status == 200 and "<script>" not in body and "\u202e" not in body, number
            assert len(body) < 3_000_000
    assert "cannot be shown as values" in explorer.fetch("/object/0")[2]
    assert "os.system" in explorer.fetch("/object/3")[2]
    for path in (
        "/object/x",
        "/object/99999999999999999999",
        "/transaction/1",
        "/?at=yesterdayish",
    ):
        assert explorer.fetch(path)[0] == 400, path
    for path in ("/x", "/transaction/" + "0" * 16, "/scan/7"):
        assert explorer.fetch(path)[0] == 404, path
