"""Object code into this process.

In: an ELF object and the addresses of what it calls.  Out: `Code`, whose functions may be called as
long as it lives.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from llvmlite import binding

_lock = threading.Lock()
_numbers = itertools.count()
_lljit: Any = None


class Code:
    """Loaded object code; `address(name)` of each exported symbol.  Unloaded when collected."""

    def __init__(self, tracker: Any, exports: Iterable[str]) -> None:
        self._tracker = tracker
        self._addresses = {name: int(tracker[name]) for name in exports}

    def address(self, name: str) -> int:
        return self._addresses[name]

    def function(self, name: str, result: Any, *arguments: Any) -> Any:
        """A ctypes function of the exported symbol; the call releases the interpreter lock.

        The code stays loaded as long as the function lives.
        """
        call: Any = ctypes.CFUNCTYPE(result, *arguments)(self._addresses[name])
        call.code = self
        return call

    def keep_forever(self) -> None:
        """Never unload: other threads may still run the code while the interpreter ends."""
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._tracker))


def load_object(
    images: bytes | Sequence[bytes],
    exports: Iterable[str],
    imports: Mapping[str, int] | None = None,
) -> Code:
    """Link one or several objects; `imports` maps symbols that they lack to addresses.

    What libc and other loaded libraries define is found by name.
    Raises RuntimeError with the linker's words if a symbol is missing or the object is malformed.
    """
    names = tuple(exports)
    builder = binding.JITLibraryBuilder().add_current_process()
    for image in (images,) if isinstance(images, bytes) else images:
        builder.add_object_img(image)
    for symbol, address in (imports or {}).items():
        builder.import_symbol(symbol, address)
    for symbol in names:
        builder.export_symbol(symbol)
    with _lock:
        tracker = builder.link(_jit(), f"noctune.{next(_numbers)}")
    return Code(tracker, names)


def _jit() -> Any:
    global _lljit
    if _lljit is None:
        binding.initialize_native_target()
        binding.initialize_native_asmprinter()
        _lljit = binding.create_lljit_compiler()
        # At interpreter exit Python may drop globals in any order; the process takes it down.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(_lljit))
    return _lljit


def emit_object(ir: str, cpu: str, features: str, *, triple: str = "", passes: int = 0) -> bytes:
    """Machine code of a module; `passes` is the level of LLVM's IR optimisation, 0 for none.

    Raises RuntimeError with LLVM's words for malformed IR.
    """
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    kind = binding.Target.from_triple(triple or binding.get_process_triple())
    machine = kind.create_target_machine(
        cpu=cpu, features=features, opt=2, reloc="pic", codemodel="jitdefault"
    )
    module = binding.parse_assembly(ir)
    module.triple, module.data_layout = machine.triple, str(machine.target_data)
    module.verify()
    if passes:
        options = binding.create_pipeline_tuning_options(speed_level=passes)
        builder = binding.create_pass_builder(machine, options)
        builder.getModulePassManager().run(module, builder)
    return bytes(machine.emit_object(module))
