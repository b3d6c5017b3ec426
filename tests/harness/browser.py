"""A real browser without a window: Debian's Chromium, driven by its own driver.

Both are found here and named to selenium, which would otherwise look for them,
and download them, by itself.
"""

import os
import shutil

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.ui import WebDriverWait

from .waiting import WAIT_SECONDS

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = os.environ.get("CHROMEDRIVER") or shutil.which("chromedriver")
ARGUMENTS = [
    "--headless",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def open_browser(folder):
    """A browser with an empty profile in `folder`, that keeps what its console says."""
    if not CHROMIUM or not DRIVER:
        raise RuntimeError("chromium or chromedriver is missing: `make browser` says how to get it")
    os.environ["SE_OFFLINE"] = "true"
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in [*ARGUMENTS, f"--user-data-dir={folder}"]:
        options.add_argument(argument)
    if os.geteuid() == 0:
        # Its sandbox does not work for root.
        options.add_argument("--no-sandbox")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options=options, service=Service(executable_path=DRIVER))


def wait_for(browser, condition, seconds=WAIT_SECONDS):
    """Waits until `condition` gives something true; elements that are missing yet are none."""
    return WebDriverWait(browser, seconds, 0.1).until(lambda _: condition())


def shoot(browser, path, width, dark):
    """Screenshot of the whole page, as wide as a phone or a desk has it."""
    features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    size["height"] = browser.execute_script("return document.documentElement.scrollHeight")
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.save_screenshot(str(path))
    # Nothing sticks out at the side.
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
