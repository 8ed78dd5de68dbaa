"""LLVM modules: declarations around generated functions, and their compilation to object code.

No IR passes run: the generated code is in its final form and the code generator (level 1) schedules
and allocates registers.  Triple and data layout are set on every module; the verifier runs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

from engine.codegen.kernel import Kernel
from engine.target import Target

if TYPE_CHECKING:
    from llvmlite import binding

_CALL = re.compile(r"call (?:reassoc |nsz )?(\S+|<\d+ x \w+>) (@llvm\.[\w.]+)\((.*)\)")


@cache
def target_machine(target: Target) -> binding.TargetMachine:
    """LLVM's code generator for a target, created once a process."""
    from llvmlite import binding

    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    return binding.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu, features=target.feature_string, opt=1, reloc="pic", codemodel="small"
    )


def module(kernels: Sequence[Kernel | str], target: Target) -> str:
    """One module's text from kernels (or IR of functions)."""
    machine = target_machine(target)
    body = "\n".join(k if isinstance(k, str) else k.ir for k in kernels)
    return (
        f'target datalayout = "{machine.target_data}"\ntarget triple = "{target.triple}"\n\n'
        f"{body}\n{declarations(body)}\nattributes #0 = {{ nounwind }}\n"
    )


def declarations(body: str) -> str:
    """`declare` lines for every LLVM intrinsic that the text calls."""
    found: dict[str, str] = {}
    for match in _CALL.finditer(body):
        result, name, arguments = match.groups()
        if name not in found:
            kinds = [_kind_of(a) for a in _split(arguments)]
            found[name] = f"declare {result} {name}({', '.join(kinds)})"
    return "\n".join(found.values())


def _split(arguments: str) -> list[str]:
    """Top-level commas only: vector constants hold commas too."""
    parts, depth, start = [], 0, 0
    for i, c in enumerate(arguments):
        depth += (c in "<(") - (c in ">)")
        if c == "," and depth == 0:
            parts.append(arguments[start:i].strip())
            start = i + 1
    parts.append(arguments[start:].strip())
    return parts


def _kind_of(argument: str) -> str:
    if argument.startswith("<"):
        return argument[: argument.index(">") + 1]
    return argument.split()[0]


def compile_ir(ir: str, target: Target) -> bytes:
    """Object code (ELF) of a module's text.

    Raises RuntimeError with LLVM's message if the text is not valid.
    """
    from llvmlite import binding

    machine = target_machine(target)
    parsed = binding.parse_assembly(ir)
    parsed.verify()
    return bytes(machine.emit_object(parsed))


def assembly(ir: str, target: Target) -> str:
    """Assembly text of a module, to be looked at."""
    from llvmlite import binding

    parsed = binding.parse_assembly(ir)
    return str(target_machine(target).emit_assembly(parsed))
