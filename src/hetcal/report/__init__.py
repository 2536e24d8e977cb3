"""Results as one self-contained HTML page, in two stages: numbers to a plain dict, the dict to HTML.

    content = describe(y, model.predict_dist(X), target="price", features=X, title="House prices")
    html = render(content)

The dict consists of JSON values only and contains everything that the page shows.
"""

from hetcal.report.bench import describe_bench
from hetcal.report.comparison import describe_comparison
from hetcal.report.content import describe
from hetcal.report.render import render

__all__ = ["describe", "describe_bench", "describe_comparison", "render"]
