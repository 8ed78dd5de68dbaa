"""Programs as text: the loops in the order in which they run."""

from __future__ import annotations

from engine.space.nest import Level, Nest, Program


def program_text(program: Program) -> str:
    """One line a loop, two blanks a level."""
    lines: list[str] = []
    for number, region in enumerate(program.regions):
        shared = " x ".join(f"{a.name}({a.extent})" for a in region.shared)
        lines.append(f"region {number}: " + (f"parallel {shared}" if shared else "parallel loops"))
        for nest in region.nests:
            depth = 1
            for i, level in enumerate(_around(nest)):
                kind = "parallel" if not region.shared and i < region.parallel else "for"
                lines.append("  " * depth + f"{kind} {level.axis} step {level.step}")
                depth += 1
            inside = depth
            lines.append("  " * depth + _tile(nest))
            for level in nest.reduction:
                depth += 1
                kind = "unroll" if level.unroll else "for"
                lines.append("  " * depth + f"{kind} {level.axis} step {level.step}")
            lines.append("  " * (depth + 1) + str(nest.stage))
            lines += ["  " * inside + str(s) for s in nest.epilogue]
    return "\n".join(lines)


def _around(nest: Nest) -> tuple[Level, ...]:
    """The loops around the register tile: blocks, parts of a split reduction, tiles."""
    parts = (nest.split,) if nest.split else ()
    return (*nest.outer[: nest.blocks], *parts, *nest.outer[nest.blocks :])


def _tile(nest: Nest) -> str:
    parts = [f"{a}={n}" for a, n in nest.tile.items()]
    return f"tile {' '.join(parts)} lanes={nest.lanes} along {nest.vector}"
