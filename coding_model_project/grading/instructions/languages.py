"""Detection of a response's language by langdetect, deterministic and thread-safe."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from coding_model_project.extras import extra
from coding_model_project.grading.instructions.wordlists import word_set

if TYPE_CHECKING:
    from langdetect.detector_factory import DetectorFactory

LANGUAGES = word_set("""
    af ar bg bn ca cs cy da de el en es et fa fi fr gu he hi hr hu id it ja kn ko lt lv mk ml mr
    ne nl no pa pl pt ro ru sk sl so sq sv sw ta te th tl tr uk ur vi zh-cn zh-tw
""")
"""Codes of langdetect's languages."""

_READ_CHARS = 10_000
"""Maximum number of characters that langdetect reads."""

_SEED = 0


def language(text: str) -> str | None:
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
