"""Object code into this process.

In: an ELF object and the addresses of what it calls.  Out: `Code`, whose functions may be called as
long as it lives.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections.abc import Iterable, Mapping
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
        """A ctypes function of the exported symbol; the call releases the interpreter lock."""
        return ctypes.CFUNCTYPE(result, *arguments)(self._addresses[name])

    def keep_forever(self) -> None:
        """Never unload: other threads may still run the code while the interpreter ends."""
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._tracker))


def load_object(
    image: bytes, exports: Iterable[str], imports: Mapping[str, int] | None = None
) -> Code:
    """Link an object; `imports` maps undefined symbols to addresses, libc's are found by name.

    Raises RuntimeError with the linker's words if a symbol is missing or the object is malformed.
    """
    names = tuple(exports)
    builder = binding.JITLibraryBuilder().add_object_img(image).add_current_process()
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


def emit_object(ir: str, cpu: str, features: str) -> bytes:
    """Machine code of a module for this machine's triple."""
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    machine = binding.Target.from_default_triple().create_target_machine(
        cpu=cpu, features=features, opt=2, reloc="pic", codemodel="jitdefault"
    )
    module = binding.parse_assembly(ir)
    module.verify()
    return bytes(machine.emit_object(module))
