"""The five phases as steps, each done once for each content of what it reads."""
