"""A job that is suspended, and then resumed."""

from tests.unit.reconcile.simulation import Simulation


def suspend_and_resume(simulation: Simulation) -> None:
    """Suspend the job, let its pods end, and ask for it again; nothing has come of that yet."""
    simulation.edit(suspend=True)
    simulation.settle()
    simulation.remove()
    simulation.settle()
    simulation.edit(suspend=False)
