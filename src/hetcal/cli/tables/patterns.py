"""The forms of missing values, numbers and dates: words and regular expressions.

The expressions match whole cells, in the syntax that Python's `re` and pyarrow (RE2) share.
"""

# The list of pandas, and "?" as in old data sets. A single dash is not included: it means zero as often as missing.
MISSING_WORDS = (
    *("", "NA", "N/A", "n/a", "#N/A", "#NA", "#N/A N/A", "<NA>", "NaN", "nan", "NAN", "-NaN", "-nan", "null", "NULL"),
    *("Null", "None", "?", "1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN"),
)
DASHES = ("-", "--", "\u2013", "\u2014", ".")
BOOLEANS = ("true", "false")

# Formatted numbers: with thousands separators, the other decimal mark, a currency or a percent sign.
_GROUP = "[,.' \u00a0\u202f\u2019]"
DRESSED_NUMBER = rf"^[+-]?[$€£¥]?\s*[+-]?(\d{{1,3}}({_GROUP}\d{{3}})+|\d+)([.,]\d+)?\s*[%$€£¥]?$"

_ZONE = r"(Z|[+-]\d{2}(:?\d{2})?)"
_TIME = rf"([T ]\d{{1,2}}:\d{{2}}(:\d{{2}}(\.\d+)?)?\s*{_ZONE}?)?"
ZONED_DATE = rf":.*{_ZONE}$"
ISO_DATE = rf"^(\d{{4}}-\d{{1,2}}-\d{{1,2}}|\d{{4}}/\d{{1,2}}/\d{{1,2}}){_TIME}$"
_MONTH = "(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*"
OTHER_DATE = (
    r"(?i)^(\d{1,2}[./-]\d{1,2}[./-](\d{2}|\d{4})|\d{4}\.\d{1,2}\.\d{1,2}|\d{4}-\d{2}"
    rf"|\d{{1,2}}[ .-]*{_MONTH}[ .,-]*\d{{2,4}}|{_MONTH}[ .-]*\d{{1,2}},? +\d{{4}})([T ,].*)?$"
)


def number_pattern(decimal: str) -> str:
    mark = rf"\{decimal}"
    return rf"(?i)^[+-]?((\d+{mark}?\d*|{mark}\d+)(e[+-]?\d+)?|inf|infinity)$"
