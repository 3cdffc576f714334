"""FusionSandbox with programs in other languages than Python."""

import asyncio

import httpx
import pytest

from coding_model_project.errors import ConfigError, SandboxError
from coding_model_project.types import Execution, Program, Status, Stdin
from tests.fakes import FakeSandbox
from tests.unit.sandbox.fusion_servers import (
    LIMITS,
    Hosts,
    PlainServer,
    Server,
    broken,
    fake,
    fusion,
    program_of_a_probe,
)

pytestmark = pytest.mark.usefixtures("impatient")


async def test_a_language_without_a_toolchain_is_the_configurations_fault():
    async with fusion(Server()) as sandbox:
        server_says_hello = Program(source="int main() {}", language="cobol")
        with pytest.raises(ConfigError, match=r"cobol: no such language"):
            await sandbox.run(server_says_hello, [Stdin("")], LIMITS)
        with pytest.raises(ConfigError, match=r"language=pyhton: .*did you mean python\?"):
            await sandbox.run(Program(source="", language="pyhton"), [Stdin("")], LIMITS)
        with pytest.raises(ConfigError, match="cannot run cpp"):  # the fake prints no hello
            await sandbox.run(Program(source="x", language="cpp"), [Stdin("")], LIMITS)


CPP = Program(source="int main() {}", language="cpp")


def of_hello(source: str, given) -> Execution:
    """A machine that has the compilers."""
    if "hello" in source:
        return Execution(status=Status.finished, stdout="hello\n")
    return program_of_a_probe(source, given)


async def test_other_languages_share_requests_to_this_projects_servers():
    server = Server(sandbox=fake(of_hello))
    async with fusion(server) as sandbox:
        server.asked.clear()
        executions = await sandbox.run(CPP, [Stdin("a"), Stdin("b")], LIMITS)
        assert [e.stdout for e in executions] == ["a", "b"]
        assert len(server.asked) == 2  # the toolchain is asked for once
        assert server.sandbox.languages[-2:] == ["cpp", "cpp"]
        javascript = Program(source="x", language="js")
        await sandbox.run(javascript, [Stdin("a")], LIMITS)
        assert server.sandbox.languages[-1] == "javascript"
        await sandbox.run(Program(source="x", language="c"), [Stdin("a")], LIMITS)
        assert server.sandbox.languages[-1] == "c"


async def test_other_servers_run_python_only():
    async with fusion(PlainServer(), "plain") as sandbox:
        with pytest.raises(ConfigError, match="confine no bash programs"):
            await sandbox.run(Program(source="", language="bash"), [Stdin("")], LIMITS)


async def test_an_outage_at_the_first_program_of_a_language_ends_with_the_outage():
    server = Server(sandbox=fake(of_hello))
    async with fusion(server, retry_s=0.2) as sandbox:
        server.always["one"] = broken(httpx.ConnectError)
        with pytest.raises(SandboxError):
            await sandbox.run(CPP, [Stdin("a")], LIMITS)
        server.always.clear()
        (execution,) = await sandbox.run(CPP, [Stdin("a")], LIMITS)
        assert execution.stdout == "a"


class Bare(FakeSandbox):
    """A sandbox whose machine has only Python."""

    async def run(self, program, inputs, limits, *, stop_when=None):
        if program.language != "python":
            raise ConfigError(f"language={program.language}: no toolchain here")
        return await super().run(program, inputs, limits, stop_when=stop_when)


@pytest.mark.parametrize("language", ["cpp", "nodejs"])
async def test_a_server_of_a_fleet_without_the_toolchain_judges_no_program(language):
    one = Server("one", "two", sandbox=fake(of_hello))
    two = Server("two", sandbox=fake(kind=Bare))
    program, both = Program(source="x", language=language), Hosts(one=one, two=one)
    async with fusion(both, "one", "two") as sandbox:
        await sandbox.run(program, [Stdin("")], LIMITS)
        both.servers["two"] = two  # after it was examined
        runs = (sandbox.run(program, [Stdin(str(n))], LIMITS) for n in range(20))
        found = [execution for (execution,) in await asyncio.gather(*runs)]
        assert [execution.stdout for execution in found] == [str(n) for n in range(20)]
        assert "two" in two.asked


async def test_another_server_at_the_address_of_a_killed_one_is_examined_first():
    server = Server(sandbox=fake(of_hello))
    async with fusion(server, retry_s=1.5) as sandbox:
        await sandbox.run(CPP, [Stdin("a")], LIMITS)
        server.sandbox.identity = "fake/namespaces/other"
        server.faults["one"] = [broken(httpx.ConnectError)]
        with pytest.raises(SandboxError, match=r"differ: rlimit/cpython-3\.11 and namespaces/o"):
            await sandbox.run(CPP, [Stdin("a")], LIMITS)
        server.sandbox.identity = "fake/rlimit/cpython-3.11"
        (execution,) = await sandbox.run(CPP, [Stdin("a")], LIMITS)
        assert execution.stdout == "a"
