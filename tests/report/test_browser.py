"""The pages in a real headless Chromium: no error, no request, legible in light and dark, no sideways scrolling.

Chromium and its driver are found on the path; where they or selenium are missing the tests are skipped and say so.
"""

import json
import shutil

import pandas as pd
import pytest

from hetcal.report import describe, describe_comparison, render
from tests.report.samples import HOSTILE, ROWS, make_comparison, make_features, make_history, make_truth

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
from selenium.webdriver.chrome.service import Service  # noqa: E402

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="chromium or chromedriver is not installed")

# Text of every kind on the page; all of it must be legible.
TEXTS = ".eyebrow, h1, h2, h3, p, dt, dd, th, td, li, pre, summary, footer, svg text"
# Colors of an element and of what lies behind it.
COLORS = """
const behind = element => {
  for (let e = element; e; e = e.parentElement) {
    const color = getComputedStyle(e).backgroundColor;
    if (color !== 'rgba(0, 0, 0, 0)') return color;
  }
  return getComputedStyle(document.body).backgroundColor;
};
return [...document.querySelectorAll(arguments[0])].filter(e => e.textContent.trim()).map(e => {
  const style = getComputedStyle(e), front = e instanceof SVGElement ? style.fill : style.color;
  return [e.tagName + '.' + (e.getAttribute('class') || ''), front, behind(e)];
});
"""


@pytest.fixture(scope="module")
def pages():
    """A calibrated model, one that fails with hostile names everywhere, and a comparison."""
    good = describe(
        *make_truth(),
        target="price",
        title="House prices",
        features=make_features(),
        history=make_history(),
        data={"Rows": ROWS},
        settings={"Seed": 0},
        reproduce=["hetcal evaluate model.hetcal test.csv --report report.html " + "--drop column " * 20],
    )
    y, prediction = make_truth(factor=3.0, unit=1e9)
    hostile = describe(
        y,
        prediction,
        target=HOSTILE[3],
        title=HOSTILE[3],
        features=pd.DataFrame({name: [HOSTILE[0], HOSTILE[1]] * (ROWS // 2) for name in HOSTILE}),
        groups=[HOSTILE[2], HOSTILE[3]] * (ROWS // 2),
        group_name=HOSTILE[0],
        data={HOSTILE[3]: HOSTILE[3]},
    )
    comparison = describe_comparison(make_comparison(), title="Which method?")
    return {"good": good, "hostile": hostile, "comparison": comparison}


@pytest.fixture(scope="module")
def browser(tmp_path_factory, pages):
    """One Chromium for all tests, with a profile of its own and without a word to anyone outside."""
    folder = tmp_path_factory.mktemp("pages")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (
        *("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage", "no-first-run", "disable-sync"),
        *("disable-background-networking", "disable-component-update", f"user-data-dir={folder / 'profile'}"),
    ):
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    for name, content in pages.items():
        (folder / f"{name}.html").write_text(render(content), encoding="utf-8")
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    driver.addresses = {name: (folder / f"{name}.html").as_uri() for name in pages}
    yield driver
    driver.quit()


def show(browser, name, *, scheme="light", media="screen", width=1000):
    """Open a page on such a screen."""
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})
    screen = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    browser.get(browser.addresses[name])


def text_of(browser, selector):
    return browser.execute_script("return document.querySelector(arguments[0]).innerText", selector)


def contrast(first, second):
    """Contrast ratio of two colors, after WCAG 2.1."""

    def luminance(color):
        channels = [float(part) / 255 for part in color[color.index("(") + 1 : -1].split(",")[:3]]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("name", ["good", "hostile", "comparison"])
def test_no_error_and_no_request(browser, name):
    """The only thing fetched is the page itself, and the console stays silent; the style sheet passes the policy."""
    for kind in ("browser", "performance"):
        browser.get_log(kind)  # what was before
    show(browser, name)
    assert browser.get_log("browser") == []
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    sent = [message["params"] for message in messages if message["method"] == "Network.requestWillBeSent"]
    # Requests of Chromium's own first tab come from chrome:// and chrome-untrusted:// pages.
    ours = [one["request"]["url"] for one in sent if not one["documentURL"].startswith("chrome")]
    assert ours == [browser.addresses[name]]
    assert browser.execute_script("return getComputedStyle(document.querySelector('main')).maxWidth") == "908px"
    assert browser.execute_script("return document.scripts.length + document.images.length") == 0


def test_verdict_is_there(browser, pages):
    """The sentence and its mark are on the first screen, as text."""
    show(browser, "good")
    assert text_of(browser, "#verdict .sentence").replace("\N{NO-BREAK SPACE}", " ") == pages["good"]["verdict"]["text"]
    assert text_of(browser, "#verdict .mark") == "Reliable"
    top = browser.execute_script("return document.querySelector('#verdict').getBoundingClientRect().bottom")
    assert 0 < top < 800
    show(browser, "comparison")
    assert text_of(browser, "#verdict .mark") == "Recommended: Dropout-HC"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["good", "hostile", "comparison"])
def test_legible(browser, name, scheme):
    """Text of every kind has a contrast of at least 4.5, and dark is dark."""
    show(browser, name, scheme=scheme)
    colors = browser.execute_script(COLORS, TEXTS)
    assert len(colors) > 50
    faint = {(what, front, back) for what, front, back in colors if contrast(front, back) < 4.5}
    assert faint == set()
    ground = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert (contrast(ground, "rgb(0, 0, 0)") < 2) == (scheme == "dark")


@pytest.mark.parametrize("width", [360, 1000])
@pytest.mark.parametrize("name", ["good", "hostile", "comparison"])
def test_fits_the_screen(browser, name, width):
    """Nothing scrolls sideways but tables in their boxes; no label is off the page, no two lie on one another."""
    show(browser, name, width=width)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    script = """
    let hits = [];
    for (const svg of document.querySelectorAll('.plot > svg')) {
      const texts = [...svg.querySelectorAll('text')].map(e => [e.textContent, e.getBoundingClientRect()])
        .filter(([text, box]) => box.width);
      for (const [text, box] of texts) if (box.left < 0 || box.right > innerWidth) hits.push(['off the page', text]);
      for (let i = 0; i < texts.length; i++) for (let j = 0; j < i; j++) {
        const [a, b] = [texts[i][1], texts[j][1]];
        if (a.left < b.right && b.left < a.right && a.top + 3 < b.bottom && b.top + 3 < a.bottom)
          hits.push([svg.id || svg.textContent.slice(0, 40), texts[i][0], texts[j][0]]);
      }
    }
    return hits;
    """
    assert browser.execute_script(script) == []


def test_hostile_names_are_text(browser, pages):
    """A column called <script> is read as such, and nothing of it became an element."""
    show(browser, "hostile")
    shown = text_of(browser, "section[aria-labelledby=subgroups] tbody")
    worst = pages["hostile"]["subgroups"]["worst"]
    assert {HOSTILE[0], HOSTILE[1]} & {place["name"] for place in worst}
    assert all(place["name"] in shown and place["where"] in shown for place in worst)
    assert browser.execute_script("return document.querySelectorAll('script, img').length") == 0


def test_print(browser):
    """On paper the ground is white, whatever the screen is, and the tables of numbers are open."""
    show(browser, "good", scheme="dark", media="print")
    ground = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert ground == "rgb(255, 255, 255)"
    heights = browser.execute_script(
        "return [...document.querySelectorAll('details table')].map(table => table.getBoundingClientRect().height)"
    )
    assert min(heights) > 50
