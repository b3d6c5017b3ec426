"""The status page in a real browser, while clients work.

Screenshots are left in the test's folder.
"""

import contextlib
import json
import resource
import shutil
import subprocess
import threading
import time

import pytest
from harness.browser import shoot, wait_for
from harness.files import oid_of
from harness.monitor import Monitor
from harness.process import HOST, free_port
from harness.servers import BINARY
from harness.wire import MAXTID, Z64, ErrorReply, Wire
from selenium.common.exceptions import StaleElementReferenceException, WebDriverException
from selenium.webdriver.common.by import By

pytestmark = pytest.mark.zodium

HOSTILE_LABEL = "<script>document.title='taken'</script><img src=x onerror=alert(1)>"


@pytest.fixture
def workload():
    """workload(server): a client that loads and commits until the test ends."""
    stopping = threading.Event()
    threads = []

    def work(server):
        with Wire(server.address) as client:
            client.register()
            client.call("set_client_label", b"the worker")
            serial, number = Z64, 0
            while not stopping.is_set():
                number += 1
                serial = client.commit(number, [(oid_of(1), serial, b"data %d" % number)])
                for _ in range(20):
                    client.call("loadBefore", oid_of(1), MAXTID)
                time.sleep(0.005)

    def start(server):
        thread = threading.Thread(target=work, args=[server])
        thread.start()
        threads.append(thread)

    yield start
    stopping.set()
    for thread in threads:
        thread.join()


def text_of(browser, element_id):
    return browser.find_element(By.ID, element_id).text


def tiles(browser):
    """The value of each tile by its name."""
    found = browser.find_elements(By.CSS_SELECTOR, ".tile")
    return {
        tile.find_element(By.TAG_NAME, "h3").text: tile.find_element(By.CLASS_NAME, "value").text
        for tile in found
    }


def hold_and_wait(wire, server):
    """Two clients that want one object; the second one waits. Both are given back."""
    clients = wire(server), wire(server)
    for number, (client, label) in enumerate(zip(clients, (b"the holder", b"the waiter"))):
        client.call("set_client_label", label)
        client.notify("tpc_begin", number, b"", b"", {}, None, " ")
        client.notify("storea", oid_of(7), Z64, b"data", number)
        if number == 0:
            client.call("vote", number)
        else:
            client.request("vote", number)
    return clients


def test_the_page_shows_what_the_server_does(
    start_server, wire, connect, browser, workload, tmp_path
):
    monitor = Monitor()
    server = start_server(None, *monitor.options, "--blob-dir", str(tmp_path / "blobs"))
    workload(server)
    connect(server, client_label=HOSTILE_LABEL)
    hold_and_wait(wire, server)
    with Wire(server.address, handshake=False) as stranger:
        stranger.send_raw(b"\0\0\0\3<b>")
        time.sleep(0.2)

    browser.get(monitor.url)
    wait_for(browser, lambda: text_of(browser, "health") == "healthy")
    wait_for(browser, lambda: float(tiles(browser)["Commits"].split()[0].replace("–", "0")) > 0)
    first = tiles(browser)
    wait_for(browser, lambda: tiles(browser)["Requests"] != first["Requests"])
    assert "s" in tiles(browser)["Load p99"]
    assert tiles(browser)["Connections"].split()[0] == "4"

    connections = text_of(browser, "connections")
    assert "the worker" in connections and HOSTILE_LABEL in connections
    transactions = text_of(browser, "transactions")
    assert "object 0000000000000007, behind the holder" in transactions
    assert "waiting" in transactions
    assert "loadBefore" in text_of(browser, "requests")
    assert "disconnecting" in text_of(browser, "messages")
    storages = text_of(browser, "storages")
    assert str(tmp_path / "blobs") in storages and "Blobs received" in storages
    assert browser.title == "Zodium"

    time.sleep(6)  # some more points for the graphs
    for name, width, dark in [
        ("light", 1280, False),
        ("dark", 1280, True),
        ("phone", 390, False),
        ("phone-dark", 390, True),
    ]:
        shoot(browser, tmp_path / f"status-{name}.png", width, dark)
    assert browser.get_log("browser") == []


def test_the_page_says_when_the_server_is_gone_and_when_it_is_back(start_server, browser, tmp_path):
    monitor = Monitor()
    server = start_server(tmp_path / "Data.fs", *monitor.options)
    browser.get(monitor.url)
    wait_for(browser, lambda: text_of(browser, "health") == "healthy")
    server.stop()
    wait_for(browser, lambda: text_of(browser, "health") == "no answer")
    start_server(tmp_path / "Data.fs", *monitor.options)
    wait_for(browser, lambda: text_of(browser, "health") == "healthy")


def test_the_page_says_that_another_program_changed_the_file(start_server, wire, browser, tmp_path):
    monitor, path = Monitor(), tmp_path / "Data.fs"
    client = wire(start_server(path, *monitor.options))
    serial = client.commit(1, [(oid_of(1), Z64, b"data")])
    browser.get(monitor.url)
    wait_for(browser, lambda: "accepts commits" in text_of(browser, "storages"))
    shutil.copy(path, tmp_path / "other.fs")
    (tmp_path / "other.fs").rename(path)
    with pytest.raises(ErrorReply):
        client.commit(2, [(oid_of(1), serial, b"more")])
    wait_for(browser, lambda: "another program changed the file" in text_of(browser, "storages"))
    assert text_of(browser, "health") == "not healthy"


def test_the_page_does_not_wait_for_a_history_that_never_comes(start_server, browser):
    monitor = Monitor()
    start_server(None, *monitor.options)
    browser.execute_cdp_cmd("Fetch.enable", {"patterns": [{"urlPattern": "*history.json"}]})
    browser.get(monitor.url)
    wait_for(browser, lambda: text_of(browser, "health") == "healthy")


def test_graphs_begin_before_the_page_is_opened(start_server, wire, browser):
    monitor = Monitor()
    server = start_server(None, *monitor.options)
    client = wire(server)
    client.commit(1, [(oid_of(1), Z64, b"data")])

    def points():
        return json.loads(monitor.fetch("/history.json")[2])["points"]

    # Values of one time, which the second sample gives, or a later one on a slow machine.
    wait_for(browser, lambda: any(point["values"][2] > 0 for point in points()))
    (point, *_) = points()
    assert len(point["values"]) == 8
    browser.get(monitor.url)
    wait_for(browser, lambda: text_of(browser, "health") == "healthy")
    since = browser.find_element(By.CSS_SELECTOR, ".tile .scale").text
    assert since.startswith("since ")
    seen = browser.execute_script("return TILES[2].points[0].time")
    assert seen == point["time"]


def test_tables_are_sorted_by_their_headings(start_server, wire, browser):
    monitor = Monitor()
    server = start_server(None, *monitor.options)
    for label in ("bert", "adam", "carl"):
        wire(server).call("set_client_label", label.encode())
    browser.get(monitor.url)
    wait_for(browser, lambda: "carl" in text_of(browser, "connections"))

    def all_of(selector, what):
        # At once: the page may be drawn again between two questions.
        script = f"return Array.from(document.querySelectorAll(arguments[0]), it => it.{what})"
        return browser.execute_script(script, f"#connections {selector}")

    def names():
        return all_of("tbody th", "innerText")

    def press():
        # The page may be drawn again before the key comes.
        with contextlib.suppress(StaleElementReferenceException):
            browser.find_element(By.CSS_SELECTOR, "#connections th button").send_keys("\n")
            return True
        return False

    def sort():
        wait_for(browser, press)

    sort()
    wait_for(browser, lambda: names() == ["adam", "bert", "carl"])
    sort()
    wait_for(browser, lambda: names() == ["carl", "bert", "adam"])
    assert all_of("th[aria-sort]", "ariaSort") == ["descending"]


def test_everything_can_be_read_without_seeing_it(start_server, browser):
    monitor = Monitor()
    start_server(None, *monitor.options)
    browser.get(monitor.url)
    wait_for(browser, lambda: text_of(browser, "health") == "healthy")
    graphs = browser.find_elements(By.CSS_SELECTOR, "svg")
    assert len(graphs) == 8
    assert all(graph.get_attribute("aria-label") for graph in graphs)
    assert browser.find_element(By.ID, "health").get_attribute("role") == "status"
    for section in browser.find_elements(By.TAG_NAME, "section"):
        assert section.get_attribute("aria-labelledby")
    # The button works without a mouse.
    theme = browser.find_element(By.ID, "theme")
    theme.send_keys("\n")
    root = browser.find_element(By.TAG_NAME, "html")
    chosen = root.get_attribute("data-theme")
    theme.send_keys(" ")
    assert {chosen, root.get_attribute("data-theme")} == {"light", "dark"}


def test_a_storage_that_failed_is_the_first_thing_one_sees(start_server, wire, browser, tmp_path):
    monitor = Monitor()
    prefix = ["env", "--ignore-signal=XFSZ"]
    server = start_server(tmp_path / "Data.fs", *monitor.options, prefix=prefix)
    client = wire(server)
    client.commit(1, [(oid_of(1), Z64, b"x" * 200_000)])
    used = monitor.status()["storages"][0]["size_bytes"]
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (used, used))
    with pytest.raises(ErrorReply):
        client.commit(2, [(oid_of(2), Z64, b"data")])
    browser.get(monitor.url)
    wait_for(browser, lambda: text_of(browser, "health") == "not healthy")
    assert "storage 1 refuses commits" in text_of(browser, "complaints")
    assert "a write failed" in text_of(browser, "storages")
    shoot(browser, tmp_path / "status-failed.png", 1280, False)


def test_a_storage_node_of_neo_shows_how_it_is(browser, tmp_path):
    monitor = Monitor()
    masters, database = f"{HOST}:{free_port()}", str(tmp_path / "node.sqlite")
    words = ["neo", "storage", "-c", "production", "-m", masters, "-d", database, "-i", "7"]
    node = subprocess.Popen([BINARY, *words, *monitor.options], stderr=subprocess.DEVNULL)
    try:
        wait_for(browser, lambda: is_there(browser, monitor.url))
        wait_for(browser, lambda: "S7 of production" in text_of(browser, "storages"))
        shown = text_of(browser, "storages")
        assert "looking for the primary master" in shown and database in shown
        assert "0 open, 0 voted, 0 locked" in shown
        assert "serves nothing yet" in text_of(browser, "complaints")
        shoot(browser, tmp_path / "node.png", width=400, dark=False)
    finally:
        node.kill()
        node.wait()


def is_there(browser, url):
    with contextlib.suppress(WebDriverException):
        browser.get(url)
        return "Zodium" in browser.title
    return False
