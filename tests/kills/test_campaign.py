"""A small kill campaign: real commands, real servers, killed at random moments."""

from __future__ import annotations

import pytest

from benchmarks.kills.campaign import Campaign


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "faults"),
    [
        ("sqlite", ["sigkill", "worker", "sigint-twice"]),
        ("postgresql", ["stopped", "sigkill", "dropped"]),
    ],
)
def test_nothing_is_lost_by_a_kill(kind: str, faults: list[str]) -> None:
    with Campaign(kind, seed=1) as campaign:
        verdicts = list(campaign.run(faults))
    print("\n".join(verdict.line() for verdict in verdicts))
    assert [verdict.fault for verdict in verdicts] == faults
    assert [line for verdict in verdicts for line in verdict.violations] == []
    assert all(verdict.kept for verdict in verdicts[1:]), "records were there to be lost"
