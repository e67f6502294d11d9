"""Log speeds as a Gaussian: what cells of a table have in common, learned from those that were measured.

The log speed of a model with batch size s and a gang of k GPUs in a column (a GPU type at a level) is

    x = a[column] + b[column] log k + c[column] log(s/64) + residual
    (a, b, c) = those of all models + those of its family + those of the model itself

Each of the three parts is drawn from a Gaussian over all columns at once. Its covariance says which columns go
together: a model that is fast on one type is fast on the others (one direction that takes most of the variance: the
low rank of such tables), and how far types, levels and slopes then differ. The covariances of families and of models,
and the residual's variance, are learned by expectation maximisation, shrunk towards a prior that knows only that a type
is most like itself. Given these, all cells are jointly Gaussian, and those never measured follow, with their
uncertainty, by conditioning (as in probabilistic principal component analysis with missing values: Tipping and Bishop,
1999).

The work grows with the cube of the measured cells: a second for a thousand of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from horae.model.arrays import Floats, Ints

ITERATIONS_MAX = 40
CHANGE_MIN = 1e-3  # relative change of the covariances: below that the estimates do not move
PRIOR_GROUPS = 8.0  # weight of the prior, in families or models
PRIOR_CELLS = 20.0  # likewise, for the residual
SLOPES = (0.7, -0.7)  # prior slopes over gang and batch size: twice the GPUs are 2^0.7 times as fast


class Deviations(NamedTuple):
    """Standard deviations of log speeds in the prior."""

    scale: float  # of all columns together
    type: float
    level: float  # of one column
    gang: float  # of the slope over gangs, of all columns together
    gang_column: float
    batch: float  # of the slope over batch sizes
    batch_column: float


# Speeds in steps per second are unrelated between families, and GPU types differ by factors.
COMMON = Deviations(scale=5.0, type=1.0, level=0.5, gang=0.3, gang_column=0.2, batch=0.3, batch_column=0.1)
FAMILY = Deviations(scale=1.5, type=0.4, level=0.2, gang=0.2, gang_column=0.1, batch=0.2, batch_column=0.1)
# A model has one batch size, so it contains no information on a slope over batch sizes.
MODEL = Deviations(scale=0.3, type=0.15, level=0.1, gang=0.1, gang_column=0.05, batch=0.01, batch_column=0.01)
RESIDUAL = 0.1


class Structure(NamedTuple):
    """The covariances of the three parts and the residual variance, over intercepts and both slopes of all columns."""

    common: Floats
    family: Floats
    model: Floats
    residual: float  # variance


class DesignMatrix(NamedTuple):
    """Cells of the table, one per row."""

    terms: Floats  # by cell: the column, and the column times either logarithm
    family: Ints
    model: Ints
    expected: Floats  # log speed by the prior slopes


class Posterior(NamedTuple):
    """The posterior given the measured cells, ready to predict others."""

    structure: Structure
    cells: DesignMatrix
    inverse: Floats  # of the covariance of the measurements
    weights: Floats  # the same, times the deviation of each from the expectation


def make_cells(column: Ints, columns: int, logs: tuple[Floats, Floats], family: Ints, model: Ints) -> DesignMatrix:
    """Cells from columns and numbers; `logs` are those of gang and relative batch size."""
    one = np.zeros((len(column), columns))
    one[np.arange(len(column)), column] = 1.0
    expected = sum((slope * values for slope, values in zip(SLOPES, logs, strict=True)), np.zeros(len(column)))
    return DesignMatrix(np.hstack([one, *(one * values[:, None] for values in logs)]), family, model, expected)


def prior(types: Sequence[int]) -> Structure:
    """The structure before any measurement; `types` has the number of the GPU type of each column."""
    same_type = np.equal.outer(np.array(types, dtype=np.int64), np.array(types, dtype=np.int64)).astype(float)
    common, family, model = (_spread(deviations, same_type) for deviations in (COMMON, FAMILY, MODEL))
    return Structure(common, family, model, RESIDUAL**2)


def _spread(deviations: Deviations, same_type: Floats) -> Floats:
    count = len(same_type)
    one, zero = np.eye(count), np.zeros((count, count))
    intercept = deviations.scale**2 + deviations.type**2 * same_type + deviations.level**2 * one
    gang = deviations.gang**2 + deviations.gang_column**2 * one
    batch = deviations.batch**2 + deviations.batch_column**2 * one
    return np.block([[intercept, zero, zero], [zero, gang, zero], [zero, zero, batch]])


def fit(start: Structure, cells: DesignMatrix, log_speed: Floats, variance: Floats) -> Structure:
    """Expectation maximisation from the prior; the same cells give the same answer, whatever was known before."""
    structure = start
    for _ in range(ITERATIONS_MAX if len(log_speed) else 0):
        before = structure
        structure = _improved(start, condition(structure, cells, log_speed, variance))
        if _change(before, structure) < CHANGE_MIN:
            break
    return structure


def condition(structure: Structure, cells: DesignMatrix, log_speed: Floats, variance: Floats) -> Posterior:
    """Condition on the measurements; each has the variance of its own noise."""
    covariance = _covariance(structure, cells, cells)
    covariance[np.diag_indices(len(covariance))] += structure.residual + variance
    inverse: Floats = np.linalg.inv(covariance).astype(np.float64, copy=False)
    return Posterior(structure, cells, inverse, inverse @ (log_speed - cells.expected))


def predict(posterior: Posterior, asked: DesignMatrix, same: Ints) -> tuple[Floats, Floats]:
    """Mean and variance of the log speeds asked for; `same` is where such a cell was measured itself, or -1."""
    structure = posterior.structure
    between = _covariance(structure, asked, posterior.cells)
    measured = np.flatnonzero(same >= 0)
    between[measured, same[measured]] += structure.residual  # a cell's own deviation is known with it
    mean = asked.expected + between @ posterior.weights
    alone = np.einsum("ij,ij->i", asked.terms @ (structure.common + structure.family + structure.model), asked.terms)
    explained = np.einsum("ij,ij->i", between @ posterior.inverse, between)
    return mean, np.maximum(alone + structure.residual - explained, 0.0)


def leaning(posterior: Posterior, family: int, model: int) -> Floats:
    """The estimated deviation of a model's intercepts and slopes from those of all models."""
    structure, cells = posterior.structure, posterior.cells
    weighted = cells.terms * posterior.weights[:, None]
    of_family = weighted[cells.family == family].sum(axis=0)
    of_model = weighted[cells.model == model].sum(axis=0)
    found: Floats = structure.family @ of_family + structure.model @ of_model
    return found


def _covariance(structure: Structure, left: DesignMatrix, right: DesignMatrix) -> Floats:
    common = left.terms @ structure.common @ right.terms.T
    family = left.terms @ structure.family @ right.terms.T
    model = left.terms @ structure.model @ right.terms.T
    common += family * np.equal.outer(left.family, right.family)
    common += model * np.equal.outer(left.model, right.model)
    return common


def _improved(start: Structure, posterior: Posterior) -> Structure:
    """One step of expectation maximisation: the expected covariances of the parts under the posterior."""
    structure, cells = posterior.structure, posterior.cells
    family = _second_moment(structure.family, start.family, posterior, cells.family)
    model = _second_moment(structure.model, start.model, posterior, cells.model)
    residual = structure.residual
    squares = (residual * posterior.weights) ** 2 + residual - residual**2 * np.diag(posterior.inverse)
    mean_square = (PRIOR_CELLS * start.residual + squares.sum()) / (PRIOR_CELLS + len(squares))
    return Structure(structure.common, family, model, float(mean_square))


def _second_moment(covariance: Floats, expected: Floats, posterior: Posterior, group: Ints) -> Floats:
    total = PRIOR_GROUPS * expected
    groups = np.unique(group)
    for number in groups.tolist():
        rows = np.flatnonzero(group == number)
        lift = covariance @ posterior.cells.terms[rows].T
        mean = lift @ posterior.weights[rows]
        total = total + np.outer(mean, mean) + covariance - lift @ posterior.inverse[np.ix_(rows, rows)] @ lift.T
    moment: Floats = total / (PRIOR_GROUPS + len(groups))
    return (moment + moment.T) / 2.0


def _change(before: Structure, after: Structure) -> float:
    """The largest relative change of a variance."""
    was = np.concatenate([np.diag(before.family), np.diag(before.model), [before.residual]])
    now = np.concatenate([np.diag(after.family), np.diag(after.model), [after.residual]])
    return float(np.max(np.abs(now / was - 1.0)))
