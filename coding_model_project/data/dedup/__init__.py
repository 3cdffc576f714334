"""Search for duplicates within and across data sets, and for evaluation problems in training data.

documents.py  the compared parts of a problem: words, tests, the shape of its solution
search.py     pairs of equal documents: exact, normalised, near, paraphrase, tests, code, n-grams
govern.py     the choice of training problems to remove, with reasons; manifest and report as files
"""
