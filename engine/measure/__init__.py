"""Building, running, verifying and timing candidates in worker processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.measure.measurer import Measurer
    from engine.measure.options import MeasureOptions

__all__ = ["MeasureOptions", "Measurer"]


def __getattr__(name: str) -> Any:
    """Loaded when asked for, so that worker processes stay light."""
    if name == "Measurer":
        from engine.measure.measurer import Measurer

        return Measurer
    if name == "MeasureOptions":
        from engine.measure.options import MeasureOptions

        return MeasureOptions
    raise AttributeError(name)
