"""`python -m coding_model_project`: see `cli`."""

import sys

from coding_model_project.cli import main

sys.exit(main())
