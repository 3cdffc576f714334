"""Programs that other interpreters run, by name: `sources.txt`."""

from tests.text_cases import text_cases

SOURCES = {name: text for name, _, text in text_cases(__file__, "sources.txt")}
