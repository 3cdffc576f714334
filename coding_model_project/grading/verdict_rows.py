"""Conversion of verdicts to plain data and back, for samples and files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from coding_model_project.types import ErrorType, Isolation, TestResult, Verdict


def plain_verdict(verdict: Verdict) -> dict[str, Any]:
    """Return a verdict as plain data."""
    results = [
        asdict(result) | {"error": result.error and str(result.error)} for result in verdict.results
    ]
    return asdict(verdict) | {"results": results}


def verdict_of(plain: Mapping[str, Any]) -> Verdict:
    """Return the verdict that `plain_verdict` converted."""
    results = tuple(
        TestResult(**{**result, "error": result["error"] and ErrorType(result["error"])})
        for result in plain["results"]
    )
    return Verdict(**{**plain, "results": results, "isolation": Isolation(plain["isolation"])})
