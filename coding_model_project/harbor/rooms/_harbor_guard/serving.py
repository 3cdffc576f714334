"""The process that a module of the candidate's runs in while a verifier uses it."""

import os
import sys

READER, WRITER = 4, 5


def main():
    name, origin, *path = sys.argv[1:]
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [os.path.dirname(here), *path]
    from _harbor_guard import bars
    from _harbor_guard.library.sandbox.embedded import callee

    sys.path.pop(0)
    bars.close(reading_tests=False)
    sys.argv[:] = [origin]
    import importlib.util

    spec = importlib.util.spec_from_file_location(name, origin)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    callee.serve(module, READER, WRITER)


if __name__ == "__main__":
    main()
