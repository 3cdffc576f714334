"""The five phases as steps; each step runs once per content of its inputs."""
