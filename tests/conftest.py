import pytest


@pytest.fixture(scope="session")
def cpu_platform():
    """verl on its CPU platform, as a recipe would set it up."""
    from coding_model_project.verl_ext.platform import check_cpu_plugin, prepare_environment

    prepare_environment("cpu")
    check_cpu_plugin()
