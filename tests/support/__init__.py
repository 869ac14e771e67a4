"""What tests share: oracles, cases, fixtures, ranks, and devices for machines without a GPU.

Seven facts to know before writing a test:

* ``tests/conftest.py`` lets each process use three threads, each rank two, and lets small problems
  use them too. They wait for each other in each product, which takes longer than the product. So
  ``one_thread = fixtures.one_thread`` in a module, or in the ``conftest.py`` of a folder, is right
  for tests of solvers, runs and programs: for all that makes many small products.
* ``@pytest.mark.sample(n)`` runs one in n cases; ``make exhaustive`` runs all of them.
* ``@pytest.mark.parallel(1, 2, 4)`` runs a test on ranks, with the fixture ``comm``
  (``mpi_runs.py``): on one of these numbers, on each by ``make exhaustive``.
* ``device = guarded.small_device`` (``cuda/guarded.py``) is a device that runs CUDA C++ on the host
  and fails where an array moves between host and device unasked. ``cuda/host_device.py`` is the
  same without the guard.
* What ranks are held to is computed by one of them: ``of_rank_0`` (``cases/rank_operators.py``).
* A kernel takes a quarter of a second to compile if the cache is empty. Take forms, orders and
  types of other tests where they do as well (``cases/differentiable.py``), and try several
  functions as components of one form.
* Oracles (``oracles/``) share no code with femops; ``cases/`` has the forms and meshes to judge.
"""
