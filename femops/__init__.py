"""Matrix-free high-order finite element operators.

Everything a user needs is an attribute of this package; it is imported when first used, so that
``import femops`` itself takes no time and loads neither compilers nor plotting.  The stub beside
this file, ``__init__.pyi``, lists what there is, for Python as for type checkers.

>>> import femops
>>> V = femops.H1(femops.box((2, 2)), order=2)
>>> V.ndofs
25
"""

from femops import _lazy

__all__ = list(_lazy.HOME)
__getattr__, __dir__ = _lazy.attribute, _lazy.names
