"""Matrix-free high-order finite element operators.

The public names are attributes of this package. Each is imported when first used. So ``import
femops`` takes no time, and loads neither compilers nor plotting. The stub ``__init__.pyi`` lists
the names, for Python and for type checkers.

>>> import femops
>>> V = femops.H1(femops.box((2, 2)), order=2)
>>> V.ndofs
25
"""

from femops import _lazy

__all__ = list(_lazy.HOME)
__getattr__, __dir__ = _lazy.attribute, _lazy.names
