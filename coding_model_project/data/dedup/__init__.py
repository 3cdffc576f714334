"""Duplicates within and across data sets, and what of evaluation sets lies in training data.

documents.py      a problem as what is compared: words, tests, the shape of its solution
search.py         pairs of documents that are the same: exact, normalised, near, paraphrase, tests, code
contamination.py  n-grams of evaluation sets in training documents
decide.py         which training problems go, and why
govern.py         manifest and report as files
"""
