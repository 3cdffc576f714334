"""IFBench's kinds of instruction, except "custom" ones."""

from __future__ import annotations

import re
import string
from collections import Counter
from itertools import islice, pairwise

from coding_model_project.extras import extra
from coding_model_project.grading.instructions.arguments import (
    Count,
    Letter,
    Percentage,
    Place,
    Relation,
    Text,
)
from coding_model_project.grading.instructions.text import (
    EDGES,
    PUNCTUATION,
    STOP_WORDS,
    bare_words,
    compares,
    runs_of_word_characters,
    sentence_count,
    sentences,
    starts_with_verb,
    tokens,
    without_punctuation,
    word_list,
    word_set,
)

_CONJUNCTIONS = frozenset(("and", "but", "for", "nor", "or", "so", "yet"))
_NAMES = word_list("names")
"""The names that IFBench's prompts list."""

_PRONOUNS = word_set("pronouns")
_MARKS = frozenset(".,!?;:")
_INTERROBANG = re.compile(r"\?!|!\?|‽")
_DIGITS = re.compile(r"\d+")
_JAPANESE = re.compile(r"[\u3040-\u30ff\u4e00-\u9fff]")
_MULTIPLE_TIMES = (1, 2, 3, 5, 7)


def count__word_count_range(response: str, *, min_words: Count, max_words: Count) -> bool:
    """Check count:word_count_range."""
    return min_words <= len(runs_of_word_characters(response)) <= max_words


def length_constraints__number_words(
    response: str, *, relation: Relation, num_words: Count
) -> bool:
    """Check length_constraints:number_words."""
    return compares(len(runs_of_word_characters(response)), relation, num_words)


def length_constraints__number_sentences(
    response: str, *, relation: Relation, num_sentences: Count
) -> bool:
    """Check length_constraints:number_sentences."""
    return compares(sentence_count(response), relation, num_sentences)


def count__unique_word_count(response: str, *, N: Count) -> bool:
    """Check count:unique_word_count."""
    return len({word.strip(EDGES) for word in response.lower().split()}) >= N


def count__conjunctions(response: str, *, small_n: Count) -> bool:
    """Check count:conjunctions. "And" and "and," count as two, as in the publisher's rule."""
    found = {word for word in response.split() if word.strip(EDGES).lower() in _CONJUNCTIONS}
    return len(found) >= small_n


def count__person_names(response: str, *, N: Count) -> bool:
    """Check count:person_names. A name within a word counts too."""
    return sum(name in response for name in _NAMES) >= N


def count__numbers(response: str, *, N: Count) -> bool:
    """Check count:numbers. "3.14" is one number, since punctuation is removed first."""
    return len(_DIGITS.findall(without_punctuation(response))) == N


def count__pronouns(response: str, *, N: Count) -> bool:
    """Check count:pronouns. "she/her" counts as two."""
    words = bare_words(response.replace("/", " ").lower())
    return sum(word in _PRONOUNS for word in words) >= N


def count__punctuation(response: str) -> bool:
    """Check count:punctuation: every mark, plus an interrobang."""
    if not _INTERROBANG.search(response):
        return False
    # Remove one interrobang, so that its two marks do not count again. "‽" contains no other mark.
    both = "?!" if "?!" in response else "!?"
    return set(response.replace(both, "", 1)) >= _MARKS


def count__words_japanese(response: str, *, N: Place) -> bool:
    """Check count:words_japanese. Numbers and lone punctuation may stand at these positions."""
    every = (word.strip(EDGES) for word in response.split()[N - 1 :: N])
    return all(_JAPANESE.search(word) for word in every if word and not word.isdigit())


def count__keywords_multiple(
    response: str, *, keyword1: Text, keyword2: Text, keyword3: Text, keyword4: Text, keyword5: Text
) -> bool:
    """Check count:keywords_multiple: 1, 2, 3, 5 and 7 times, in any case, within words too."""
    keywords = (keyword1, keyword2, keyword3, keyword4, keyword5)
    text = response.lower()
    return all(
        text.count(keyword.strip().lower()) == times
        for keyword, times in zip(keywords, _MULTIPLE_TIMES, strict=True)
    )


def keywords__letter_frequency(
    response: str, *, letter: Letter, let_relation: Relation, let_frequency: Count
) -> bool:
    """Check keywords:letter_frequency. Case is ignored, and any character may be the letter."""
    return compares(response.lower().count(letter.lower()), let_relation, let_frequency)


def change_case__capital_word_frequency(
    response: str, *, capital_relation: Relation, capital_frequency: Count
) -> bool:
    """Check change_case:capital_word_frequency."""
    found = sum(token.isupper() for token in tokens(response))
    return compares(found, capital_relation, capital_frequency)


def words__palindrome(response: str) -> bool:
    """Check words:palindrome: ten words of at least five characters, repeats included."""
    words = bare_words(response.lower())
    return sum(len(word) >= 5 and word == word[::-1] for word in words) >= 10


def words__repeats(response: str, *, small_n: Count) -> bool:
    """Check words:repeats."""
    return all(times <= small_n for times in Counter(bare_words(response.lower())).values())


_CLOSED_BY = {"(": ")", "[": "]", "{": "}"}
_BRACKET_LEVELS = 5
_QUOTE_LEVELS = 3
_LETTERED_OPTIONS = re.compile(r"\W*[aA]\W*[bB]\W*[cC]")
_TEMPLATE = ("My Answer:", "My Conclusion:", "Future Outlook:")
_NOT_PROSE = string.digits + PUNCTUATION.replace('"', "")


def format__parentheses(response: str) -> bool:
    """Check format:parentheses. The innermost bracket must be closed; a mismatch resets the count."""
    waiting: list[str] = []
    deepest = 0
    for character in response:
        if character in _CLOSED_BY:
            waiting.append(_CLOSED_BY[character])
            deepest = max(deepest, len(waiting))
        elif character in ")]}":
            if waiting and waiting[-1] == character:
                waiting.pop()
                if deepest >= _BRACKET_LEVELS:
                    return True
            else:
                waiting, deepest = [], 0
    return False


def format__quotes(response: str) -> bool:
    """Check format:quotes: three closed levels; an apostrophe counts as a quote."""
    waiting: list[str] = []
    deepest = 0
    for character in response:
        if waiting and waiting[-1] == character:
            waiting.pop()
            if deepest - len(waiting) >= _QUOTE_LEVELS:
                return True
        elif character in "\"'":
            waiting.append(character)
            deepest = max(deepest, len(waiting))
    return False


def format__options(response: str, *, options: Text) -> bool:
    """Check format:options. Lettered options must match exactly, others in any case."""
    separator = next((mark for mark in ("/", "or") if mark in options), ",")
    choices = [choice.strip() for choice in options.split(separator)]
    if _LETTERED_OPTIONS.match(options):
        return response in choices
    return response.strip(EDGES).lower() in {choice.strip(EDGES).lower() for choice in choices}


def format__newline(response: str) -> bool:
    """Check format:newline: as many lines as words."""
    text = without_punctuation(response).strip()
    return sum(line != "" for line in text.split("\n")) == len(text.split())


def format__line_indent(response: str) -> bool:
    """Check format:line_indent: each line is indented more than the one before.

    As in the publisher's rule, a blank line does not count, but the line after it does, even if blank.
    """
    indents: list[int] = []
    after_blank = False
    for line in response.split("\n"):
        after_blank = not (line.strip() or after_blank)
        if not after_blank:
            indents.append(len(line) - len(line.lstrip(" ")))
    return all(one < other for one, other in pairwise(indents))


def format__quote_unquote(response: str) -> bool:
    """Check format:quote_unquote: no two adjacent quotes, and none at the end."""
    text = response.replace("“", '"').replace("”", '"').replace("'\"'", "")
    text = "".join(text.split())
    return '""' not in text and not text.strip(_NOT_PROSE).endswith('"')


def format__list(response: str, *, sep: Text) -> bool:
    """Check format:list: the separator occurs at least twice."""
    return response.count(sep) >= 2


def format__thesis(response: str) -> bool:
    """Check format:thesis: some text in HTML's italics, and some after it."""
    opening = next((tag for tag in ("<i>", "<em>") if tag in response), None)
    if opening is None:
        return False
    rest = response.partition(opening)[2]
    closing = next((tag for tag in ("</i>", "</em>") if tag in rest), None)
    if closing is None:
        return False
    italic, _, after = rest.partition(closing)
    return bool(italic.strip() and after.strip())


def format__sub_bullets(response: str) -> bool:
    """Check format:sub-bullets: a "-" after each "*" and before the next."""
    return all("-" in bullet for bullet in response.split("*")[1:])


def format__no_bullets_bullets(response: str) -> bool:
    """Check format:no_bullets_bullets: two sentences, then two bullets and nothing else.

    A blank line ends the sentences; no other blank line may follow.
    """
    in_sentences, n_sentences, n_bullets = True, 0, 0
    for line in map(str.strip, response.split("\n")):
        if line.startswith("*"):
            if n_sentences < 2:
                return False
            in_sentences, n_bullets = False, n_bullets + 1
        elif in_sentences:
            in_sentences = line != ""
            # Two are enough, and counting more would be slow for a response with many lines.
            n_sentences += len(sentences(line)) if n_sentences < 2 else 0
        else:
            return False
    return n_bullets >= 2


def format__title_case(response: str) -> bool:
    """Check format:title_case: no word of two or more letters starts with a lower-case letter.

    Words of mixed case such as "iPhone" pass.
    """
    return not any(
        token[0].islower() and (token[1:].islower() or token[1:].isupper())
        for token in tokens(response)
    )


def format__output_template(response: str) -> bool:
    """Check format:output_template: all three labels of the template occur."""
    return all(label in response for label in _TEMPLATE)


def format__no_whitespace(response: str) -> bool:
    """Check format:no_whitespace."""
    return not any(map(str.isspace, response))


def sentence__alliteration_increment(response: str) -> bool:
    """Check sentence:alliteration_increment: each sentence has more alliterative words than the last."""
    lengths = [_alliterative(sentence) for sentence in sentences(response)]
    return all(one < other for one, other in pairwise(lengths))


def _alliterative(sentence: str) -> int:
    """Count the words in all runs of words with the same first letter."""
    words = (word.lstrip(PUNCTUATION) for word in sentence.lower().split())
    same = [one[0] == other[0] for one, other in pairwise(word for word in words if word)]
    return sum(same) + sum(new and not before for before, new in pairwise([False, *same]))


def sentence__increment(response: str, *, small_n: Count) -> bool:
    """Check sentence:increment: each sentence has `small_n` more words than the one before."""
    lengths = [len(bare_words(sentence)) for sentence in sentences(response)]
    return bool(lengths) and all(other - one == small_n for one, other in pairwise(lengths))


def sentence__keyword(response: str, *, word: Text, N: Place) -> bool:
    """Check sentence:keyword. The word within another word counts too."""
    found = sentences(response)
    return len(found) >= N and word.lower() in found[N - 1].lower()


def format__emoji(response: str) -> bool:
    """Check format:emoji. The emoji may stand before or after the sentence's final mark.

    Raises:
        NotInstalledError: the extra "instructions" is not installed.
    """
    with extra("instructions"):
        from emoji import is_emoji
    bare = [without_punctuation(sentence).strip() for sentence in sentences(response)]
    if not bare or not all(bare):
        return False
    # Check two characters: an emoji of two ends in a modifier, which is not an emoji by itself.
    return all(
        any(map(is_emoji, one[-2:])) or is_emoji(other[:1]) for one, other in pairwise([*bare, ""])
    )


_OVERLAP_TOLERANCE = 2
"""Percentage points."""


def ratio__stop_words(response: str, *, percentage: Percentage) -> bool:
    """Check ratio:stop_words."""
    words = runs_of_word_characters(response)
    stops = sum(word.lower() in STOP_WORDS for word in words)
    return bool(words) and stops / len(words) * 100 <= percentage


def ratio__sentence_type(response: str) -> bool:
    """Check ratio:sentence_type: two sentences that end in a period for each that ends in "?"."""
    found = sentences(response)
    return _ending(found, ".") == 2 * _ending(found, "?")


def ratio__sentence_balance(response: str) -> bool:
    """Check ratio:sentence_balance: equally many sentences end in ".", "?" and "!"."""
    found = sentences(response)
    return _ending(found, ".") == _ending(found, "?") == _ending(found, "!")


def _ending(found: list[str], mark: str) -> int:
    return sum(sentence.endswith(mark) for sentence in found)


def ratio__overlap(response: str, *, reference_text: Text, percentage: Percentage) -> bool:
    """Check ratio:overlap: the share of the response's character trigrams found in the reference."""
    ours = _trigrams(response)
    if not ours:
        return False
    shared = len(ours & _trigrams(reference_text)) / len(ours) * 100
    return percentage - _OVERLAP_TOLERANCE <= shared <= percentage + _OVERLAP_TOLERANCE


def _trigrams(text: str) -> set[str]:
    return {text[start : start + 3] for start in range(len(text) - 2)}


def ratio__sentence_words(response: str) -> bool:
    """Check ratio:sentence_words: three sentences of equal length, in characters like the publisher's."""
    found = sentences(response)
    return len(found) == 3 and len({len(sentence) for sentence in found}) == 1


_CLUSTER = re.compile(r"[bcdfghjklmnpqrstvwxyz]{2}")
_VOWELS = frozenset("aeiou")
_PRIMES = frozenset(n for n in range(2, 98) if all(n % d for d in range(2, n)))
"""Prime word lengths up to 97, the end of the publisher's list."""

_NEXT_LETTER: dict[str, str] = dict(pairwise(string.ascii_lowercase + "a"))


def words__alphabet(response: str) -> bool:
    """Check words:alphabet: each word starts with the letter that follows the previous word's."""
    letters = [word[0].lower() for word in bare_words(response)]
    if not letters or letters[0] not in _NEXT_LETTER:
        return False
    return all(_NEXT_LETTER.get(one) == other for one, other in pairwise(letters))


def words__vowel(response: str) -> bool:
    """Check words:vowel: one paragraph, with at most three of the five vowels."""
    text = response.strip().lower()
    return "\n" not in text and len(_VOWELS.intersection(text)) <= 3


def words__consonants(response: str) -> bool:
    """Check words:consonants: two consonants in a row in each word."""
    return all(_CLUSTER.search(word) for word in response.lower().split())


def words__prime_lengths(response: str) -> bool:
    """Check words:prime_lengths. Punctuation does not count."""
    return all(len(word) in _PRIMES for word in bare_words(response))


def words__no_consecutive(response: str) -> bool:
    """Check words:no_consecutive: adjacent words start with different letters."""
    words = bare_words(response.lower())
    return all(one[0] != other[0] for one, other in pairwise(words))


def words__odd_even_syllables(response: str) -> bool:
    """Check words:odd_even_syllables, by syllapy's count.

    Raises:
        NotInstalledError: the extra "instructions" is not installed.
    """
    with extra("instructions"):
        import syllapy
    odd = [syllapy.count(word) % 2 for word in bare_words(response.lower())]
    return all(one != other for one, other in pairwise(odd))


def words__start_verb(response: str) -> bool:
    """Check words:start_verb."""
    return starts_with_verb(list(islice(tokens(response), 2)))


def words__last_first(response: str) -> bool:
    """Check words:last_first: each sentence starts with the last word of the one before."""
    for one, other in pairwise(sentences(response)):
        last, first = one.rstrip(EDGES).split()[-1:], other.lstrip(EDGES).split()[:1]
        if not last or not first or last[0].lower() != first[0].lower():
            return False
    return True


def words__paragraph_last_first(response: str) -> bool:
    """Check words:paragraph_last_first: each line ends with its first word."""
    lines = (line.strip().strip(EDGES).split() for line in response.lower().split("\n"))
    return all(words[0] == words[-1] for words in lines if words)


def words__keywords_specific_position(response: str, *, keyword: Text, n: Place, m: Place) -> bool:
    """Check words:keywords_specific_position: the m-th token of the n-th sentence is the keyword."""
    found = sentences(response)
    if len(found) < n:
        return False
    return next(islice(tokens(found[n - 1]), m - 1, None), None) == keyword.strip()


def words__words_position(response: str, *, keyword: Text) -> bool:
    """Check words:words_position. A final period is a token, so the keyword precedes it."""
    found = list(tokens(response))
    return len(found) > 1 and found[1] == found[-2] == keyword.strip()


letters__letter_counting2 = keywords__letter_frequency
