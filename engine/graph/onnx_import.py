"""Import: an ONNX model becomes a `Graph`.

In: a path (or parsed model) and shapes for inputs whose dimensions the model leaves open.
Out: a `Graph` in the dialect of `engine.graph.canonical`, every shape static, constants folded,
batch norms and scales folded into weights.

The model is walked once, in order.  All shapes before a node are known numbers, so chains such as
Shape-Gather-Concat-Reshape are constants by the time they are reached.  Functions and the taken
branch of an If are walked in place.  Half precision is computed in float32; inputs and outputs
keep their types through Cast nodes.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from engine.errors import ModelError, NoctuneError
from engine.graph import canonical
from engine.graph.builder import Builder, Call, Unsupported, refuse
from engine.graph.dialect import DIALECT_OPSET, dtype_of
from engine.graph.functions import (
    FunctionKey,
    bind_attributes,
    function_body,
    local_functions,
)
from engine.graph.infer import UnknownShapeError
from engine.graph.ir import Graph, Value
from engine.graph.passes import run_passes
from engine.graph.proto import (
    HALF,
    attribute_value,
    check_model,
    opsets_of,
    read_model,
    sparse_array,
    tensor_array,
)

Env = MutableMapping[str, str]
Shapes = Mapping[str, tuple[int, ...]]


def load_model(path: str | Path, shapes: Shapes | None = None, name: str | None = None) -> Graph:
    """The network of an ONNX file.

    `shapes` gives static shapes by input name; `name` defaults to the file's stem.
    Raises ModelError naming the file, and the node, tensor or input at fault.
    """
    path = Path(path)
    model = read_model(path)
    return _import(model, path.parent, shapes or {}, name or path.stem, str(path))


def load_proto(
    model: onnx.ModelProto,
    base_dir: str | Path = ".",
    shapes: Shapes | None = None,
    name: str | None = None,
) -> Graph:
    """The network of a parsed model; external data lies under `base_dir`."""
    label = name or model.graph.name or "model"
    check_model(model, label)
    return _import(model, Path(base_dir), shapes or {}, label, label)


def _import(model: onnx.ModelProto, base_dir: Path, shapes: Shapes, name: str, where: str) -> Graph:
    try:
        return _whole(model, base_dir, shapes, name, where)
    except NoctuneError:
        raise
    except Exception as error:  # damaged messages break the onnx package in many ways
        why = f"{type(error).__name__}: {error}"
        raise ModelError("the model is damaged", where=where, why=why) from error


def _whole(model: onnx.ModelProto, base_dir: Path, shapes: Shapes, name: str, where: str) -> Graph:
    walk = _Walk(base_dir, where, local_functions(model))
    graph = model.graph
    env: Env = {}
    walk.reserve(graph)
    walk.initializers(graph, env)
    inputs = walk.inputs(graph, env, shapes)
    walk.run(graph.node, env, opsets_of(model.opset_import))
    outputs = walk.outputs(graph, env, inputs)
    b = walk.builder
    whole = Graph(name, inputs, outputs, tuple(b.nodes), b.constants, b.values, DIALECT_OPSET)
    return run_passes(whole)


@dataclass
class _Walk:
    """One pass over a model; `env` maps the ONNX names in scope to builder values."""

    base_dir: Path
    where: str
    functions: Mapping[FunctionKey, onnx.FunctionProto]
    builder: Builder = field(default_factory=Builder)
    depth: int = 0

    def reserve(self, graph: onnx.GraphProto) -> None:
        """Keeps the model's own names free for the values that bear them."""
        taken = self.builder.taken
        taken.update(v.name for v in graph.input)
        taken.update(t.name for t in graph.initializer)
        taken.update(name for node in graph.node for name in node.output)

    # borders ------------------------------------------------------------------------------------
    def initializers(self, graph: onnx.GraphProto, env: Env) -> None:
        for tensor in graph.initializer:
            array = tensor_array(tensor, self.base_dir, self.where)
            env[tensor.name] = self._constant(array, tensor.name)
        for sparse in graph.sparse_initializer:
            array = sparse_array(sparse, self.base_dir, self.where)
            env[sparse.values.name] = self._constant(array, sparse.values.name)

    def inputs(self, graph: onnx.GraphProto, env: Env, shapes: Shapes) -> tuple[str, ...]:
        infos = [info for info in graph.input if info.name not in env]
        names = tuple(info.name for info in infos)
        for name in shapes:
            if name not in names:
                known = ", ".join(names) or "none"
                raise ModelError(
                    f"there is no input '{name}'", where=self.where, fix=f"The inputs are: {known}"
                )
        for info in infos:
            value = self._input(info, shapes)
            self.builder.values[info.name] = value
            env[info.name] = info.name
            if value.dtype in HALF:
                env[info.name] = self.builder.emit("Cast", info.name, to="float32")
        return names

    def _input(self, info: onnx.ValueInfoProto, shapes: Shapes) -> Value:
        kind, name = info.type, info.name
        if not kind.HasField("tensor_type") or not kind.tensor_type.elem_type:
            raise ModelError(f"input '{name}' is not a tensor", where=self.where)
        dtype = dtype_of(kind.tensor_type.elem_type)
        given = shapes.get(name)
        if not kind.tensor_type.HasField("shape"):
            if given is None:
                raise self._dynamic(name, "has no shape", "1,3,224,224")
            return Value(name, tuple(given), dtype)
        dims = list(kind.tensor_type.shape.dim)
        if given is not None and len(given) != len(dims):
            raise ModelError(
                f"input '{name}' has {len(dims)} dimensions, the given shape {len(given)}",
                where=self.where,
            )
        shape: list[int] = []
        for i, dim in enumerate(dims):
            known = dim.HasField("dim_value") and dim.dim_value >= (0 if given is None else 1)
            fixed = dim.dim_value if known else None
            if given is not None and fixed not in (None, given[i]):
                raise ModelError(
                    f"input '{name}' has {fixed} in dimension {i}, the given shape {given[i]}",
                    where=self.where,
                    fix="Fixed dimensions cannot be changed",
                )
            if given is None and fixed is None:
                what = f"has the open dimension {i} ({dim.dim_param or 'no name'})"
                raise self._dynamic(name, what, _suggest(dims))
            shape.append(int(given[i]) if given is not None else int(fixed or 0))
        if any(d < 0 for d in shape):
            raise ModelError(f"input '{name}' is given a negative dimension", where=self.where)
        return Value(name, tuple(shape), dtype)

    def _dynamic(self, name: str, what: str, example: str) -> ModelError:
        return ModelError(
            f"input '{name}' {what}",
            where=self.where,
            why="a network is tuned for fixed shapes",
            fix=f"Fix the shape, for example: --shape {name}={example}",
        )

    def outputs(self, graph: onnx.GraphProto, env: Env, inputs: tuple[str, ...]) -> tuple[str, ...]:
        """Makes every output's value bear the output's own name."""
        b = self.builder
        for info in graph.output:
            name, value = info.name, env.get(info.name)
            if value is None:
                raise ModelError(f"nothing computes output '{name}'", where=self.where)
            if name in inputs:
                continue
            declared = info.type.tensor_type.elem_type if info.type.HasField("tensor_type") else 0
            want = dtype_of(declared) if declared else b.dtype(value)
            if want in HALF and b.dtype(value) == "float32":
                self._cast_output(name, value, want, env)
            elif value != name:
                self._name_output(name, value, {*inputs, *(o.name for o in graph.output)}, env)
        return tuple(info.name for info in graph.output)

    def _cast_output(self, name: str, value: str, dtype: str, env: Env) -> None:
        b = self.builder
        if value == name:
            value = self._rename(name, b.unique(f"{name}.float32"), env)
        b.rename(b.emit("Cast", value, to=dtype), name)

    def _rename(self, old: str, new: str, env: Env) -> str:
        self.builder.rename(old, new)
        env.update({k: new for k, v in env.items() if v == old})
        return new

    def _name_output(self, name: str, value: str, borders: set[str], env: Env) -> None:
        b = self.builder
        if value in b.constants:
            b.constants[name] = b.constants[value]
            b.values[name] = Value(name, b.shape(value), b.dtype(value))
        elif value in borders:
            b.rename(b.emit("Identity", value), name, len(b.nodes) - 1)
        else:
            self._rename(value, name, env)

    # nodes --------------------------------------------------------------------------------------
    def run(self, nodes: Iterable[onnx.NodeProto], env: Env, opsets: Mapping[str, int]) -> None:
        for proto in nodes:
            domain = "" if proto.domain == "ai.onnx" else proto.domain
            attrs = {a.name: attribute_value(a, self.base_dir, self.where) for a in proto.attribute}
            call = Call(
                proto.op_type,
                domain,
                opsets.get(domain, 1 if domain else DIALECT_OPSET),
                proto.name,
                tuple(self._resolve(name, env, proto) for name in proto.input),
                tuple(proto.output),
                attrs,
            )
            try:
                self._node(proto, call, env, opsets)
            except Exception as error:
                if isinstance(error, NoctuneError) and error.where:
                    raise
                raise self._refusal(call, error) from error

    def _refusal(self, call: Call, error: Exception) -> Exception:
        """The error for a node; inside a function or branch a reason for the node that has it."""
        if self.depth:
            return Unsupported(f"{call.op} inside it: {_reason(error)}")
        fix = ""
        if isinstance(error, UnknownShapeError):
            fix = "Every shape must follow from the shapes of the inputs"
        return refuse(call, _reason(error), self.where, fix)

    def _resolve(self, name: str, env: Env, proto: onnx.NodeProto) -> str:
        if not name:
            return ""
        if name not in env:
            node = proto.name or proto.op_type
            why = "nothing before the node computes it"
            raise ModelError(f"node '{node}' reads '{name}'", where=self.where, why=why)
        return env[name]

    def _node(self, proto: onnx.NodeProto, call: Call, env: Env, opsets: Mapping[str, int]) -> None:
        b, since = self.builder, len(self.builder.nodes)
        b.begin(call)
        function = self.functions.get((call.domain, call.op, proto.overload))
        if call.op == "If" and not call.domain:
            results: Sequence[str] = self._branch(call, env, opsets)
        elif function is not None:
            results = self._function(function, call)
        elif call.domain == "" and (values := canonical.apply(b, call)) is not None:
            results = values
        elif (body := function_body(b, proto, call)) is not None:
            results = self._function(body, call)
        else:
            canonical.check_known(call)
            results = b.keep(call)
        for name, value in zip(call.outputs, results, strict=False):
            if not name:
                continue
            if not self.depth and name in env:
                raise Unsupported(f"'{name}' has been computed before")
            if not self.depth and value in b.fresh and name not in b.values:
                b.rename(value, name, since)
                value = name
            env[name] = value

    def _branch(self, call: Call, env: Env, opsets: Mapping[str, int]) -> list[str]:
        """The branch that a constant condition takes; else both, and a Where that selects."""
        b = self.builder
        condition = b.const(call.inputs[0])
        if condition is not None:
            taken = "then_branch" if bool(condition.reshape(-1)[0]) else "else_branch"
            return self._inline(call.attrs[taken], env, opsets)
        sides = []
        for key in ("then_branch", "else_branch"):
            try:
                sides.append(self._inline(call.attrs[key], env, opsets))
            except Unsupported as error:
                why = f"the input data decides which branch runs, and {key} cannot be imported"
                raise Unsupported(f"{why}: {error}") from error
        pairs = list(zip(*sides, strict=True))
        if any((b.shape(t), b.dtype(t)) != (b.shape(e), b.dtype(e)) for t, e in pairs):
            raise Unsupported(
                "the input data decides which branch runs, and the branches give other shapes"
            )
        b.begin(call)
        flag = b.reshape(call.inputs[0], ())
        return [t if t == e else b.emit("Where", flag, t, e) for t, e in pairs]

    def _inline(self, branch: onnx.GraphProto, env: Env, opsets: Mapping[str, int]) -> list[str]:
        scope: Env = ChainMap({}, env)
        self.initializers(branch, scope)
        with self._deeper():
            self.run(branch.node, scope, opsets)
        return [scope[info.name] for info in branch.output]

    def _function(self, function: onnx.FunctionProto, call: Call) -> list[str]:
        """A function's nodes in place of the call."""
        if self.depth > 32:
            raise Unsupported("its function calls itself")
        scope: Env = dict(zip(function.input, [*call.inputs], strict=False))
        scope.update((name, "") for name in function.input[len(call.inputs) :])
        with self._deeper():
            self.run(bind_attributes(function, call), scope, opsets_of(function.opset_import))
        wanted = zip(function.output, call.outputs, strict=False)
        return [scope[name] if used else "" for name, used in wanted]

    @contextmanager
    def _deeper(self) -> Iterator[None]:
        self.depth += 1
        try:
            yield
        finally:
            self.depth -= 1

    def _constant(self, array: Any, name: str) -> str:
        b = self.builder
        name = b.unique(name) if name in b.values else name
        b.taken.add(name)
        b.constants[name] = np.asanyarray(array)
        b.values[name] = Value(name, tuple(map(int, array.shape)), array.dtype.name)
        return name


def _suggest(dims: Sequence[Any]) -> str:
    """A shape to show: known dimensions as they are, 1 for the batch, 224 for a picture's side."""
    guess = [1, 3, 224, 224] if len(dims) == 4 else [1] + [128] * (len(dims) - 1)
    return ",".join(
        str(d.dim_value if d.HasField("dim_value") else g) for d, g in zip(dims, guess, strict=True)
    )


def _reason(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"{error} is missing"
    if isinstance(error, NoctuneError):
        return f"{error.what}: {error.why}" if error.why else error.what
    return " ".join(str(error).split()) or type(error).__name__
