"""Programs in each language but Python that the embedded sandbox runs, and how they must end."""

from tests.language_cases.cpp import CPP, C
from tests.language_cases.go import GO
from tests.language_cases.java import JAVA
from tests.language_cases.rust import RUST
from tests.language_cases.scripts import BASH, JAVASCRIPT, PERL

CASES = {
    "c": C,
    "cpp": CPP,
    "javascript": JAVASCRIPT,
    "java": JAVA,
    "go": GO,
    "rust": RUST,
    "perl": PERL,
    "bash": BASH,
}
