"""Generated sums keep their promises: right answers, disjoint splits, mistakes that are wrong."""

import random
from collections import Counter

from coding_model_project.grading.maths.final_answer import final_answer
from coding_model_project.synthetic.tinymix import Habits, arithmetic


def test_the_answer_is_right_and_the_solution_ends_in_it():
    for problem in arithmetic():
        sum_ = problem.id.removeprefix("arithmetic/")
        assert eval(sum_) == int(problem.answer)
        assert (found := final_answer(problem.gold[0])) and found.text == problem.answer


def test_a_sum_is_in_one_split():
    ids = Counter(problem.id for problem in arithmetic())
    assert set(ids.values()) == {1}
    assert {problem.split for problem in arithmetic()} == {"train", "validation", "test"}


def test_the_demonstrator_answers_training_sums_alone_and_errs_as_often_as_told():
    by_statement = {
        p.statement.strip("?.= ").split("is ")[-1].split("Compute ")[-1]: p for p in arithmetic()
    }
    drawn = Habits(habit=0.5).draw(random.Random(0), 2000)
    right = 0
    for question, answer in drawn:
        sum_ = question["content"].strip("?.= ").split("is ")[-1].split("Compute ")[-1]
        problem = by_statement[sum_]
        assert problem.split == "train"
        found = final_answer(answer["content"])
        right += found is not None and found.text == problem.answer
    assert 0.45 < right / len(drawn) < 0.55
