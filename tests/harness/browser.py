"""A real browser without a window: Debian's Chromium, driven by its own driver.

Both are found here and named to selenium, which would otherwise look for them,
and download them, by itself.
"""

import os
import shutil

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

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
