"""FusionSandbox with programs in other languages than Python."""

import asyncio
import json
from dataclasses import replace

import httpx
import pytest

from coding_model_project.errors import ConfigError, DataError, SandboxError
from coding_model_project.sandbox.fusion import other_languages
from coding_model_project.sandbox.fusion.endpoint import parsed
from coding_model_project.types import Call, Execution, Program, Status, Stdin
from tests.fakes import FakeSandbox
from tests.tables import tables
from tests.unit.sandbox.fusion_servers import (
    FACTS,
    LIMITS,
    Hosts,
    PlainServer,
    Server,
    broken,
    fake,
    fusion,
    phase,
    program_of_a_probe,
    ran_code,
)

pytestmark = pytest.mark.usefixtures("impatient")


@pytest.mark.parametrize(("answered", "compiled", "ran", "status"), tables("sandbox")["statuses"])
def test_statuses_of_other_languages(answered, compiled, ran, status):
    phases = [None if one is None else phase(**one) for one in (compiled, ran)]
    content = ran_code(status=answered, compile_result=phases[0], run_result=phases[1])
    got = parsed(json.dumps(content).encode())
    assert other_languages.execution(got, LIMITS, FACTS).status is Status(status)


@pytest.mark.parametrize("letter", ["x", "ż"])
def test_an_output_that_was_cut_is_too_long(letter):
    content = ran_code(run_result=phase(stdout=letter * 140_000))
    got = parsed(json.dumps(content).encode())
    assert other_languages.execution(got, LIMITS, FACTS).status is Status.output_limit


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


@pytest.mark.slow
async def test_other_languages_take_standard_input_one_request_each():
    server = PlainServer()
    async with fusion(server, "plain") as sandbox:
        bash = Program(source="read n; echo $n", language="bash")
        n = len(server.requests)
        executions = await sandbox.run(bash, [Stdin("a\n"), Stdin("b\n")], LIMITS)
        assert [e.stdout for e in executions] == ["a\n", "b\n"]
        assert len(server.requests) - n == 3  # the toolchain is asked for once
        with pytest.raises(ConfigError, match="language=c: SandboxFusion servers run python, cpp"):
            await sandbox.run(Program(source="x", language="c"), [Stdin("a")], LIMITS)
        with pytest.raises(DataError, match="Call inputs are for python"):
            await sandbox.run(bash, [Call(function="f")], LIMITS)
        (bad,) = await sandbox.run(replace(bash, source="\ud800"), [Stdin("")], LIMITS)
        assert bad.status is Status.compile_error


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
