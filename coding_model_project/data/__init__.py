"""Problems: our schema, loaders of public sets, governance of their use, and training data.

problems, problem_rows   our schema: problems as JSON lines, with an index; a row's fields
column_names            names of columns in public files, by our field
governance, catalogue    which set may train, validate or test; the page of all sets
loaders/                 public sets and users' files → problems
quality/                 a set's gold solutions, known-bad programs and tests
dedup/                   duplicates, and evaluation problems in training data
training/                rows, mixtures, pairs and traces for verl
rates, files             shares with intervals; lines, hashes and pages
"""
