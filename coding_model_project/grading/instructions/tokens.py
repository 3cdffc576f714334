"""NLTK's English tokenizers for words and sentences, without NLTK's data.

NLTK downloads its model of English sentences, which is not in any package registry. Kiss and Strunk's
algorithm (Punkt) needs little of it: abbreviations, and words that start sentences. With short lists of
these it splits like the full model, except after some initials ("Movie B. Later") and ellipses.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING

from coding_model_project.extras import extra
from coding_model_project.grading.instructions.stop_words import STOP_WORDS
from coding_model_project.grading.instructions.wordlists import word_set

if TYPE_CHECKING:
    from nltk.tokenize import NLTKWordTokenizer, PunktSentenceTokenizer

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

_OPENINGS = word_set("""
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
    parameters.sent_starters = set(_OPENINGS)
    parameters.ortho_context = _Spelling()
    return PunktSentenceTokenizer(parameters)
