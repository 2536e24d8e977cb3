"""The page: complete in itself, nothing runs, everything is escaped, and it says what the dict says."""

import base64
import hashlib
import html as markup
import re
import subprocess
import sys
from html.parser import HTMLParser

import pandas as pd
import pytest

from hetcal.report import describe, describe_comparison, render
from hetcal.report.render import TEMPLATES
from tests.report.samples import HOSTILE, ROWS, make_comparison, make_features, make_history, make_truth


@pytest.fixture(scope="module")
def content():
    y, prediction = make_truth()
    return describe(
        y,
        prediction,
        target="price",
        features=make_features(),
        groups=["a", "b"] * (ROWS // 2),
        group_name="patient",
        title="House prices",
        history=make_history(),
        data={"Rows": 400},
        settings={"Quick": True},
        reproduce=["hetcal fit a.csv", "hetcal evaluate b.csv"],
    )


@pytest.fixture(scope="module")
def pages(content):
    return {"model": render(content), "comparison": render(describe_comparison(make_comparison(), title="Which?"))}


class Elements(HTMLParser):
    """Every element with its attributes; elements that are not closed in order are an error."""

    VOID = ("meta", "br", "img", "link", "hr", "input")

    def __init__(self, text):
        super().__init__()
        self.seen, self.open = [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.mark.parametrize("kind", ["model", "comparison"])
def test_nothing_runs_and_nothing_is_loaded(pages, kind):
    """No script, no address, no style attribute, no handler; every element is closed; ids are unique."""
    html = pages[kind]
    elements = Elements(html).seen
    names = {tag for tag, _ in elements}
    assert names.isdisjoint({"script", "img", "link", "iframe", "object", "form", "a", "use", "image", "base"})
    attributes = {name for _, attributes in elements for name in attributes}
    assert attributes.isdisjoint({"style", "src", "href", "srcset", "action", "data"})
    assert not [name for name in attributes if name.startswith("on") or ":" in name]
    assert "http" not in html.replace("http-equiv", "")
    assert "url(" not in html
    assert "@import" not in html
    ids = [attributes["id"] for _, attributes in elements if "id" in attributes]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("kind", ["model", "comparison"])
def test_policy_has_the_hash_of_the_style(pages, kind):
    """Nothing is allowed but this one style sheet, by the hash of what stands between its tags."""
    html = pages[kind]
    (policy,) = re.findall('http-equiv="Content-Security-Policy" content="([^"]*)"', html)
    (style,) = re.findall("<style>(.*?)</style>", html, flags=re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert policy.startswith(f"default-src 'none'; style-src 'sha256-{digest}'")
    assert html.index("Content-Security-Policy") < html.index("<style>")


@pytest.mark.parametrize("kind", ["model", "comparison"])
def test_pictures_have_a_text(pages, kind):
    """Every picture is one thing to a screen reader, with title and description, or is hidden from it."""
    elements = Elements(pages[kind]).seen
    ids = {attributes["id"] for _, attributes in elements if "id" in attributes}
    pictures = [attributes for tag, attributes in elements if tag == "svg" and attributes.get("role") == "img"]
    assert len(pictures) >= 5
    for attributes in pictures:
        assert set(attributes["aria-labelledby"].split()) <= ids
    assert dict(elements)["html"] == {"lang": "en"}
    assert ("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}) in elements


def test_no_safe_filter():
    """Escaping is never switched off in a template."""
    for path in TEMPLATES.glob("*.j2"):
        assert not re.search(r"\|\s*safe\b|autoescape", path.read_text()), path.name


def test_everything_hostile_is_escaped():
    """Names that would be markup, in every place that a name can come from, are text."""
    y, prediction = make_truth(factor=3.0)
    features = pd.DataFrame({HOSTILE[0]: [HOSTILE[1], HOSTILE[2]] * (ROWS // 2)})
    listed = {name: name for name in HOSTILE}
    html = render(
        describe(
            y,
            prediction,
            target=HOSTILE[0],
            features=features,
            groups=[HOSTILE[0], HOSTILE[1]] * (ROWS // 2),
            group_name=HOSTILE[2],
            title=HOSTILE[1],
            data=listed,
            settings=listed,
            reproduce=HOSTILE,
        )
    )
    names = {tag for tag, _ in Elements(html).seen}
    assert names.isdisjoint({"script", "img"})
    assert "<script" not in html
    assert html.count("<style>") == html.count("</style>") == 1
    shown = markup.unescape(html)
    assert all(name[:60] in shown for name in HOSTILE)
    assert "{{ 7 * 7 }}" in html


def test_page_says_what_the_dict_says(content, pages):
    """The sentence, the figures, the places, the commands; in the order of the issue."""
    html = markup.unescape(pages["model"]).replace("\N{NO-BREAK SPACE}", " ")
    parts = [
        content["verdict"]["label"],
        content["verdict"]["text"],
        content["figures"][0]["text"],
        content["calibration"]["text"],
        content["sharpness"]["text"],
        content["intervals"]["text"],
        content["residuals"]["text"],
        content["subgroups"]["text"],
        content["subgroups"]["worst"][0]["where"],
        content["history"]["text"],
        "<td>yes</td>",
        "hetcal fit a.csv\nhetcal evaluate b.csv",
    ]
    found = [html.index(part) for part in parts]
    assert found == sorted(found)
    assert "Rows of the same patient share" in html


def test_comparison_says_what_the_dict_says(pages):
    html = pages["comparison"]
    assert "Recommended: Dropout-HC" in html
    assert "Dropout-HC has the lowest CRPS." in html
    assert html.count("★</span>") == 6  # CRPS, CE, coverage, interval score, RMSE, NLL
    assert "failed: the loss was not finite in fold 2" in html
    assert "noise floor" in html


def test_numbers_of_the_pictures_are_in_tables(content, pages):
    """What a picture shows can be read as numbers too: one table row per row of the sample."""
    rows = len(content["intervals"]["rows"])
    assert pages["model"].count('<td class="text">inside</td>') == rows - content["intervals"]["outside"]
    assert pages["model"].count("<details>") == 4


def test_same_content_same_page(content, pages):
    """No date and no random name: a report can be compared with the one of last week."""
    assert render(content) == pages["model"]


def test_unknown_kind():
    with pytest.raises(ValueError, match=r"kind must be one of \['comparison', 'model'\], got kind='modell'; did you"):
        render({"kind": "modell"})


def test_imports():
    """What is missing is said with what to install; and no torch comes along."""
    code = """
import sys
for missing in ("pandas", "jinja2"):
    sys.modules[missing] = None
    try:
        import hetcal.report
    except ImportError as error:
        print(error)
    for name in [missing, *(name for name in sys.modules if name.startswith("hetcal.report"))]:
        del sys.modules[name]
import hetcal.report
print("torch" in sys.modules)
"""
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert run.stdout.splitlines() == [
        "hetcal.report needs pandas; install it with: pip install 'hetcal[report]'",
        "hetcal.report needs jinja2; install it with: pip install 'hetcal[report]'",
        "False",
    ]
