"""Words, tokens and sentences of a response, by the publishers' rules and by NLTK's.

NLTK downloads its model of English sentences, which is not in any package registry. Kiss and Strunk's
algorithm (Punkt) needs little of it: abbreviations, and words that start sentences. With short lists of
these it splits like the full model, except after some initials ("Movie B. Later") and ellipses.

IFBench's tagger of verbs is not in any package registry either. It tags "Understand the" as a noun and
"*" as a verb. Here endings and a list of English verbs decide. A word that is equally often a noun,
such as "answer", is a verb if the next word can start its object.
"""

from __future__ import annotations

import re
import string
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from coding_model_project.extras import extra

if TYPE_CHECKING:
    from nltk.tokenize import NLTKWordTokenizer, PunktSentenceTokenizer


@cache
def _lists() -> dict[str, tuple[str, ...]]:
    text = Path(__file__).with_name("words.txt").read_text("utf-8")
    return {name: tuple(words.split()) for name, words in re.findall(r"=== (.+)\n([^=]*)", text)}


def word_list(name: str) -> tuple[str, ...]:
    """Return a list of `words.txt`, in order."""
    return _lists()[name]


def word_set(name: str) -> frozenset[str]:
    """Return the set of words of a list of `words.txt`."""
    return frozenset(_lists()[name])


STOP_WORDS = word_set("stop words")


PUNCTUATION = string.punctuation
EDGES = PUNCTUATION + " "
"""Characters stripped from the ends of a word."""

_DROP_PUNCTUATION = str.maketrans("", "", PUNCTUATION)

_KEPT, _END = "\ue000", "\ue001"
"""Private-use characters for a period within a sentence, and for the end of a sentence."""

_DROP_MARKS = str.maketrans("", "", _KEPT + _END)

_OPENINGS = (
    r"(Mr|Mrs|Ms|Dr|Prof|Capt|Cpt|Lt|Wherever"
    r"|(?:He|She|It|They|Their|Our|We|But|However|That|This)\s)"
)
_COMPANIES = "(Inc|Ltd|Jr|Sr|Co)"
_LETTER = "([A-Za-z])"


def _ellipsis(run: re.Match[str]) -> str:
    return _KEPT * len(run[0]) + _END


_PERIODS = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"(Mr|St|Mrs|Ms|Dr)\.", rf"\1{_KEPT}"),
        (r"\.(com|net|org|io|gov|edu|me)", rf"{_KEPT}\1"),
        (r"([0-9])\.([0-9])", rf"\1{_KEPT}\2"),
        (r"\.{2,}", _ellipsis),
        (r"Ph\.D\.", f"Ph{_KEPT}D{_KEPT}"),
        (rf"\s{_LETTER}\. ", rf" \1{_KEPT} "),
        (rf"([A-Z]\.[A-Z]\.(?:[A-Z]\.)?) {_OPENINGS}", rf"\1{_END} \2"),
        (rf"{_LETTER}\.{_LETTER}\.{_LETTER}\.", rf"\1{_KEPT}\2{_KEPT}\3{_KEPT}"),
        (rf"{_LETTER}\.{_LETTER}\.", rf"\1{_KEPT}\2{_KEPT}"),
        # The publishers drop the period here, which affects checks of a sentence's last character.
        (rf" {_COMPANIES}\. {_OPENINGS}", rf" \1{_END} \2"),
        (rf" {_COMPANIES}\.", rf" \1{_KEPT}"),
        (rf" {_LETTER}\.", rf" \1{_KEPT}"),
    )
)
"""Rules for periods within sentences. Their order matters: each one sees the result of the last."""

_CLOSING_QUOTES = ((".”", "”."), ('."', '".'), ('!"', '"!'), ('?"', '"?'))
_ENDING = re.compile(r"[.?!]")
_WORD = re.compile(r"\w+")


def without_punctuation(text: str) -> str:
    """Return the text without ASCII punctuation."""
    return text.translate(_DROP_PUNCTUATION)


def bare_words(text: str) -> list[str]:
    """Return the words of a text after removal of ASCII punctuation."""
    return without_punctuation(text).split()


def runs_of_word_characters(text: str) -> list[str]:
    """Return the words as most length limits count them: "it's" is two."""
    return _WORD.findall(text)


def sentences(text: str) -> list[str]:
    """Split at periods, question marks and exclamation marks, by IFBench's rules for abbreviations.

    A newline does not end a sentence, and a run such as "?!" ends two.
    """
    text = f" {text.translate(_DROP_MARKS)}  ".replace("\n", " ")
    for pattern, replacement in _PERIODS:
        text = pattern.sub(replacement, text)
    for inside, outside in _CLOSING_QUOTES:
        text = text.replace(inside, outside)
    text = _ENDING.sub(rf"\g<0>{_END}", text).replace(_KEPT, ".")
    found = [sentence.strip() for sentence in text.split(_END)]
    return found if found[-1] else found[:-1]


def compares(count: int, relation: str, threshold: int) -> bool:
    """Return whether a count satisfies IFEval's relation "less than" or "at least"."""
    return count < threshold if relation == "less than" else count >= threshold


_ABBREVIATIONS = word_set("abbreviations")
"""Abbreviations of American newspapers. Like the model, they lack "e.g", "i.e" and "etc"."""

_SENTENCE_STARTERS = word_set("sentence starters")
"""Words that start a sentence even after an abbreviation."""

_SEEN_LOWER_AND_UPPER = (1 << 6) | (1 << 2)
"""Punkt's flags for a word seen in lower case, and in upper case within sentences."""


_MAX_SENTENCES = 5_000
"""Maximum number of sentences. NLTK takes 0.1 ms per sentence, and prose of `MAX_CHARS` has fewer."""

_SENTENCE_ENDS = re.compile(r"[.?!]+(?!\w)")


class UnreadableResponse(Exception):
    """A response with too many sentences, such as "! ! ! !"; it follows no instruction."""


class _Spelling(defaultdict[str, int]):
    """A table of spellings: function words in either case, all others unknown.

    A look-up stores nothing, whereas Punkt's own table would grow with every new word of every response.
    """

    def __missing__(self, word: str) -> int:
        return _SEEN_LOWER_AND_UPPER if word in STOP_WORDS else 0


def tokens(text: str) -> Iterator[str]:
    """Split into words and punctuation marks.

    Raises:
        NotInstalledError: the extra "instructions" is not installed.
        UnreadableResponse: the text has too many sentences.
    """
    words = _words()
    return (token for sentence in _sentences(text) for token in words.tokenize(sentence))


def sentence_count(text: str) -> int:
    """Count sentences. A newline alone does not end one.

    Raises:
        NotInstalledError: the extra "instructions" is not installed.
        UnreadableResponse: the text has too many sentences.
    """
    return len(_sentences(text))


def _sentences(text: str) -> list[str]:
    if sum(1 for _ in islice(_SENTENCE_ENDS.finditer(text), _MAX_SENTENCES + 1)) > _MAX_SENTENCES:
        raise UnreadableResponse
    return _punkt().tokenize(text)


@cache
def _words() -> NLTKWordTokenizer:
    with extra("instructions"):
        from nltk.tokenize import NLTKWordTokenizer
    return NLTKWordTokenizer()


@cache
def _punkt() -> PunktSentenceTokenizer:
    with extra("instructions"):
        from nltk.tokenize.punkt import PunktParameters, PunktSentenceTokenizer
    parameters = PunktParameters()
    parameters.abbrev_types = set(_ABBREVIATIONS)
    parameters.sent_starters = set(_SENTENCE_STARTERS)
    parameters.ortho_context = _Spelling()
    return PunktSentenceTokenizer(parameters)


_AUXILIARIES = word_set("auxiliaries")
_IRREGULAR = word_set("irregular")
_VERBS = word_set("verbs")
_VERB_OR_NOUN = word_set("verb or noun")
_NOT_PARTICIPLES = word_set("not participles")
_OBJECTS = word_set("objects")


def starts_with_verb(words: list[str]) -> bool:
    """Return whether the first of these tokens is a verb. Modal verbs ("can", "would") do not count."""
    if not words or not words[0].isalpha():
        return False
    word = words[0].lower()
    after = words[1].lower() if len(words) > 1 else ""
    if word in _NOT_PARTICIPLES or len(word) < 5 or not word.endswith(("ing", "ed")):
        return _verb(word, has_object=after in _OBJECTS)
    return True


def _verb(word: str, *, has_object: bool) -> bool:
    if word in _AUXILIARIES or word in _IRREGULAR or word in _VERBS:
        return True
    if word.endswith(("ify", "ize")) and len(word) > 5:
        return True
    return has_object and not _BASES.isdisjoint((word, *_singular(word)))


_BASES = _VERBS | _VERB_OR_NOUN


def _singular(word: str) -> tuple[str, ...]:
    """Return possible base forms of a third-person verb, such as "try" for "tries"."""
    if not word.endswith("s"):
        return ()
    return (word[:-1], word.removesuffix("es"), word.removesuffix("ies") + "y")
