"""List the built-in networks, or write one as an ONNX file with seeded random weights."""

from __future__ import annotations

import argparse
import json

from engine.files import check_writable, replacing
from flows.options import add_json, positive
from flows.text import dims, table

EXAMPLE = "noctune zoo resnet-18 -o resnet-18.onnx --batch 4"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", help="the network to write")
    parser.add_argument("-o", "--output", metavar="FILE", help="the ONNX file to write")
    parser.add_argument("--batch", type=positive, default=1, metavar="N", help="batch size")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="seed of the weights")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from engine.zoo import build, describe

    if args.name is None:
        return _list(args.json)
    network = describe(args.name)
    output = args.output or f"{network.name}.onnx"
    check_writable(output)
    model = build(args.name, batch=args.batch, seed=args.seed)
    with replacing(output) as path:
        path.write_bytes(model.SerializeToString())
    shape = (args.batch, *network.input_shape)
    if args.json:
        print(json.dumps({"name": network.name, "path": output, "input_shape": list(shape)}))
    else:
        print(f"Wrote {output}: {network.summary}; input '{network.input_name}' {dims(shape)}")
    return 0


def _list(as_json: bool) -> int:
    from engine.zoo import describe, names

    found = [describe(name) for name in names()]
    if as_json:
        rows = [
            {
                "name": n.name,
                "summary": n.summary,
                "input_name": n.input_name,
                "input_shape": [1, *n.input_shape],
                "parameters": n.parameters,
            }
            for n in found
        ]
        print(json.dumps(rows, indent=2))
        return 0
    cells = [
        (n.name, n.summary, dims((1, *n.input_shape)), f"{n.parameters / 1e6:.1f} M") for n in found
    ]
    print(table(("name", "what it is", "input", "parameters"), cells, left=2))
    return 0
