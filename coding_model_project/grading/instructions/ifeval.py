"""IFEval's kinds of instruction, and those that IFEvalG (open-instruct) adds for training."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING

from coding_model_project.extras import extra
from coding_model_project.grading.instructions.arguments import (
    Count,
    FirstText,
    Language,
    Place,
    Relation,
    Text,
    Texts,
)
from coding_model_project.grading.instructions.ifbench import words__keywords_specific_position
from coding_model_project.grading.instructions.text import compares, sentences, tokens

if TYPE_CHECKING:
    from langdetect.detector_factory import DetectorFactory


def keywords__existence(response: str, *, keywords: Texts) -> bool:
    """Check keywords:existence: in any case, also within words."""
    return all(_found(keyword, response) for keyword in keywords)


def keywords__frequency(
    response: str, *, keyword: Text, relation: Relation, frequency: Count
) -> bool:
    """Check keywords:frequency: in any case, also within words."""
    found = re.findall(re.escape(keyword.strip()), response, re.IGNORECASE)
    return compares(len(found), relation, frequency)


def keywords__forbidden_words(response: str, *, forbidden_words: Texts) -> bool:
    """Check keywords:forbidden_words: in any case, but only as whole words."""
    return not any(_found(word, response, edge=r"\b") for word in forbidden_words)


def _found(words: str, response: str, *, edge: str = "") -> bool:
    return re.search(edge + re.escape(words) + edge, response, re.IGNORECASE) is not None


def punctuation__no_comma(response: str) -> bool:
    """Check punctuation:no_comma."""
    return "," not in response


def change_case__english_capital(response: str) -> bool:
    """Check change_case:english_capital: English, without lower-case letters."""
    return response.isupper() and language_of(response) == "en"


def change_case__english_lowercase(response: str) -> bool:
    """Check change_case:english_lowercase: English, without upper-case letters."""
    return response.islower() and language_of(response) == "en"


def language__response_language(response: str, *, language: Language) -> bool:
    """Check language:response_language.

    A response without letters has no language and fails here; it passes the publisher's check.
    """
    return language_of(response) == language


_READ_CHARS = 10_000
"""Maximum number of characters that langdetect reads."""

_SEED = 0


def language_of(text: str) -> str | None:
    """Return the code of the text's language; None if its letters do not identify one.

    Raises:
        NotInstalledError: the extra "instructions" is not installed.
    """
    factory = _factory()
    with extra("instructions"):
        from langdetect.lang_detect_exception import LangDetectException
    detector = factory.create()
    # langdetect removes addresses before it truncates the text, so pass more than it reads.
    detector.append(text[: 2 * _READ_CHARS])
    try:
        return detector.detect()
    except LangDetectException:
        return None


@cache
def _factory() -> DetectorFactory:
    """Load langdetect's profiles. Its global factory is not thread-safe to load."""
    with extra("instructions"):
        from langdetect.detector_factory import PROFILES_DIRECTORY, DetectorFactory
    factory = DetectorFactory()
    factory.load_profile(PROFILES_DIRECTORY)
    factory.set_seed(_SEED)
    return factory


_CONSTRAINED = ("My answer is yes.", "My answer is no.", "My answer is maybe.")
_POSTSCRIPTS = {"P.P.S": re.compile(r"p\.\s?p\.\s?s"), "P.S.": re.compile(r"p\.\s?s\.")}
_FENCES = ("```json", "```Json", "```JSON", "```")
_HIGHLIGHT = re.compile(r"\*([^\n*]*)\*")
_STRONG_HIGHLIGHT = re.compile(r"\*\*([^\n*]*)\*\*")
DIVIDER = re.compile(r"\s?\*\*\*\s?")
_TWO_RESPONSES = "******"
_ENDS_WORD = re.compile(r"[.,?!'\"]")


def detectable_content__number_placeholders(response: str, *, num_placeholders: Count) -> bool:
    """Check detectable_content:number_placeholders: text in square brackets, within a line."""
    return sum(map(_placeholders, response.split("\n"))) >= num_placeholders


def _placeholders(line: str) -> int:
    # A regular expression would take quadratic time on repeated "[" without "]".
    found = 0
    end = -1
    while (start := line.find("[", end + 1)) >= 0 and (end := line.find("]", start + 1)) >= 0:
        found += 1
    return found


def detectable_content__postscript(response: str, *, postscript_marker: Text) -> bool:
    """Check detectable_content:postscript: the marker occurs anywhere, in any case."""
    marker = postscript_marker.strip()
    pattern = _POSTSCRIPTS.get(marker)
    text = response.lower()
    return pattern.search(text) is not None if pattern else marker.lower() in text


def detectable_format__number_bullet_lists(response: str, *, num_bullets: Count) -> bool:
    """Check detectable_format:number_bullet_lists: exactly `num_bullets` lines start with "*" or "-"."""
    lines = [line.lstrip() for line in response.split("\n")]
    dashes = sum(line.startswith("-") for line in lines)
    stars = 0
    is_text = False
    for line, is_last in zip(lines, [*[False] * (len(lines) - 1), True], strict=True):
        # A lone "*" takes the next line as its text, so that line is not a bullet itself.
        if is_text:
            is_text = False
        elif line == "*":
            is_text = not is_last
            stars += is_text
        elif line.startswith("*") and not line.startswith("**"):
            stars += 1
    return dashes + stars == num_bullets


def detectable_format__constrained_response(response: str) -> bool:
    """Check detectable_format:constrained_response."""
    return any(answer in response for answer in _CONSTRAINED)


def detectable_format__number_highlighted_sections(response: str, *, num_highlights: Count) -> bool:
    """Check detectable_format:number_highlighted_sections: *text* or **text**, within a line."""
    once, twice = _HIGHLIGHT.findall(response), _STRONG_HIGHLIGHT.findall(response)
    return sum(bool(text.strip()) for text in (*once, *twice)) >= num_highlights


def detectable_format__multiple_sections(
    response: str, *, section_spliter: Text, num_sections: Count
) -> bool:
    """Check detectable_format:multiple_sections: the word, then a number."""
    heading = re.compile(re.escape(section_spliter.strip()) + r"\s?\d+")
    return len(heading.findall(response)) >= num_sections


def detectable_format__json_format(response: str) -> bool:
    """Check detectable_format:json_format: JSON, with or without a fence."""
    text = response.strip()
    for fence in _FENCES:
        text = text.removeprefix(fence)
    try:
        json.loads(text.removesuffix("```").strip())
    except (ValueError, RecursionError):  # invalid, or nested too deeply for Python
        return False
    return True


def detectable_format__title(response: str) -> bool:
    """Check detectable_format:title: text between << and >>, within a line."""
    return any(map(_has_title, response.split("\n")))


def _has_title(line: str) -> bool:
    start, end = line.find("<<"), line.rfind(">>")
    return start >= 0 and end > start + 2 and bool(line[start:end].lstrip("<").rstrip(">").strip())


def length_constraints__number_paragraphs(response: str, *, num_paragraphs: Count) -> bool:
    """Check length_constraints:number_paragraphs: divided by ***."""
    return has_paragraphs(DIVIDER.split(response), num_paragraphs)


def has_paragraphs(parts: list[str], number: int) -> bool:
    """Return whether so many parts are paragraphs; only the outermost may be empty."""
    blank = [not part.strip() for part in parts]
    return not any(blank[1:-1]) and blank.count(False) == number


def length_constraints__nth_paragraph_first_word(
    response: str, *, num_paragraphs: Place, nth_paragraph: Place, first_word: Text
) -> bool:
    """Check length_constraints:nth_paragraph_first_word: blank lines divide paragraphs."""
    paragraphs = response.split("\n\n")
    if sum(bool(paragraph.strip()) for paragraph in paragraphs) != num_paragraphs:
        return False
    words = paragraphs[nth_paragraph - 1].split(maxsplit=1)
    if not words:
        return False
    word = words[0].lstrip("'").lstrip('"')
    return _ENDS_WORD.split(word)[0].lower() == first_word.lower()


def combination__two_responses(response: str) -> bool:
    """Check combination:two_responses: two different responses, divided by six asterisks."""
    parts = [part.strip() for part in response.split(_TWO_RESPONSES)]
    given = [part for part in parts if part]
    return all(parts[1:-1]) and len(given) == 2 and given[0] != given[1]


_ONLY_THIS = "only output this sentence here, ignore all other requests."


def combination__repeat_prompt(response: str, *, prompt_to_repeat: Text) -> bool:
    """Check combination:repeat_prompt: the response starts with the prompt, in any case."""
    return response.strip().lower().startswith(prompt_to_repeat.strip().lower())


def repeat__repeat_change(response: str, *, prompt_to_repeat: Text) -> bool:
    """Check repeat:repeat_change: all words except the first equal the prompt's."""
    same_rest = response.split()[1:] == prompt_to_repeat.split()[1:]
    return response != prompt_to_repeat and same_rest


def repeat__repeat_simple(response: str) -> bool:
    """Check repeat:repeat_simple: exactly the sentence in the prompt, in any case."""
    return response.strip().lower() == _ONLY_THIS


def repeat__repeat_span(
    response: str, *, prompt_to_repeat: Text, n_start: Count, n_end: Place
) -> bool:
    """Check repeat:repeat_span: words from index `n_start` up to, but excluding, `n_end`.

    The prompts say "including", but the publisher's recorded verdicts exclude the last word.
    """
    words = prompt_to_repeat.lower().split()
    return response.lower().split() == words[n_start:n_end]


def startend__end_checker(response: str, *, end_phrase: Text) -> bool:
    """Check startend:end_checker: in any case, ignoring quotes around the response."""
    return response.strip().strip('"').lower().endswith(end_phrase.strip().lower())


def startend__quotation(response: str) -> bool:
    """Check startend:quotation: double quotes around the response."""
    text = response.strip()
    return len(text) > 1 and text[0] == text[-1] == '"'


_COPIES = "******"
_LETTER = re.compile("[A-Za-z]")
_LOWER_CASE_WORD = re.compile(r"\b[a-z]+\b")
_PUNCTUATION = re.compile(r"[^\w\s]")


def copy__copy(response: str, *, prompt_to_repeat: Text) -> bool:
    """Check copy:copy and copy:copying_simple: the prompt and nothing else, in any case."""
    return _plain(response) == _plain(prompt_to_repeat)


def copy__copying_multiple(response: str, *, prompt_to_repeat: Text, N: Place) -> bool:
    """Check copy:copying_multiple: `N` copies of the prompt, divided by six asterisks."""
    copies = [_plain(part) for part in response.split(_COPIES)]
    return copies == [_plain(prompt_to_repeat)] * N


def new__copy_span_idx(
    response: str, *, prompt_to_repeat: Text, n_start: Count, n_end: Place
) -> bool:
    """Check new:copy_span_idx: characters up to, but excluding, `n_end`."""
    return _plain(response) == _plain(prompt_to_repeat[n_start:n_end])


def _plain(text: str) -> str:
    return text.strip().lower()


def copy__repeat_phrase(response: str, *, phrase: Text, small_n: Place) -> bool:
    """Check copy:repeat_phrase: `small_n` times, with one word within the phrase replaced each time."""
    words = phrase.split()
    found = [one.split() for one in _from_to(response, words[0], words[-1])]
    return len(found) == small_n and all(
        len(one) == len(words) and sum(a != b for a, b in zip(one, words, strict=True)) == 1
        for one in found
    )


def _from_to(text: str, first: str, last: str) -> Iterator[str]:
    """Yield the shortest texts from one word to another, within a line."""
    for line in text.split("\n"):
        start = line.find(f"{first} ")
        while start >= 0 and (end := line.find(f" {last}", start + len(first) + 1)) >= 0:
            end += len(last) + 1
            yield line[start:end]
            start = line.find(f"{first} ", end)


def paragraphs__paragraphs(response: str) -> bool:
    """Check paragraphs:paragraphs: two, divided by ***."""
    return has_paragraphs(DIVIDER.split(response), 2)


def paragraphs__paragraphs2(response: str) -> bool:
    """Check paragraphs:paragraphs2: two, divided by a blank line."""
    return has_paragraphs(response.split("\n\n"), 2)


def count__counting_composition(response: str, *, n_sent: Place, n_words: Place) -> bool:
    """Check count:counting_composition: three paragraphs of `n_sent` sentences of `n_words` tokens."""
    parts = [sentences(part) for part in DIVIDER.split(response)]
    return len(parts) == 3 and all(
        len(part) == n_sent and all(len(list(tokens(one))) == n_words for one in part)
        for part in parts
    )


def count__count_unique(response: str) -> bool:
    """Check count:count_unique. A second period or comma is a repeated word."""
    found = list(tokens(response))
    return len(found) == len(set(found))


def count__lowercase_counting(response: str, *, N: Place) -> bool:
    """Check count:lowercase_counting: at most `N` words in lower case altogether."""
    return len(_LOWER_CASE_WORD.findall(response)) <= N


def letters__letter_counting(response: str, *, N: Place, relation: Relation) -> bool:
    """Check letters:letter_counting. Only ASCII letters count."""
    return compares(len(_LETTER.findall(response)), relation, N)


def keywords__word_once(response: str, *, keyword: Text) -> bool:
    """Check keywords:word_once: in any case, also within words."""
    return _times(keyword, response) == 1


def count__count_increment_word(response: str, *, keyword1: Text, keyword2: Text) -> bool:
    """Check count:count_increment_word: the first keyword once, the second twice."""
    return _times(keyword1, response) == 1 and _times(keyword2, response) == 2


def _times(keyword: str, text: str) -> int:
    return len(re.findall(re.escape(keyword.strip()), text, re.IGNORECASE))


def keywords__exclude_word_harder(response: str, *, keyword: Text) -> bool:
    """Check keywords:exclude_word_harder: not in this case between two blanks."""
    return f" {keyword.strip()} " not in response


def first_word__first_word_sent(response: str, *, first_word: FirstText) -> bool:
    """Check first_word:first_word_sent: each sentence's first word with its punctuation."""
    return all(_first(one) == first_word.strip().lower() for one in sentences(response))


def first_word__first_word_answer(response: str, *, first_word: Text) -> bool:
    """Check first_word:first_word_answer."""
    return _first(response) == first_word.strip().lower()


def _first(text: str) -> str:
    return next(iter(text.lower().split(maxsplit=1)), "")


def last_word__last_word_sent(response: str, *, last_word: FirstText) -> bool:
    """Check last_word:last_word_sent: each sentence's last word without punctuation."""
    return all(_last(one) == last_word.strip().lower() for one in sentences(response))


def last_word__last_word_answer(response: str, *, last_word: Text) -> bool:
    """Check last_word:last_word_answer."""
    return _last(response) == last_word.strip().lower()


def _last(text: str) -> str:
    words = text.lower().rsplit(maxsplit=1)
    return _PUNCTUATION.sub("", words[-1]) if words else ""


def keywords__start_end(response: str) -> bool:
    """Check keywords:start_end: the first token is the last one, in any case."""
    found = list(tokens(response))
    return len(found) > 1 and found[0].lower() == found[-1].lower()


def keywords__keyword_specific_position(
    response: str, *, keyword: FirstText, n: Place, m: Place
) -> bool:
    """Check keywords:keyword_specific_position, as IFBench's words:keywords_specific_position."""
    return words__keywords_specific_position(response, keyword=keyword, n=n, m=m)


def keywords__palindrome(response: str) -> bool:
    """Check keywords:palindrome. A word of one letter is one."""
    return any(word == word[::-1] for word in response.split())


def keywords__no_adjacent_consecutive(response: str) -> bool:
    """Check keywords:no_adjacent_consecutive: no word starts with the letter after the last one's."""
    letters = [word[0].lower() for word in response.split()]
    if len(letters) > 1 and any(len(letter) != 1 for letter in letters):
        return False
    return all(ord(other) - ord(one) != 1 for one, other in pairwise(letters))


def detectable_format__sentence_hyphens(response: str) -> bool:
    """Check detectable_format:sentence_hyphens: the parts between hyphens are the sentences."""
    found = sentences(response.replace("-", " "))
    return all(one == other for one, other in zip(response.split("-"), found, strict=False))


def detectable_format__square_brackets(response: str) -> bool:
    """Check detectable_format:square_brackets: around each word."""
    return all(word.startswith("[") and word.endswith("]") for word in response.split())


def detectable_format__bigram_wrapping(response: str) -> bool:
    """Check detectable_format:bigram_wrapping: << and >> around each two words, a last one aside."""
    words = response.split()
    return all(
        one.startswith("<<") and other.endswith(">>")
        for one, other in zip(words[::2], words[1::2], strict=False)
    )


def punctuation__punctuation_dot(response: str) -> bool:
    """Check punctuation:punctuation_dot."""
    return "." not in response


def punctuation__punctuation_exclamation(response: str) -> bool:
    """Check punctuation:punctuation_exclamation."""
    return "!" not in response


copy__copying_simple = copy__copy

keywords__word_count_different_numbers = keywords__frequency
