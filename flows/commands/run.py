"""Run a compiled network on arrays.

The inputs are the arrays of an .npz file, by input name; the outputs are written to another one.
"""

from __future__ import annotations

import argparse
import json
import lzma
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flows.options import add_json, add_threads

_NOT_ARRAYS = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, ValueError, EOFError,
    RuntimeError, NotImplementedError,  # an encrypted member, an unknown compression
)  # fmt: skip
EXAMPLE = "noctune run resnet-18.net --input image.npz -o scores.npz"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("net", help="compiled network")
    parser.add_argument("--input", required=True, metavar="FILE.npz", help="arrays by input name")
    parser.add_argument("-o", "--output", required=True, metavar="FILE.npz", help="file to write")
    add_threads(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from engine.files import check_writable, replacing
    from engine.runtime.network import load

    check_writable(args.output, args.net, args.input)
    net = load(args.net)
    outputs = net.run(read_arrays(args.input), threads=args.threads)
    with replacing(args.output) as path:
        write_arrays(path, outputs)
    shapes = {name: list(array.shape) for name, array in outputs.items()}
    if args.json:
        print(json.dumps({"output": args.output, "outputs": shapes}))
    else:
        for name, array in outputs.items():
            print(f"{name}: {array.dtype} {list(array.shape)}")
        print(f"Wrote {args.output}")
    return 0


def write_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """An .npz file with an array of each name, whatever the names are.

    numpy.savez takes them as keywords, where `file` and `allow_pickle` are its own.
    """
    import numpy as np

    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def read_arrays(path: str) -> dict[str, Any]:
    """The arrays of an .npz file.  Raises InputError for anything else."""
    import numpy as np

    from engine.errors import InputError

    try:
        found = np.load(path, allow_pickle=False)
        if not isinstance(found, np.lib.npyio.NpzFile):
            raise InputError(
                "this is a single array, not an .npz file", where=path,
                fix="Write one with numpy.savez(path, input_name=array).",
            )  # fmt: skip
        with found:
            return {name: found[name] for name in found.files}
    except FileNotFoundError:
        raise InputError("there is no such file", where=path) from None
    except _NOT_ARRAYS as error:
        raise InputError(
            "this is not an .npz file of arrays",
            where=path,
            why=" ".join(str(error).split())[:200],
            fix="Write one with numpy.savez(path, input_name=array).",
        ) from error
