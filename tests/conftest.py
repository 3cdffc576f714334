import pytest

GROUPS = {"e2e": "training", "verl": "training", "contract": "contract", "browser": "browser"}
"""Tests of one group run one after another, by marker: they share what is slow to start."""


def pytest_collection_modifyitems(items):
    """Groups for `pytest -n`. The longest is begun first, beside which the others run."""
    for item in items:
        groups = [group for marker, group in GROUPS.items() if item.get_closest_marker(marker)]
        if "battery" in item.nodeid:
            groups.append("battery")  # its bait lies at fixed ports and paths
        if groups:
            item.add_marker(pytest.mark.xdist_group(groups[0]))
    items.sort(key=lambda item: item.get_closest_marker("e2e") is None)


@pytest.fixture(scope="session")
def cpu_platform():
    """verl on its CPU platform, as a recipe would set it up."""
    from coding_model_project.verl_ext.platform import check_cpu_plugin, prepare_environment

    prepare_environment("cpu")
    check_cpu_plugin()
