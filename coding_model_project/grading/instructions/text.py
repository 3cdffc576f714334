"""Words, tokens and sentences of a response, by the publishers' rules and by NLTK's.

NLTK downloads its model of English sentences, which is not in any package registry. Kiss and Strunk's
algorithm (Punkt) needs little of it: abbreviations, and words that start sentences. With short lists of
these it splits like the full model, except after some initials ("Movie B. Later") and ellipses.
"""

from __future__ import annotations

import re
import string
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING

from coding_model_project.extras import extra

if TYPE_CHECKING:
    from nltk.tokenize import NLTKWordTokenizer, PunktSentenceTokenizer


def word_list(text: str) -> tuple[str, ...]:
    """Return the words of a text, in order."""
    return tuple(text.split())


def word_set(text: str) -> frozenset[str]:
    """Return the set of words of a text."""
    return frozenset(text.split())


STOP_WORDS = word_set("""
    a about above after again against ain all am an and any are aren as at be because been before
    being below between both but by can couldn d did didn do does doesn doing don down during each
    few for from further had hadn has hasn have haven having he her here hers herself him himself
    his how i if in into is isn it its itself just ll m ma me mightn more most mustn my myself
    needn no nor not now o of off on once only or other our ours ourselves out over own re s same
    shan she should shouldn so some such t than that the their theirs them themselves then there
    these they this those through to too under until up ve very was wasn we were weren what when
    where which while who whom why will with won wouldn y you your yours yourself yourselves
""")


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


_ABBREVIATIONS = word_set("""
    adm bros cie co col corp cos ct dr ft gen inc jr lt ltd maj messrs mr mrs ms prof reps sen sr
    st ala ariz calif colo conn fla ga ill kan ky mich minn nev okla ore pa tenn va vt wash wis
    w.va jan feb aug sep sept oct nov dec tues wed fri ave chg vs yr ph.d a.m p.m m.d.c d.c l.a
    n.c n.d n.h n.j n.m n.v n.y s.c u.k u.n u.s u.s.a u.s.s.r c.o.m.b c.i.t i.m.s a.m.e m.b.a a.a
    a.c a.d a.g a.h a.s a.t b.f b.v c.v d.h d.w e.f e.h e.l e.m f.g f.j g.d g.f g.k h.c h.f h.m
    j.b j.c j.j j.k j.p j.r l.f l.p m.j r.a r.h r.i r.j r.k r.t s.a s.a.y s.g s.p.a s.s t.j w.c
    w.r w.w c d e f g h k l m n p r s t v w mg ok p.a.m rep sw
""")
"""Abbreviations of American newspapers. Like the model, they lack "e.g", "i.e" and "etc"."""

_SENTENCE_STARTERS = word_set("""
    according although among both but despite even he however if in indeed instead it many
    meanwhile moreover most nevertheless nonetheless separately similarly since so some the there
    these they this though thus under when while yet
""")
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
