import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenancy.sealing.context import bound_context

values = st.one_of(st.text(), st.integers(0, 2**64 - 1), st.binary())


def test_the_border_between_two_values_is_part_of_the_context():
    assert bound_context("ab", "c").hex() == "02000000" + "6162" + "01000000" + "63"
    assert bound_context("a", "bc").hex() == "01000000" + "61" + "02000000" + "6263"


@given(st.lists(st.binary(max_size=4), max_size=5), st.lists(st.binary(max_size=4), max_size=5))
def test_two_different_rows_never_give_the_same_context(one, other):
    assert (bound_context(*one) == bound_context(*other)) == (one == other)


@given(st.lists(values), st.lists(values))
def test_the_context_of_a_row_is_that_of_its_parts_put_together(head, tail):
    assert bound_context(*head, *tail) == bound_context(*head) + bound_context(*tail)


@pytest.mark.parametrize("number", [-1, 2**64])
def test_a_number_that_does_not_fit_is_refused(number):
    with pytest.raises(ValueError, match="64 bits"):
        bound_context("label", number)
