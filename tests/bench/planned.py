"""What tests of the bench share: the sessions of a scenario, without a machine to run them on."""
import types

from result import Result
from run import Item


def sessions(points, repeats=2, soft=False):
    """An Item with its plan."""
    it = Item.__new__(Item)
    it.job = types.SimpleNamespace(mps=True, about={"memory_mib": 0})
    it.o = types.SimpleNamespace(soft=soft, device="nvidia", only=None)
    it.points, it.s, it.repeats, it.needs = points, points[0], repeats, points[0].top["needs"]
    it.result = Result(points, repeats, soft)
    it.plan()
    return it
