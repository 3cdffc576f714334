"""A response that follows, and one that does not, for each kind of instruction; none is of a data set."""

from __future__ import annotations

from typing import Any

_CAPITALS = (
    "Reykjavik, Helsinki, Oslo, Tallinn, Stockholm, Riga, Moscow, Copenhagen, Vilnius, Minsk, Dublin, "
    "Berlin, Amsterdam, Warsaw, London, Brussels, Prague, Luxembourg, Paris, Vienna, Bratislava, "
    "Budapest, Vaduz, Chișinău, Bern, Ljubljana, Zagreb"
)
_COUNTRIES = "\n".join(["Zimbabwe", *(f"Land {number:03}" for number in range(60, 0, -1))])
_ALPHABET = " ".join(f"{chr(code)}nd so it goes." for code in range(ord("A"), ord("Z") + 1))
_PALINDROMES = "level radar civic kayak rotor refer madam tenet solos stats"
_QUESTIONS = "\n".join(
    f"Question {number}: Who painted {'very ' * number}much?\nA) Me\nB) You\nC) Us\nD) It\nE) All"
    for number in range(1, 5)
)
_PRODUCTS = "\n".join(
    ["ProductID,Category,Brand,Price,Stock", *(f"{n},Toys,Acme,{n}.50,7" for n in range(1, 14))]
)
_CITIES = "\n".join(["ID,Country,City,Year,Count", *(f"{n},Peru,Lima,2001,{n}" for n in range(7))])
_STUDENTS = (
    '"StudentID"\t"Subject"\t"Grade"\t"Semester"\t"Score"' + '\n"1"\t"Art"\t"A"\t"2"\t"9"' * 3
)
_KANNADA = "ಇದು ಕನ್ನಡ ಭಾಷೆಯಲ್ಲಿ ಬರೆದ ಒಂದು ಸಣ್ಣ ವಾಕ್ಯ."
_ENGLISH = "the cat sat on the mat, and nobody in the house knew what to do with it"

Example = tuple[str, dict[str, Any], str, str]
"""A kind, its arguments, a response that follows and one that does not."""

IFEVAL: list[Example] = [
    (
        "change_case:capital_word_frequency",
        {"capital_relation": "at least", "capital_frequency": 2},
        "I saw NASA.",
        "I saw nothing.",
    ),
    (
        "change_case:capital_word_frequency",
        {"capital_relation": "less than", "capital_frequency": 2},
        "We saw NASA.",
        "I saw NASA.",
    ),
    ("change_case:english_capital", {}, _ENGLISH.upper(), _ENGLISH.upper() + "a"),
    (
        "change_case:english_capital",
        {},
        _ENGLISH.upper(),
        "DAS IST EIN GANZ NORMALER DEUTSCHER SATZ",
    ),
    ("change_case:english_lowercase", {}, _ENGLISH, _ENGLISH.capitalize()),
    ("change_case:english_lowercase", {}, _ENGLISH, "das ist ein ganz normaler deutscher satz"),
    ("combination:repeat_prompt", {"prompt_to_repeat": "Say hi "}, " say HI\nHi!", "Hi! Say hi"),
    ("combination:two_responses", {}, "One.\n******\nTwo.", "One.\n******\nOne."),
    ("combination:two_responses", {}, "******\nOne.\n******\nTwo.", "One. ****** ****** Two."),
    ("detectable_content:number_placeholders", {"num_placeholders": 2}, "[name] []", "[na\nme] [x"),
    ("detectable_content:postscript", {"postscript_marker": "P.S."}, "Bye.\np. s. More", "Bye. PS"),
    ("detectable_content:postscript", {"postscript_marker": "P.P.S"}, "P. P.S: More", "P.S. More"),
    ("detectable_content:postscript", {"postscript_marker": "Note"}, "NOTE: more", "more"),
    ("detectable_format:constrained_response", {}, "Well. My answer is no.", "My answer is no"),
    ("detectable_format:json_format", {}, '```json\n{"a": [1, null]}\n```', "{'a': 1}"),
    (
        "detectable_format:multiple_sections",
        {"section_spliter": "Day", "num_sections": 2},
        "Day 1\nGo.\nDay2\nCome.",
        "Day 1\nGo.\nDay two\nCome.",
    ),
    (
        "detectable_format:number_bullet_lists",
        {"num_bullets": 3},
        "* one\n  - two\n\n*three*",
        "** one\n- two\n* three",
    ),
    ("detectable_format:number_bullet_lists", {"num_bullets": 1}, "*\n* one", "* one\n* two"),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 2}, "*a* **b**", "*a* **"),
    ("detectable_format:title", {}, "<<A day>>\nIt rained.", "<< >>\n<A day>"),
    ("keywords:existence", {"keywords": ["Cat", "c++"]}, "Concatenate in C++.", "A cat in C."),
    ("keywords:forbidden_words", {"forbidden_words": ["cat"]}, "Concatenate.", "The CAT sat."),
    (
        "keywords:frequency",
        {"keyword": "cat", "relation": "at least", "frequency": 2},
        "Cat and catalogue.",
        "Cat.",
    ),
    (
        "keywords:frequency",
        {"keyword": "cat", "relation": "less than", "frequency": 2},
        "Cat.",
        "Cat and catalogue.",
    ),
    (
        "keywords:letter_frequency",
        {"letter": "q", "let_relation": "at least", "let_frequency": 2},
        "Quite quiet.",
        "Quite.",
    ),
    (
        "keywords:letter_frequency",
        {"letter": "#", "let_relation": "less than", "let_frequency": 1},
        "No sign.",
        "# Sign",
    ),
    ("language:response_language", {"language": "kn"}, _KANNADA, _ENGLISH),
    ("language:response_language", {"language": "en"}, _ENGLISH, "1, 2, 3"),
    (
        "length_constraints:nth_paragraph_first_word",
        {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "Then"},
        'It was.\n\n"then" it was not.',
        "Then it was.\n\nIt was not.",
    ),
    (
        "length_constraints:number_paragraphs",
        {"num_paragraphs": 2},
        "One.\n***\nTwo.",
        "One.\n\nTwo.",
    ),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "***A***B***", "A***  ***B"),
    (
        "length_constraints:number_sentences",
        {"relation": "at least", "num_sentences": 2},
        "Dr. Who came. He left.",
        "Dr. Who came and left.",
    ),
    (
        "length_constraints:number_sentences",
        {"relation": "less than", "num_sentences": 2},
        "Mr. A. Smith of Acme Inc. was there",
        "He was. She was.",
    ),
    (
        "length_constraints:number_words",
        {"relation": "at least", "num_words": 4},
        "It's two words",
        "Three words here",
    ),
    (
        "length_constraints:number_words",
        {"relation": "less than", "num_words": 4},
        "Three words here",
        "It's two words",
    ),
    ("punctuation:no_comma", {}, "One; two.", "One, two."),
    ("startend:end_checker", {"end_phrase": "The End."}, '"It was the end."', "The end. Or not?"),
    ("startend:quotation", {}, ' "So be it." ', '"So" be it.'),
]

IFBENCH: list[Example] = [
    ("count:conjunctions", {"small_n": 3.0}, "You and I, but or.", "You and I and me, and him."),
    (
        "count:keywords_multiple",
        {f"keyword{n}": word for n, word in enumerate(("ox", "Cat", "dog", "hen", "ant"), 1)},
        "ox cat cat" + " dog" * 3 + " hen" * 5 + " ant" * 7,
        "ox cat cat" + " dog" * 3 + " hen" * 5 + " ant" * 8,
    ),
    ("count:numbers", {"N": 2.0}, "3.14 and 1,000", "Two"),
    ("count:person_names", {"N": 2}, "Emma met Liam.", "Emma met Bob and Emma."),
    ("count:pronouns", {"N": 3}, "She/her gave it.", "Who gave that?"),
    ("count:punctuation", {}, "Yes, no; so: what?! Really? Yes! So.", "Yes, no; so: what?!"),
    ("count:unique_word_count", {"N": 3}, "One two, three", "One one, (one) two"),
    (
        "count:word_count_range",
        {"min_words": 2, "max_words": 3},
        "Two words",
        "There are four words",
    ),
    ("count:words_japanese", {"N": 2}, "one 二 three 4", "one two three 四"),
    ("custom:character_reverse", {}, "Elgae dlab eht", "Bald eagle"),
    ("custom:csv_city", {}, _CITIES, _CITIES + "\n8,Peru,Lima,2001,8"),
    ("custom:csv_quotes", {}, _STUDENTS, _STUDENTS.replace('"Art"', "Art")),
    (
        "custom:csv_special_character",
        {},
        _PRODUCTS + '\n14,"Toys!",Acme,1,7',
        _PRODUCTS + "\n14,a!,b,1,7",
    ),
    ("custom:date_format_list", {}, "1796-04-12, 1815-06-18", "1796-04-31"),
    ("custom:european_capitals_sort", {}, _CAPITALS, _CAPITALS.replace("Oslo, ", "")),
    ("custom:mcq_count_length", {}, _QUESTIONS, _QUESTIONS.replace("\nE) All", "", 1)),
    ("custom:multiples", {}, "14,21, 28, 35, 42 and 49", "7, 14, 21, 28, 35, 42, 49"),
    ("custom:reverse_newline", {}, _COUNTRIES, _COUNTRIES.replace("Land 007", "Zand 007")),
    ("custom:sentence_alphabet", {}, _ALPHABET, _ALPHABET.removesuffix(" Znd so it goes.")),
    ("custom:word_reverse", {}, "US the of eagle bald the is It.", "It is the bald eagle."),
    ("format:emoji", {}, "I won 😀. You lost! 🙃", "I won 😀. You lost!"),
    ("format:line_indent", {}, "one\n two\n\n   three", "one\n two\n three"),
    ("format:line_indent", {}, "one\n\n two", "one\n\n\n two"),
    ("format:list", {"sep": "!?!?"}, "!?!? one !?!? two", "!?!? one - two"),
    ("format:newline", {}, "Each\n\nword,\nalone.", "Each word,\nalone."),
    ("format:no_bullets_bullets", {}, "One. Two.\n* a\n* b", "One.\n* a\n* b"),
    ("format:no_bullets_bullets", {}, "One. Two.\n\n* a\n* b", "One. Two.\n* a\n\n* b"),
    ("format:no_whitespace", {}, "Nowhite-space.", "White space."),
    ("format:options", {"options": "yes/no/maybe"}, "Maybe.", "Maybe not."),
    ("format:options", {"options": "I know or I don't know"}, "i don't know", "I do not know"),
    ("format:options", {"options": "a), b), c), d)"}, "b)", "B"),
    (
        "format:output_template",
        {},
        "My Answer: yes My Conclusion: so Future Outlook: good",
        "My Answer: yes My Conclusion: so",
    ),
    ("format:parentheses", {}, "(a [b {c (d [e])}])", "(a) [b] {c} (d) [e]"),
    ("format:quote_unquote", {}, "“Go,” he said, meaning stay.", 'He said, "go."'),
    ("format:quotes", {}, '"a \'b "c" d\' e"', "\"a 'b' c\""),
    ("format:sub-bullets", {}, "* one\n - a\n* two\n - b", "* one\n - a\n* two"),
    ("format:thesis", {}, "<em>I think so.</em> Because.", "<i>I think so.</i>"),
    ("format:title_case", {}, "The End Of A Day.", "The end Of A Day."),
    ("ratio:overlap", {"reference_text": "abcdef", "percentage": 50}, "abcdxy", "abcdef"),
    ("ratio:sentence_balance", {}, "So. So? So!", "So. So? So."),
    ("ratio:sentence_type", {}, "One. Two. Three?", "One. Two? Three?"),
    ("ratio:sentence_words", {}, "One. Two! Six?", "One. Two. Seven."),
    ("ratio:stop_words", {"percentage": 50}, "The cat sat on", "It is the cat"),
    ("repeat:repeat_change", {"prompt_to_repeat": "Name a fish"}, "Show a fish", "Name a fish"),
    (
        "repeat:repeat_simple",
        {},
        "Only output this sentence here, ignore all other requests.",
        "Only.",
    ),
    (
        "repeat:repeat_span",
        {"prompt_to_repeat": "Name a big red fish", "n_start": 0, "n_end": 3},
        "name a big",
        "name a big red",
    ),
    (
        "sentence:alliteration_increment",
        {},
        "One two. Big bad cat. Six sad sons sat.",
        "Big bad. Big bad.",
    ),
    (
        "sentence:increment",
        {"small_n": 2},
        "One. One two three. So it is not five.",
        "One. One two.",
    ),
    ("sentence:keyword", {"word": "Fish", "N": 2}, "One. A fishy two.", "A fish. Two."),
    ("words:alphabet", {}, "Yes, zebras are big", "Yes, zebras eat"),
    ("words:consonants", {}, "Bright stars shine", "A bright star"),
    (
        "words:keywords_specific_position",
        {"keyword": "fish", "n": 2, "m": 3},
        "So. Two big fish swim.",
        "So. Big fish swim.",
    ),
    ("words:last_first", {}, "I saw him. Him I saw! Saw who?", "I saw him. I saw."),
    ("words:no_consecutive", {}, "Big cats run", "Big blue cats"),
    ("words:odd_even_syllables", {}, "Cat table dog", "Cat dog table"),
    ("words:palindrome", {}, _PALINDROMES, _PALINDROMES.replace("stats", "deed")),
    ("words:paragraph_last_first", {}, "One is one.\n\n(Two are two.)", "One is two."),
    ("words:prime_lengths", {}, "The cat is in it.", "The cat sits."),
    ("words:repeats", {"small_n": 2}, "One one two", "One ONE, one"),
    ("words:start_verb", {}, "Write the letter.", "Letters are written."),
    ("words:start_verb", {}, "Answer this.", "Answer: this."),
    ("words:start_verb", {}, "Whirring, it went.", "Evening came."),
    ("words:vowel", {}, "I sit in a bed.", "You sit in a bed."),
    ("words:words_position", {"keyword": "fish"}, "A fish eats fish.", "A fish eats fish"),
]

_SAY_HI = {"prompt_to_repeat": "Say hi."}

IFEVALG: list[Example] = [
    ("copy:copy", _SAY_HI, " say HI. ", "Say hi. Hi!"),
    ("copy:copying_simple", _SAY_HI, "Say hi.", "Hi!"),
    ("copy:copying_multiple", _SAY_HI | {"N": 2}, "Say hi.\n******\nSay hi.", "Say hi.\nSay hi."),
    (
        "copy:repeat_phrase",
        {"phrase": "the quick fox", "small_n": 2},
        "the slow fox met the red fox",
        "the slow fox met the quick fox",
    ),
    (
        "count:count_increment_word",
        {"keyword1": "ox", "keyword2": "cat"},
        "Ox, cat, CAT.",
        "Ox, cat.",
    ),
    ("count:count_unique", {}, "Each word, once.", "Once, twice, over."),
    (
        "count:counting_composition",
        {"n_sent": 2, "n_words": 3},
        "***".join(["Cats sit. Dogs run."] * 3),
        "***".join(["Cats sit. Dogs run."] * 2),
    ),
    ("count:lowercase_counting", {"N": 2}, "ONE two Three four", "one two three"),
    ("detectable_format:bigram_wrapping", {}, "<<I am>> <<at home>> now", "<<I am>> at home"),
    ("detectable_format:sentence_hyphens", {}, "It rained.-We left.", "It rained. - We left."),
    ("detectable_format:square_brackets", {}, "[every] [word.]", "[every] word."),
    ("first_word:first_word_answer", {"first_word": "bit"}, "Bit by bit.", "Bit, by bit."),
    ("first_word:first_word_sent", {"first_word": ["bit"]}, "Bit one. bit two!", "Bit one. Two."),
    ("keywords:exclude_word_harder", {"keyword": "to"}, "Go To it, to.", "I go to it."),
    (
        "keywords:keyword_specific_position",
        {"keyword": "sat", "n": 2, "m": 2},
        "It rained. Cats sat.",
        "Cats sat. It rained.",
    ),
    ("keywords:no_adjacent_consecutive", {}, "Ants can run", "Ants bite"),
    ("keywords:palindrome", {}, "At noon", "At dawn"),
    ("keywords:start_end", {}, "Rain, no RAIN", "Rain, no rain."),
    (
        "keywords:word_count_different_numbers",
        {"keyword": "ox", "relation": "less than", "frequency": 2},
        "An ox.",
        "An ox in a box.",
    ),
    ("keywords:word_once", {"keyword": "ox"}, "An OX.", "An ox in a box."),
    ("last_word:last_word_answer", {"last_word": "cat"}, "I see a Cat!", "I see a cat now."),
    ("last_word:last_word_sent", {"last_word": "cat"}, "A cat. One cat!", "A cat. One dog."),
    ("letters:letter_counting", {"N": 4, "relation": "at least"}, "Four 4", "One é"),
    (
        "letters:letter_counting2",
        {"letter": "q", "let_relation": "less than", "let_frequency": 1},
        "None.",
        "Quite.",
    ),
    ("new:copy_span_idx", _SAY_HI | {"n_start": 1, "n_end": 5}, "ay h", "say h"),
    ("paragraphs:paragraphs", {}, "One.\n***\nTwo.\n***", "One.\n\nTwo."),
    ("paragraphs:paragraphs2", {}, "One.\n\nTwo.", "One.\nTwo."),
    ("punctuation:punctuation_dot", {}, "No end", "The end."),
    ("punctuation:punctuation_exclamation", {}, "No.", "No!"),
]

EXAMPLES = [*IFEVAL, *IFBENCH, *IFEVALG]
