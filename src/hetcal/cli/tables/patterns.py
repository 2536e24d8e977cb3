"""How cells are written: missing values, numbers and dates, as words and as regular expressions.

The expressions are for whole cells, in the syntax that Python's `re` and pyarrow (RE2) share.
"""

# pandas' list and "?", as old data sets write it. A lone dash is not here: it stands for zero as often as for missing.
MISSING = (
    *("", "NA", "N/A", "n/a", "#N/A", "#NA", "#N/A N/A", "<NA>", "NaN", "nan", "NAN", "-NaN", "-nan", "null", "NULL"),
    *("Null", "None", "?", "1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN"),
)
DASHES = ("-", "--", "\u2013", "\u2014", ".")
BOOLEANS = ("true", "false")

# A number all right, but not for a machine: thousands separators, the other decimal mark, a currency, per cent.
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
