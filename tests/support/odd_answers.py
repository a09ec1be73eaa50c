"""JSON answers that no server gives: a real answer with an unexpected value in it."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([0, -1, 2**31, 2**63, 10**400, 1e300, 0.5, -1e300, "", "x", "-1:x", "\x1b[2J"]),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=20),
)
NESTED = st.recursive(
    ODD,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@st.composite
def damaged(draw: st.DrawFn, good: Any) -> Any:
    """``good`` with one value, or all of it, replaced by an unexpected one."""
    if isinstance(good, dict) and good and draw(st.booleans()):
        key = draw(st.sampled_from(sorted(good)))
        if draw(st.booleans()):
            return {**good, key: draw(damaged(good[key]))}
        return {**{k: v for k, v in good.items() if k != key}, draw(st.text()): good[key]}
    if isinstance(good, list) and good and draw(st.booleans()):
        return [draw(damaged(good[0]))]
    return draw(NESTED)
