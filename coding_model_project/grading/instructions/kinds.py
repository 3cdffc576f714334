"""The table of all kinds of instruction, by their names in IFEval, IFBench and IFEvalG."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from coding_model_project.errors import DataError
from coding_model_project.grading.instructions import (
    counts,
    custom,
    formats,
    ifevalg,
    keywords,
    layout,
    per_sentence,
    ratios,
    repeats,
    words,
)
from coding_model_project.grading.instructions.arguments import (
    COUNT,
    FIRST_TEXT,
    LANGUAGE,
    LETTER,
    PERCENTAGE,
    PLACE,
    RELATION,
    TEXT,
    TEXTS,
    Argument,
    in_order,
)


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of instruction.

    Args:
        check: the function, called with a non-blank response and the arguments by name.
        arguments: its arguments, all required.
        wrong: a rule on the combination of arguments that returns an error text or None.
    """

    check: Callable[..., bool]
    arguments: Mapping[str, Argument] = field(default_factory=dict)
    wrong: Callable[[Mapping[str, Any]], str | None] = lambda _: None


_IFEVAL = {
    "change_case:capital_word_frequency": Kind(
        counts.capital_word_frequency,
        {"capital_relation": RELATION, "capital_frequency": COUNT},
    ),
    "change_case:english_capital": Kind(keywords.english_capital),
    "change_case:english_lowercase": Kind(keywords.english_lowercase),
    "combination:repeat_prompt": Kind(repeats.repeat_prompt, {"prompt_to_repeat": TEXT}),
    "combination:two_responses": Kind(layout.two_responses),
    "detectable_content:number_placeholders": Kind(
        layout.number_placeholders, {"num_placeholders": COUNT}
    ),
    "detectable_content:postscript": Kind(layout.postscript, {"postscript_marker": TEXT}),
    "detectable_format:constrained_response": Kind(layout.constrained_response),
    "detectable_format:json_format": Kind(layout.json_format),
    "detectable_format:multiple_sections": Kind(
        layout.multiple_sections, {"section_spliter": TEXT, "num_sections": COUNT}
    ),
    "detectable_format:number_bullet_lists": Kind(
        layout.number_bullet_lists, {"num_bullets": COUNT}
    ),
    "detectable_format:number_highlighted_sections": Kind(
        layout.number_highlighted_sections, {"num_highlights": COUNT}
    ),
    "detectable_format:title": Kind(layout.title),
    "keywords:existence": Kind(keywords.existence, {"keywords": TEXTS}),
    "keywords:forbidden_words": Kind(keywords.forbidden_words, {"forbidden_words": TEXTS}),
    "keywords:frequency": Kind(
        keywords.frequency, {"keyword": TEXT, "relation": RELATION, "frequency": COUNT}
    ),
    "keywords:letter_frequency": Kind(
        counts.letter_frequency,
        {"letter": LETTER, "let_relation": RELATION, "let_frequency": COUNT},
    ),
    "language:response_language": Kind(keywords.response_language, {"language": LANGUAGE}),
    "length_constraints:nth_paragraph_first_word": Kind(
        layout.nth_paragraph_first_word,
        {"num_paragraphs": PLACE, "nth_paragraph": PLACE, "first_word": TEXT},
        in_order("nth_paragraph", "num_paragraphs"),
    ),
    "length_constraints:number_paragraphs": Kind(
        layout.number_paragraphs, {"num_paragraphs": COUNT}
    ),
    "length_constraints:number_sentences": Kind(
        counts.number_sentences, {"relation": RELATION, "num_sentences": COUNT}
    ),
    "length_constraints:number_words": Kind(
        counts.number_words, {"relation": RELATION, "num_words": COUNT}
    ),
    "punctuation:no_comma": Kind(keywords.no_comma),
    "startend:end_checker": Kind(repeats.end_checker, {"end_phrase": TEXT}),
    "startend:quotation": Kind(repeats.quotation),
}

_IFBENCH = {
    "count:conjunctions": Kind(counts.conjunctions, {"small_n": COUNT}),
    "count:keywords_multiple": Kind(
        counts.keywords_multiple, {f"keyword{number}": TEXT for number in range(1, 6)}
    ),
    "count:numbers": Kind(counts.numbers, {"N": COUNT}),
    "count:person_names": Kind(counts.person_names, {"N": COUNT}),
    "count:pronouns": Kind(counts.pronouns, {"N": COUNT}),
    "count:punctuation": Kind(counts.punctuation),
    "count:unique_word_count": Kind(counts.unique_word_count, {"N": COUNT}),
    "count:word_count_range": Kind(
        counts.word_count_range,
        {"min_words": COUNT, "max_words": COUNT},
        in_order("min_words", "max_words"),
    ),
    "count:words_japanese": Kind(counts.words_japanese, {"N": PLACE}),
    "custom:character_reverse": Kind(custom.character_reverse),
    "custom:csv_city": Kind(custom.csv_city),
    "custom:csv_quotes": Kind(custom.csv_quotes),
    "custom:csv_special_character": Kind(custom.csv_special_character),
    "custom:date_format_list": Kind(custom.date_format_list),
    "custom:european_capitals_sort": Kind(custom.european_capitals_sort),
    "custom:mcq_count_length": Kind(custom.mcq_count_length),
    "custom:multiples": Kind(custom.multiples),
    "custom:reverse_newline": Kind(custom.reverse_newline),
    "custom:sentence_alphabet": Kind(custom.sentence_alphabet),
    "custom:word_reverse": Kind(custom.word_reverse),
    "format:emoji": Kind(per_sentence.emoji_at_ends),
    "format:line_indent": Kind(formats.line_indent),
    "format:list": Kind(formats.separated_list, {"sep": TEXT}),
    "format:newline": Kind(formats.newline),
    "format:no_bullets_bullets": Kind(formats.no_bullets_bullets),
    "format:no_whitespace": Kind(formats.no_whitespace),
    "format:options": Kind(formats.options, {"options": TEXT}),
    "format:output_template": Kind(formats.output_template),
    "format:parentheses": Kind(formats.parentheses),
    "format:quote_unquote": Kind(formats.quote_unquote),
    "format:quotes": Kind(formats.quotes),
    "format:sub-bullets": Kind(formats.sub_bullets),
    "format:thesis": Kind(formats.thesis),
    "format:title_case": Kind(formats.title_case),
    "ratio:overlap": Kind(ratios.overlap, {"reference_text": TEXT, "percentage": PERCENTAGE}),
    "ratio:sentence_balance": Kind(ratios.sentence_balance),
    "ratio:sentence_type": Kind(ratios.sentence_type),
    "ratio:sentence_words": Kind(ratios.sentence_words),
    "ratio:stop_words": Kind(ratios.stop_words, {"percentage": PERCENTAGE}),
    "repeat:repeat_change": Kind(repeats.repeat_change, {"prompt_to_repeat": TEXT}),
    "repeat:repeat_simple": Kind(repeats.repeat_simple),
    "repeat:repeat_span": Kind(
        repeats.repeat_span,
        {"prompt_to_repeat": TEXT, "n_start": COUNT, "n_end": PLACE},
        in_order("n_start", "n_end"),
    ),
    "sentence:alliteration_increment": Kind(per_sentence.alliteration_increment),
    "sentence:increment": Kind(per_sentence.increment, {"small_n": COUNT}),
    "sentence:keyword": Kind(per_sentence.keyword, {"word": TEXT, "N": PLACE}),
    "words:alphabet": Kind(words.alphabet),
    "words:consonants": Kind(words.consonants),
    "words:keywords_specific_position": Kind(
        words.keywords_specific_position, {"keyword": TEXT, "n": PLACE, "m": PLACE}
    ),
    "words:last_first": Kind(words.last_first),
    "words:no_consecutive": Kind(words.no_consecutive),
    "words:odd_even_syllables": Kind(words.odd_even_syllables),
    "words:palindrome": Kind(counts.palindrome),
    "words:paragraph_last_first": Kind(words.paragraph_last_first),
    "words:prime_lengths": Kind(words.prime_lengths),
    "words:repeats": Kind(counts.repeats, {"small_n": COUNT}),
    "words:start_verb": Kind(words.start_verb),
    "words:vowel": Kind(words.vowel),
    "words:words_position": Kind(words.words_position, {"keyword": TEXT}),
}

_IFEVALG = {
    "copy:copy": Kind(ifevalg.copy, {"prompt_to_repeat": TEXT}),
    "copy:copying_multiple": Kind(ifevalg.copying_multiple, {"prompt_to_repeat": TEXT, "N": PLACE}),
    "copy:copying_simple": Kind(ifevalg.copy, {"prompt_to_repeat": TEXT}),
    "copy:repeat_phrase": Kind(ifevalg.repeat_phrase, {"phrase": TEXT, "small_n": PLACE}),
    "count:count_increment_word": Kind(
        ifevalg.count_increment_word, {"keyword1": TEXT, "keyword2": TEXT}
    ),
    "count:count_unique": Kind(ifevalg.count_unique),
    "count:counting_composition": Kind(
        ifevalg.counting_composition, {"n_sent": PLACE, "n_words": PLACE}
    ),
    "count:lowercase_counting": Kind(ifevalg.lowercase_counting, {"N": PLACE}),
    "detectable_format:bigram_wrapping": Kind(ifevalg.bigram_wrapping),
    "detectable_format:sentence_hyphens": Kind(ifevalg.sentence_hyphens),
    "detectable_format:square_brackets": Kind(ifevalg.square_brackets),
    "first_word:first_word_answer": Kind(ifevalg.first_word_answer, {"first_word": TEXT}),
    "first_word:first_word_sent": Kind(ifevalg.first_word_sent, {"first_word": FIRST_TEXT}),
    "keywords:exclude_word_harder": Kind(ifevalg.exclude_word_harder, {"keyword": TEXT}),
    "keywords:keyword_specific_position": Kind(
        words.keywords_specific_position, {"keyword": FIRST_TEXT, "n": PLACE, "m": PLACE}
    ),
    "keywords:no_adjacent_consecutive": Kind(ifevalg.no_adjacent_consecutive),
    "keywords:palindrome": Kind(ifevalg.palindrome),
    "keywords:start_end": Kind(ifevalg.start_end),
    "keywords:word_count_different_numbers": Kind(
        keywords.frequency, {"keyword": TEXT, "relation": RELATION, "frequency": COUNT}
    ),
    "keywords:word_once": Kind(ifevalg.word_once, {"keyword": TEXT}),
    "last_word:last_word_answer": Kind(ifevalg.last_word_answer, {"last_word": TEXT}),
    "last_word:last_word_sent": Kind(ifevalg.last_word_sent, {"last_word": FIRST_TEXT}),
    "letters:letter_counting": Kind(ifevalg.letter_counting, {"N": PLACE, "relation": RELATION}),
    "letters:letter_counting2": Kind(
        counts.letter_frequency,
        {"letter": LETTER, "let_relation": RELATION, "let_frequency": COUNT},
    ),
    "new:copy_span_idx": Kind(
        ifevalg.copy_span,
        {"prompt_to_repeat": TEXT, "n_start": COUNT, "n_end": PLACE},
        in_order("n_start", "n_end"),
    ),
    "paragraphs:paragraphs": Kind(ifevalg.paragraphs),
    "paragraphs:paragraphs2": Kind(ifevalg.paragraphs2),
    "punctuation:punctuation_dot": Kind(ifevalg.no_dot),
    "punctuation:punctuation_exclamation": Kind(ifevalg.no_exclamation_mark),
}

TABLE: Mapping[str, Kind] = _IFEVAL | _IFBENCH | _IFEVALG


def kind_named(name: str) -> Kind:
    """Return a kind by its name.

    Raises:
        DataError: the name is unknown.
    """
    found = TABLE.get(name)
    if found is None:
        near = get_close_matches(str(name), TABLE, n=1)
        hint = f"; did you mean {near[0]}?" if near else f"; known: {', '.join(sorted(TABLE))}"
        raise DataError(f"instruction kind {name!r:.60} is unknown{hint}")
    return found


def read_arguments(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments converted for the kind's check, without those that are None.

    Raises:
        DataError: the kind is unknown, or an argument is missing, unknown or wrong.
    """
    kind = kind_named(name)
    given = {key: value for key, value in arguments.items() if value is not None}
    unknown = [key for key in given if key not in kind.arguments]
    missing = [key for key in kind.arguments if key not in given]
    if unknown or missing:
        verb, keys = ("does not take", unknown) if unknown else ("needs", missing)
        takes = ", ".join(kind.arguments) or "none"
        raise DataError(f"instruction {name} {verb} {', '.join(map(str, keys))}; it takes {takes}")
    read = {}
    for key, argument in kind.arguments.items():
        read[key] = argument.read(given[key])
        if read[key] is None:
            value = f"{key}={given[key]!r:.60}"
            raise DataError(f"instruction {name}: {value} is not {argument.expected}")
    if wrong := kind.wrong(read):
        raise DataError(f"instruction {name}: {wrong}")
    return read
