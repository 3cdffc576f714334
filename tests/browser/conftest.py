"""Chromium, driven by tests: a page, as they look at it and act on it."""

import shutil
from contextlib import contextmanager

import pytest
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    "--window-size=1400,1000",
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    chromium, chromedriver = shutil.which("chromium"), shutil.which("chromedriver")
    if not chromium or not chromedriver:
        pytest.fail(
            "this test drives Chromium: install it with `apt-get install -y chromium "
            'chromium-driver`, or leave the test out with -m "not browser"'
        )
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(chromedriver))
    yield driver
    driver.quit()


WAIT_S = 30


class Page:
    """A page that is open and ready."""

    def __init__(self, driver, address):
        self.driver = driver
        self.resize(1400)
        self.scheme("light")
        driver.get_log("performance")
        driver.get(address)
        self.wait(lambda: self.script("return document.documentElement.dataset.ready") == "true")

    def script(self, code, *arguments):
        return self.driver.execute_script(code, *arguments)

    def wait(self, condition):
        # The page may draw a list anew between finding an element and reading it.
        ignored = [StaleElementReferenceException]
        wait = WebDriverWait(self.driver, WAIT_S, poll_frequency=0.05, ignored_exceptions=ignored)
        wait.until(lambda _: condition())

    def resize(self, width):
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def scheme(self, name):
        features = [{"name": "prefers-color-scheme", "value": name}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def one(self, selector):
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector):
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def text(self, selector):
        return self.one(selector).text

    def click(self, selector):
        self.script("document.querySelector(arguments[0]).click()", selector)

    def point_at(self, selector, event):
        """Send a pointer's event to where an element of a chart is drawn."""
        self.script(
            "const at = document.querySelector(arguments[0]), box = at.getBoundingClientRect();"
            "at.dispatchEvent(new PointerEvent(arguments[1], {bubbles: true,"
            " clientX: (box.left + box.right) / 2, clientY: (box.top + box.bottom) / 2}))",
            selector,
            event,
        )

    def search(self, text, expected):
        """Type into the search field and wait for so many samples."""
        field = self.one("#f-text")
        field.clear()
        field.send_keys(text)
        self.wait(lambda: self.text("#count") == expected)


@contextmanager
def opened(browser, address):
    """Open a page, and check that its scripts report no error until the context is left."""
    yield Page(browser, address)
    errors = [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
    assert not errors, errors
