"""IFBench's "custom" kinds, each used by a single prompt."""

from __future__ import annotations

import csv
import io
import re
import string
import unicodedata
from itertools import pairwise

from coding_model_project.grading.instructions.text import (
    EDGES,
    sentences,
    without_punctuation,
    word_list,
)

_DIGITS = re.compile(r"\d+")
_MULTIPLES = [str(number) for number in range(14, 51, 7)]
_QUESTION = re.compile(r"Question \d+[.|):;]?\s*")
_CHOICE = re.compile(r"[A-Ea-e][.|)]\s*\w")
_AFRICAN_COUNTRIES = 52
"""Minimum number of lines; the last country in the alphabet is Zimbabwe."""

_NORTHERN_CAPITALS = word_list("northern capitals")
_CITY_HEADER = ["ID", "Country", "City", "Year", "Count"]
_PRODUCT_COLUMNS = ("ProductID", "Category", "Brand", "Price", "Stock")
_STUDENT_COLUMNS = ("StudentID", "Subject", "Grade", "Semester", "Score")
_SPECIAL = re.compile(r"[^\w\s]")
_DATE = re.compile(r"(\d{4})-(\d{2})-(\d{2})")
_NAPOLEON_YEARS = range(1769, 1822)
_DAYS = (0, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def custom__multiples(response: str) -> bool:
    """Check custom:multiples: the response's numbers are exactly the multiples of 7 from 10 to 50."""
    return _DIGITS.findall(response) == _MULTIPLES


def custom__mcq_count_length(response: str) -> bool:
    """Check custom:mcq_count_length: four questions with five choices, each longer than the last."""
    if not response.startswith("Question"):
        return False
    questions = [question.strip() for question in _QUESTION.split(response)]
    found = [_length_and_choices(question) for question in questions if question]
    if len(found) != 4 or any(choices != 5 for _, choices in found):
        return False
    return all(one < other for (one, _), (other, _) in pairwise(found))


def _length_and_choices(question: str) -> tuple[int, int]:
    lines = [line.strip() for line in question.split("\n")]
    is_choice = [_CHOICE.match(line) is not None for line in lines]
    question_lines = lines[: is_choice.index(True)] if any(is_choice) else lines
    return len(" ".join(question_lines).strip()), sum(is_choice)


def custom__reverse_newline(response: str) -> bool:
    """Check custom:reverse_newline: at least 52 lines from Zimbabwe on, in reverse order."""
    lines = [line for line in (line.strip(EDGES) for line in response.split("\n")) if line]
    start = next((at for at, line in enumerate(lines) if "Zimbabwe" in line), len(lines))
    countries = [_ascii(line) for line in lines[start:]]
    return len(countries) >= _AFRICAN_COUNTRIES and countries == sorted(countries, reverse=True)


def _ascii(text: str) -> str:
    """Return the text without accents and other non-ASCII characters."""
    return unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode("ascii")


def custom__word_reverse(response: str) -> bool:
    """Check custom:word_reverse: read backwards, the words name the bald eagle."""
    words = without_punctuation(response.lower()).split()
    return "bald eagle" in " ".join(reversed(words))


def custom__character_reverse(response: str) -> bool:
    """Check custom:character_reverse: the bald eagle, spelled backwards."""
    return "elgae dlab" in response.lower()


def custom__sentence_alphabet(response: str) -> bool:
    """Check custom:sentence_alphabet: 26 sentences, which start with the letters from a to z."""
    return [sentence[:1].lower() for sentence in sentences(response)] == list(
        string.ascii_lowercase
    )


def custom__european_capitals_sort(response: str) -> bool:
    """Check custom:european_capitals_sort: exactly the publisher's list, separated by commas."""
    capitals = (capital.strip() for capital in _ascii(response).split(","))
    return tuple(capital for capital in capitals if capital) == _NORTHERN_CAPITALS


def custom__csv_city(response: str) -> bool:
    """Check custom:csv_city: the header, and seven rows of five columns."""
    rows = _rows(response, ",")
    return len(rows) == 8 and rows[0] == _CITY_HEADER and all(len(row) == 5 for row in rows)


def custom__csv_special_character(response: str) -> bool:
    """Check custom:csv_special_character: 14 rows, at least one with a quoted special character."""
    if not _is_header(response, _PRODUCT_COLUMNS, ",", r"[ \t]*"):
        return False
    rows = _rows(response.replace('"', '"""'), ",")
    if len(rows) != 15:
        return False
    for row in rows[1:]:
        if len(row) != 5:
            return False
        if any(map(_is_special, row)):
            return True
    return False


def _is_special(field: str) -> bool:
    """Return whether the field's first line has a special character between quotes."""
    line = field.partition("\n")[0]
    return line.startswith('"') and _SPECIAL.search(line[1 : max(line.rfind('"'), 1)]) is not None


def custom__csv_quotes(response: str) -> bool:
    """Check custom:csv_quotes: header and three rows, separated by tabs, each field in quotes."""
    if not _is_header(response, _STUDENT_COLUMNS, "\t", " *"):
        return False
    rows = _rows(response.replace('"', '"""'), "\t")
    fields = [field.strip() for row in rows for field in row]
    quoted = all(field[:1] == field[-1:] == '"' for field in fields)
    return len(rows) == 4 and all(len(row) == 5 for row in rows) and quoted


def _is_header(response: str, columns: tuple[str, ...], separator: str, space: str) -> bool:
    """Return whether the first line holds the columns' names, each with or without quotes."""
    names = (f'(?:{column}|"{column}")' for column in columns)
    first = response.partition("\n")[0].strip()
    return re.fullmatch(f"{separator}{space}".join(names), first) is not None


def _rows(text: str, delimiter: str) -> list[list[str]]:
    """Parse CSV; malformed text has no rows."""
    try:
        return list(csv.reader(io.StringIO(text), delimiter=delimiter))
    except csv.Error:
        return []


def custom__date_format_list(response: str) -> bool:
    """Check custom:date_format_list: dates of Napoleon's life and nothing else."""
    return all(_is_date(date.strip()) for date in response.split(","))


def _is_date(text: str) -> bool:
    parts = _DATE.fullmatch(text)
    if not parts:
        return False
    year, month, day = map(int, parts.groups())
    return year in _NAPOLEON_YEARS and 1 <= month <= 12 and 1 <= day <= _DAYS[month]
