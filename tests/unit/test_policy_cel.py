"""CEL as the policies of Tenantry use it: values, errors, and what is not evaluated."""

from __future__ import annotations

from typing import Any

import pytest

from tenantry.policy.cel.evaluate import compiled
from tenantry.policy.cel.syntax import MOST_LEVELS, UnsupportedExpression
from tenantry.policy.cel.values import EvaluationError, Quantity, quantity_of

POD: dict[str, Any] = {
    "metadata": {"annotations": {"a/b": "1"}},
    "spec": {"containers": [{"name": "web", "cpu": "100m"}, {"name": "log"}], "none": None, "numbers": [1, 2]},
}


def value(expression: str) -> object:
    """Return the value of an expression about `POD`."""
    return compiled(expression)({"object": POD})


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        # Operators, in their order of precedence.
        ("1 + 2 * 3 == 7 && !false", True),
        ("7 / 2", 3),
        ("-7 / 2", -3),
        ("-7 % 4", -3),
        ("7.0 / 2.0", 3.5),
        ("'a' + 'b'", "ab"),
        ("[1] + [2]", [1, 2]),
        ("true ? 1 : 2", 1),
        ("false ? 1 : true ? 3 : 4", 3),
        ("2 in [1, 2]", True),
        ("'x' in {'y': 1}", False),
        ("1 == 1.0", True),
        ("1 == true", False),
        ("{'a': [1, true]} == {'a': [1, true]}", True),
        ("null == object.spec.none", True),
        ("'\\n\\'' + \"'\"", "\n''"),
        # Fields, present and missing.
        ("object.spec.containers[0].name", "web"),
        ("object.metadata.annotations['a/b']", "1"),
        ("has(object.spec.none)", True),
        ("has(object.spec.missing)", False),
        ("has(object.spec.none.inner)", False),
        ("object.?spec.missing.deep.orValue(3)", 3),
        ("object.spec.containers[?1].?cpu.orValue('none')", "none"),
        ("object.?metadata.annotations[?'a/b'].hasValue()", True),
        ("object.?spec.none.inner.hasValue()", False),
        # Macros over lists and maps.
        ("object.spec.containers.exists(c, c.name == 'log')", True),
        ("object.spec.containers.all(c, has(c.cpu))", False),
        ("object.spec.containers.map(c, c.name)", ["web", "log"]),
        ("object.spec.containers.map(c, has(c.cpu), c.cpu)", ["100m"]),
        ("object.spec.containers.filter(c, !has(c.cpu)).size()", 1),
        ("object.metadata.annotations.exists(k, k == 'a/b')", True),
        ("object.spec.numbers.transformList(i, n, i * 10 + n)", [1, 12]),
        ("object.spec.numbers.transformList(i, n, n > 1, i)", [1]),
        ("object.metadata.annotations.transformMap(k, v, v == '2', k)", {}),
        ("['a\\tb'].map(l, l.split('\\t')).transformMapEntry(i, f, {f[0]: f[1]})", {"a": "b"}),
        # An error of one part does not matter if another part decides.
        ("object.missing == 1 || true", True),
        ("false && object.missing == 1", False),
        ("object.missing == 1 && false", False),
        ("[0, 1].exists(n, 1 / n == 1)", True),
        ("[0, 1].all(n, 1 / n == 2)", False),
        # Functions.
        ("string(3) + string(true)", "3true"),
        ("int(2.9)", 2),
        ("int('12')", 12),
        ("double(2)", 2.0),
        ("size('abc') + size({'a': 1})", 4),
        ("'a;b'.split(';').indexOf('b')", 1),
        ("'a-a'.replace('a', 'b')", "b-b"),
        ("[1.5, 2.5].sum()", 4.0),
        ("jsonpatch.escapeKey('a/b~c')", "a~1b~0c"),
        ("quantity('1').isGreaterThan(quantity('900m'))", True),
        ("isQuantity('1x') || isQuantity('')", False),
        ("quantity('1Gi').asApproximateFloat()", 1073741824.0),
        ("JSONPatch{op: 'add', path: '/a', value: {'b': dyn([1])}}", {"op": "add", "path": "/a", "value": {"b": [1]}}),
        ("Object.spec{name: 'x'}", {"name": "x"}),
    ],
)
def test_expressions_have_the_values_of_the_specification(expression: str, expected: object) -> None:
    """Issue 20, point 1: as github.com/google/cel-spec and cel-go's extensions define them."""
    found = value(expression)
    assert (found, type(found)) == (expected, type(expected))


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("object.missing", "no such key: missing"),
        ("object.spec.containers[2]", "no such key: 2"),
        ("object.spec.none.inner", "no such key: inner"),
        ("other", "undeclared reference to other"),
        ("object.missing == 1 || false", "no such key: missing"),
        ("[0].exists(n, 1 / n == 1)", "division by zero"),
        ("1 % 0", "modulus by zero"),
        ("9223372036854775807 + 1", "integer overflow"),
        ("int(1.0e30)", "integer overflow"),
        ("1 + 'a'", "no such overload"),
        ("[1] + 1", "no such overload"),
        ("1 && true", "true or false"),
        ("quantity('x')", "is not a quantity"),
        ("object.?missing.value()", "has no value"),
        ("'a' in 'abc'", "must be a list or a map"),
        ("[['a', 'b'], ['a', 'c']].transformMapEntry(i, f, {f[0]: f[1]})", "insert failed"),
    ],
)
def test_expressions_without_a_value_are_errors(expression: str, problem: str) -> None:
    """Issue 20, point 1: a policy that cannot be evaluated changes nothing, and the reason is reported."""
    with pytest.raises(EvaluationError, match=problem):
        value(expression)


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "1 +",
        "(1",
        "a.b(",
        "[1 2]",
        "object.matches('a')",
        "f(1)",
        "has(1)",
        "[1].map(1, 2)",
        "'\\x41'",
        "'open",
        "a $ b",
        "authorizer.group('').resource('pods').check('get').allowed()",
        "(" * (MOST_LEVELS + 1) + "1" + ")" * (MOST_LEVELS + 1),
    ],
)
def test_expressions_that_are_not_evaluated_are_refused_when_they_are_compiled(expression: str) -> None:
    """Issue 20, point 1: never later, on a request."""
    with pytest.raises(UnsupportedExpression):
        compiled(expression)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("100m", 0.1), ("0.3", 3 * 0.1), ("1.50", 150 * 0.01), ("2e3", 2000.0), ("1.5Gi", 1.5 * 2**30), ("-1k", -1000.0)],
)
def test_a_quantity_is_rounded_as_kubernetes_rounds_it(text: str, expected: float) -> None:
    """Issue 20, point 1: digits times a power of ten, as k8s.io/apimachinery computes AsApproximateFloat64."""
    found = quantity_of(text)
    assert isinstance(found, Quantity)
    assert found.approximate == expected
