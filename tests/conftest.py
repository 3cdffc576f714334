import signal

import pytest

# A shell's background jobs ignore Ctrl-C, and so would the runs that tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def cpu_platform():
    """verl on its CPU platform, as a recipe would set it up."""
    from coding_model_project.verl_ext.platform import check_cpu_plugin, prepare_environment

    prepare_environment("cpu")
    check_cpu_plugin()


@pytest.fixture(autouse=True)
def _verl_on_its_cpu_platform(request):
    """Whichever test imports verl first decides for all: the platform must be chosen before."""
    if request.node.get_closest_marker("verl"):
        request.getfixturevalue("cpu_platform")
